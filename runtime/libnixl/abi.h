// The part of libnixl's plain C interface that the binding calls, declared here with the names, parameters and values
// of libnixl_capi.so 1.5.1. Handles are pointers to objects that only the library knows.
#ifndef KVFERRY_LIBNIXL_ABI_H
#define KVFERRY_LIBNIXL_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *nixl_handle;

enum {
  NIXL_SUCCESS = 0,
  NIXL_IN_PROGRESS = 1,
  NIXL_INVALID_PARAMETER = -1,
  NIXL_BACKEND = -2,
  NIXL_INVALID_STATE = -3,
  NIXL_EXCEPTION = -4,
  NIXL_NO_TELEMETRY = -5,
  NIXL_NOT_FOUND = -6,
};

enum { NIXL_READ = 0, NIXL_WRITE = 1 };

enum { NIXL_HOST = 0, NIXL_DEVICE = 1 };

// The options of a new agent. The first releases have the listener's port as an int, later releases as 16 bits, so the
// following fields differ in offset. The binding uses only the value zero for all fields, which means no threads and no
// locks in every release. The struct has spare room.
struct nixl_config {
  uint64_t zero[8];
};

#define NIXL_REQUIRED(X)                                                                                       \
  X(nixl_capi_create_configured_agent,                                                                         \
    (const char *name, const struct nixl_config *config, nixl_handle *agent))                                  \
  X(nixl_capi_destroy_agent, (nixl_handle agent))                                                              \
  X(nixl_capi_get_local_md, (nixl_handle agent, void **data, size_t *bytes))                                   \
  X(nixl_capi_load_remote_md, (nixl_handle agent, const void *data, size_t bytes, char **name))                \
  X(nixl_capi_invalidate_remote_md, (nixl_handle agent, const char *peer))                                     \
  X(nixl_capi_create_params, (nixl_handle * params))                                                           \
  X(nixl_capi_params_add, (nixl_handle params, const char *key, const char *value))                            \
  X(nixl_capi_destroy_params, (nixl_handle params))                                                            \
  X(nixl_capi_create_backend,                                                                                  \
    (nixl_handle agent, const char *plugin, nixl_handle params, nixl_handle *backend))                         \
  X(nixl_capi_destroy_backend, (nixl_handle backend))                                                          \
  X(nixl_capi_create_opt_args, (nixl_handle * options))                                                        \
  X(nixl_capi_destroy_opt_args, (nixl_handle options))                                                         \
  X(nixl_capi_opt_args_add_backend, (nixl_handle options, nixl_handle backend))                                \
  X(nixl_capi_opt_args_set_notif_msg, (nixl_handle options, const void *data, size_t bytes))                   \
  X(nixl_capi_opt_args_set_has_notif, (nixl_handle options, bool has))                                         \
  X(nixl_capi_create_reg_dlist, (int memory, nixl_handle *list))                                               \
  X(nixl_capi_destroy_reg_dlist, (nixl_handle list))                                                           \
  X(nixl_capi_reg_dlist_add_desc, (nixl_handle list, uintptr_t address, size_t bytes, uint64_t device,         \
                                   const void *meta, size_t meta_bytes))                                       \
  X(nixl_capi_register_mem, (nixl_handle agent, nixl_handle list, nixl_handle options))                        \
  X(nixl_capi_deregister_mem, (nixl_handle agent, nixl_handle list, nixl_handle options))                      \
  X(nixl_capi_agent_make_connection, (nixl_handle agent, const char *peer, nixl_handle options))               \
  X(nixl_capi_create_xfer_dlist, (int memory, nixl_handle *list))                                              \
  X(nixl_capi_destroy_xfer_dlist, (nixl_handle list))                                                          \
  X(nixl_capi_xfer_dlist_add_desc, (nixl_handle list, uintptr_t address, size_t bytes, uint64_t device))       \
  X(nixl_capi_create_xfer_req, (nixl_handle agent, int operation, nixl_handle local, nixl_handle remote,       \
                                const char *peer, nixl_handle *request, nixl_handle options))                  \
  X(nixl_capi_post_xfer_req, (nixl_handle agent, nixl_handle request, nixl_handle options))                    \
  X(nixl_capi_get_xfer_status, (nixl_handle agent, nixl_handle request))                                       \
  X(nixl_capi_release_xfer_req, (nixl_handle agent, nixl_handle request))                                      \
  X(nixl_capi_destroy_xfer_req, (nixl_handle request))                                                         \
  X(nixl_capi_gen_notif,                                                                                       \
    (nixl_handle agent, const char *peer, const void *data, size_t bytes, nixl_handle options))                \
  X(nixl_capi_create_notif_map, (nixl_handle * map))                                                           \
  X(nixl_capi_destroy_notif_map, (nixl_handle map))                                                            \
  X(nixl_capi_get_notifs, (nixl_handle agent, nixl_handle map, nixl_handle options))                           \
  X(nixl_capi_notif_map_size, (nixl_handle map, size_t *peers))                                                \
  X(nixl_capi_notif_map_get_agent_at, (nixl_handle map, size_t index, const char **peer))                      \
  X(nixl_capi_notif_map_get_notifs_size, (nixl_handle map, const char *peer, size_t *count))                   \
  X(nixl_capi_notif_map_get_notif,                                                                             \
    (nixl_handle map, const char *peer, size_t index, const void **data, size_t *bytes))                       \
  X(nixl_capi_notif_map_clear, (nixl_handle map))

// The functions of a library. Each returns a status.
struct nixl_api {
#define NIXL_POINTER(symbol, parameters) int(*symbol) parameters;
  NIXL_REQUIRED(NIXL_POINTER)
#undef NIXL_POINTER
};

struct nixl_symbol {
  const char *name;
  size_t offset; // in struct nixl_api
};

// nixl_symbol returns the symbol of an index, and NULL after the last symbol.
const struct nixl_symbol *nixl_symbol(size_t index);

// nixl_api_new makes an empty table of functions, to be freed with free.
struct nixl_api *nixl_api_new(void);

#endif
