//go:build cgo && linux

#include "calls.h"

#include <stdio.h>
#include <string.h>

#define CALL(api, symbol, ...) ((api)->symbol == NULL ? CALL_NO_SYMBOL : (api)->symbol(__VA_ARGS__))

// A configuration in as much room as any later library may look at.
union config {
  struct hccl_config fields;
  char room[HCCL_CONFIG_ROOM];
};

static void configure(union config *c, const struct making *making) {
  memset(c, 0, sizeof *c);
  c->fields.size = HCCL_CONFIG_BYTES;
  c->fields.magic = HCCL_CONFIG_MAGIC;
  c->fields.version = HCCL_CONFIG_VERSION;
  c->fields.buffer_mb = HCCL_NOT_SET;
  snprintf(c->fields.name, sizeof c->fields.name, "%s", making->name);
  c->fields.traffic_class = making->traffic_class;
  c->fields.service_level = making->service_level;
}

int hccl_make_root(const struct hccl_api *api, struct hccl_root_info *root) { return CALL(api, HcclGetRootInfo, root); }

int hccl_init_table(const struct hccl_api *api, const char *table, const struct making *making, hccl_handle *comm) {
  union config c;
  configure(&c, making);
  return CALL(api, HcclCommInitClusterInfoMemConfig, table, making->rank, &c.fields, comm);
}

int hccl_init_file(const struct hccl_api *api, const char *path, const struct making *making, hccl_handle *comm) {
  union config c;
  configure(&c, making);
  if (api->HcclCommInitClusterInfoConfig != NULL)
    return api->HcclCommInitClusterInfoConfig(path, making->rank, &c.fields, comm);
  return CALL(api, HcclCommInitClusterInfo, path, making->rank, comm); // this function takes no name
}

int hccl_init_root(const struct hccl_api *api, const struct hccl_root_info *root, const struct making *making,
                   hccl_handle *comm) {
  union config c;
  configure(&c, making);
  if (api->HcclCommInitRootInfoConfig != NULL)
    return api->HcclCommInitRootInfoConfig(2, root, making->rank, &c.fields, comm);
  return CALL(api, HcclCommInitRootInfo, 2, root, making->rank, comm); // the name is in the root info
}

int hccl_destroy(const struct hccl_api *api, hccl_handle comm) { return CALL(api, HcclCommDestroy, comm); }

int hccl_async_error(const struct hccl_api *api, hccl_handle comm, int *code) {
  return CALL(api, HcclGetCommAsyncError, comm, code);
}

int hccl_register(const struct hccl_api *api, int type, hccl_address address, uint64_t size, hccl_handle *handle) {
  struct hccl_mem memory = {.type = type, .address = address, .size = size};
  return CALL(api, HcclRegisterGlobalMem, &memory, handle);
}

int hccl_deregister(const struct hccl_api *api, hccl_handle handle) {
  return CALL(api, HcclDeregisterGlobalMem, handle);
}

int hccl_bind(const struct hccl_api *api, hccl_handle comm, hccl_handle handle) {
  return CALL(api, HcclCommBindMem, comm, handle);
}

int hccl_unbind(const struct hccl_api *api, hccl_handle comm, hccl_handle handle) {
  return CALL(api, HcclCommUnbindMem, comm, handle);
}

int hccl_prepare(const struct hccl_api *api, hccl_handle comm, int seconds) {
  struct hccl_prepare_config config = {.topology = HCCL_FULLMESH};
  return CALL(api, HcclCommPrepare, comm, &config, seconds);
}

int hccl_register_with(const struct hccl_api *api, hccl_handle comm, uint32_t peer, int type, hccl_address address,
                       uint64_t size, struct regions *r, uint32_t index) {
  return CALL(api, HcclRegisterMem, comm, peer, type, address, size, &r->local[index]);
}

int hccl_deregister_with(const struct hccl_api *api, hccl_handle comm, struct regions *r, uint32_t index) {
  return CALL(api, HcclDeregisterMem, comm, &r->local[index]);
}

int hccl_exchange(const struct hccl_api *api, hccl_handle comm, uint32_t peer, struct regions *r, uint32_t count,
                  int seconds, uint32_t *peer_count) {
  struct hccl_mem_descs local = {.array = r->local, .length = count};
  struct hccl_mem_descs remote = {.array = r->remote, .length = REGIONS_MAX};
  return CALL(api, HcclExchangeMemDesc, comm, peer, &local, seconds, &remote, peer_count);
}

int hccl_enable(const struct hccl_api *api, hccl_handle comm, struct regions *r, uint32_t index) {
  struct hccl_mem memory;
  return CALL(api, HcclEnableMemAccess, comm, &r->remote[index], &memory);
}

int hccl_disable(const struct hccl_api *api, hccl_handle comm, struct regions *r, uint32_t index) {
  return CALL(api, HcclDisableMemAccess, comm, &r->remote[index]);
}

int hccl_put(const struct hccl_api *api, hccl_handle comm, uint32_t peer, struct batch *b, uint32_t count,
             hccl_handle stream) {
  return CALL(api, HcclBatchPut, comm, peer, b->descs, count, stream);
}

int hccl_get(const struct hccl_api *api, hccl_handle comm, uint32_t peer, struct batch *b, uint32_t count,
             hccl_handle stream) {
  return CALL(api, HcclBatchGet, comm, peer, b->descs, count, stream);
}

const char *hccl_error_string(const struct hccl_api *api, int code) {
  const char *text = api->HcclGetErrorString == NULL ? NULL : api->HcclGetErrorString(code);
  return text == NULL ? "" : text;
}

uint32_t hccl_capability(const struct hccl_api *api) {
  return api->HcclGetCommConfigCapability == NULL ? 0 : api->HcclGetCommConfigCapability();
}
