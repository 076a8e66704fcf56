//go:build cgo && linux

#include "calls.h"

#include <stdlib.h>

static const struct nixl_symbol symbols[] = {
#define NIXL_NEEDED(symbol, parameters) {#symbol, offsetof(struct nixl_api, symbol)},
    NIXL_REQUIRED(NIXL_NEEDED)
#undef NIXL_NEEDED
};

const struct nixl_symbol *nixl_symbol(size_t index) {
  return index < sizeof symbols / sizeof symbols[0] ? &symbols[index] : NULL;
}

static void *zeroed(size_t bytes) {
  void *p = calloc(1, bytes);
  if (p == NULL) abort(); // as Go does when it has no memory
  return p;
}

struct nixl_api *nixl_api_new(void) { return zeroed(sizeof(struct nixl_api)); }

// CALL calls a function of an agent's library and records the function's name in the agent. FIRST does the same before
// there is an agent.
#define CALL(a, symbol, ...) ((a)->at = #symbol, (a)->api->symbol(__VA_ARGS__))
#define FIRST(api, symbol, ...) (*at = #symbol, (api)->symbol(__VA_ARGS__))

int nixl_call_params(const struct nixl_api *api, nixl_handle *params, const char **at) {
  return FIRST(api, nixl_capi_create_params, params);
}

int nixl_call_param(const struct nixl_api *api, nixl_handle params, const char *key, const char *value,
                    const char **at) {
  return FIRST(api, nixl_capi_params_add, params, key, value);
}

void nixl_call_params_free(const struct nixl_api *api, nixl_handle params) { api->nixl_capi_destroy_params(params); }

// drop frees what an agent has besides itself.
static void drop(struct agent *a) {
  if (a->notices != NULL) a->api->nixl_capi_destroy_notif_map(a->notices);
  if (a->options != NULL) a->api->nixl_capi_destroy_opt_args(a->options);
  if (a->backend != NULL) a->api->nixl_capi_destroy_backend(a->backend);
  free(a);
}

static int fill(struct agent *a, const char *name, const char *plugin, nixl_handle params) {
  struct nixl_config config = {{0}};
  int status = CALL(a, nixl_capi_create_configured_agent, name, &config, &a->agent);
  if (status == 0) status = CALL(a, nixl_capi_create_backend, a->agent, plugin, params, &a->backend);
  if (status == 0) status = CALL(a, nixl_capi_create_opt_args, &a->options);
  if (status == 0) status = CALL(a, nixl_capi_opt_args_add_backend, a->options, a->backend);
  if (status == 0) status = CALL(a, nixl_capi_create_notif_map, &a->notices);
  return status;
}

int nixl_call_agent(const struct nixl_api *api, const char *name, const char *plugin, nixl_handle params,
                    struct agent **made, const char **at) {
  struct agent *a = zeroed(sizeof *a);
  a->api = api;
  int status = fill(a, name, plugin, params);
  if (status != 0) {
    *at = a->at;
    if (a->agent != NULL) api->nixl_capi_destroy_agent(a->agent);
    drop(a);
    return status;
  }
  *made = a;
  return 0;
}

int nixl_call_agent_free(struct agent *a) {
  int status = CALL(a, nixl_capi_destroy_agent, a->agent);
  if (status == 0) drop(a);
  return status;
}

int nixl_call_register(struct agent *a, int memory, const struct range *ranges, size_t count, int off) {
  nixl_handle list = NULL;
  int status = CALL(a, nixl_capi_create_reg_dlist, memory, &list);
  if (status != 0) return status;
  for (size_t i = 0; i < count && status == 0; i++)
    status = CALL(a, nixl_capi_reg_dlist_add_desc, list, ranges[i].address, ranges[i].bytes, ranges[i].device, NULL,
                  0);
  if (status == 0 && off)
    status = CALL(a, nixl_capi_deregister_mem, a->agent, list, a->options);
  else if (status == 0)
    status = CALL(a, nixl_capi_register_mem, a->agent, list, a->options);
  a->api->nixl_capi_destroy_reg_dlist(list);
  return status;
}

int nixl_call_metadata(struct agent *a, void **data, size_t *bytes) {
  return CALL(a, nixl_capi_get_local_md, a->agent, data, bytes);
}

int nixl_call_load(struct agent *a, const void *data, size_t bytes, char **name) {
  return CALL(a, nixl_capi_load_remote_md, a->agent, data, bytes, name);
}

int nixl_call_forget(struct agent *a, const char *peer) {
  return CALL(a, nixl_capi_invalidate_remote_md, a->agent, peer);
}

int nixl_call_connect(struct agent *a, const char *peer) {
  return CALL(a, nixl_capi_agent_make_connection, a->agent, peer, a->options);
}

// list makes the list of descriptors of a side. After a failure nothing is left.
static int list(struct agent *a, int memory, uint64_t device, const struct pair *pairs, size_t count, int remote,
                nixl_handle *made) {
  nixl_handle l = NULL;
  int status = CALL(a, nixl_capi_create_xfer_dlist, memory, &l);
  if (status != 0) return status;
  for (size_t i = 0; i < count && status == 0; i++)
    status = CALL(a, nixl_capi_xfer_dlist_add_desc, l, remote ? pairs[i].remote : pairs[i].local, pairs[i].bytes,
                  device);
  if (status != 0) {
    a->api->nixl_capi_destroy_xfer_dlist(l);
    return status;
  }
  *made = l;
  return 0;
}

// announced makes options that name the backend and a notice.
static int announced(struct agent *a, const void *notice, size_t bytes, nixl_handle *made) {
  nixl_handle o = NULL;
  int status = CALL(a, nixl_capi_create_opt_args, &o);
  if (status != 0) return status;
  status = CALL(a, nixl_capi_opt_args_add_backend, o, a->backend);
  if (status == 0) status = CALL(a, nixl_capi_opt_args_set_notif_msg, o, notice, bytes);
  if (status == 0) status = CALL(a, nixl_capi_opt_args_set_has_notif, o, true);
  if (status != 0) {
    a->api->nixl_capi_destroy_opt_args(o);
    return status;
  }
  *made = o;
  return 0;
}

int nixl_call_transfer(struct agent *a, int operation, struct sides sides, const struct pair *pairs, size_t count,
                  const char *peer, const void *notice, size_t notice_bytes, nixl_handle *request) {
  nixl_handle local = NULL, remote = NULL, options = NULL;
  int status = list(a, sides.local_memory, sides.local_device, pairs, count, 0, &local);
  if (status == 0) status = list(a, sides.remote_memory, sides.remote_device, pairs, count, 1, &remote);
  if (status == 0 && notice_bytes > 0) status = announced(a, notice, notice_bytes, &options);
  if (status == 0)
    status = CALL(a, nixl_capi_create_xfer_req, a->agent, operation, local, remote, peer, request,
                  options != NULL ? options : a->options);
  if (options != NULL) a->api->nixl_capi_destroy_opt_args(options);
  if (remote != NULL) a->api->nixl_capi_destroy_xfer_dlist(remote);
  if (local != NULL) a->api->nixl_capi_destroy_xfer_dlist(local);
  return status;
}

int nixl_call_post(struct agent *a, nixl_handle request) {
  return CALL(a, nixl_capi_post_xfer_req, a->agent, request, NULL);
}

int nixl_call_check(struct agent *a, nixl_handle request) {
  return CALL(a, nixl_capi_get_xfer_status, a->agent, request);
}

int nixl_call_release(struct agent *a, nixl_handle request) {
  int status = CALL(a, nixl_capi_release_xfer_req, a->agent, request);
  if (status == 0) status = CALL(a, nixl_capi_destroy_xfer_req, request);
  return status;
}

int nixl_call_notify(struct agent *a, const char *peer, const void *data, size_t bytes) {
  return CALL(a, nixl_capi_gen_notif, a->agent, peer, data, bytes, a->options);
}

int nixl_call_notices(struct agent *a, size_t *peers) {
  int status = CALL(a, nixl_capi_get_notifs, a->agent, a->notices, a->options);
  if (status == 0) status = CALL(a, nixl_capi_notif_map_size, a->notices, peers);
  return status;
}

int nixl_call_notices_of(struct agent *a, size_t index, const char **peer, size_t *count) {
  int status = CALL(a, nixl_capi_notif_map_get_agent_at, a->notices, index, peer);
  if (status == 0) status = CALL(a, nixl_capi_notif_map_get_notifs_size, a->notices, *peer, count);
  return status;
}

int nixl_call_notice(struct agent *a, const char *peer, size_t index, const void **data, size_t *bytes) {
  return CALL(a, nixl_capi_notif_map_get_notif, a->notices, peer, index, data, bytes);
}

int nixl_call_notices_clear(struct agent *a) {
  return CALL(a, nixl_capi_notif_map_clear, a->notices);
}
