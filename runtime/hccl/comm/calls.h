// A function for each function of the library, because Go cannot call through a C pointer. The result is the library's
// code, or CALL_NO_SYMBOL.
#ifndef KVFERRY_HCCL_CALLS_H
#define KVFERRY_HCCL_CALLS_H

#include "abi.h"

// The result of the binding itself; the library's own are never negative.
enum { CALL_NO_SYMBOL = -2 };

// The arguments for making a communicator.
struct making {
  const char *name;
  uint32_t rank;
  uint32_t traffic_class; // HCCL_NOT_SET: the environment's
  uint32_t service_level; // the same
};

// Communicators.
int hccl_make_root(const struct hccl_api *api, struct hccl_root_info *root);
int hccl_init_table(const struct hccl_api *api, const char *table, const struct making *making, hccl_handle *comm);
int hccl_init_file(const struct hccl_api *api, const char *path, const struct making *making, hccl_handle *comm);
int hccl_init_root(const struct hccl_api *api, const struct hccl_root_info *root, const struct making *making,
                   hccl_handle *comm);
int hccl_destroy(const struct hccl_api *api, hccl_handle comm);
int hccl_async_error(const struct hccl_api *api, hccl_handle comm, int *code);

// Memory, by the newer sequence.
int hccl_register(const struct hccl_api *api, int type, hccl_address address, uint64_t size, hccl_handle *handle);
int hccl_deregister(const struct hccl_api *api, hccl_handle handle);
int hccl_bind(const struct hccl_api *api, hccl_handle comm, hccl_handle handle);
int hccl_unbind(const struct hccl_api *api, hccl_handle comm, hccl_handle handle);
int hccl_prepare(const struct hccl_api *api, hccl_handle comm, int seconds);

// The largest number of descriptors of memory at either end.
enum { REGIONS_MAX = 256 };

// The descriptions that the two ends have exchanged, in C memory. The library writes as many as the peer has sent,
// whatever the array's length: hence the spare room, and a number on which the ends agree before.
struct regions {
  struct hccl_mem_desc local[REGIONS_MAX];
  struct hccl_mem_desc remote[REGIONS_MAX];
};

// Memory, by the older sequence. index is that of the region.
int hccl_register_with(const struct hccl_api *api, hccl_handle comm, uint32_t peer, int type, hccl_address address,
                       uint64_t size, struct regions *r, uint32_t index);
int hccl_deregister_with(const struct hccl_api *api, hccl_handle comm, struct regions *r, uint32_t index);
int hccl_exchange(const struct hccl_api *api, hccl_handle comm, uint32_t peer, struct regions *r, uint32_t count,
                  int seconds, uint32_t *peer_count);
int hccl_enable(const struct hccl_api *api, hccl_handle comm, struct regions *r, uint32_t index);
int hccl_disable(const struct hccl_api *api, hccl_handle comm, struct regions *r, uint32_t index);

enum { BATCH_MAX = 256 };

// The descriptors of a batch, in C memory.
struct batch {
  struct hccl_op_desc descs[BATCH_MAX];
};

int hccl_put(const struct hccl_api *api, hccl_handle comm, uint32_t peer, struct batch *b, uint32_t count,
             hccl_handle stream);
int hccl_get(const struct hccl_api *api, hccl_handle comm, uint32_t peer, struct batch *b, uint32_t count,
             hccl_handle stream);

// Queries of the library: the text of a code, or "" if there is none; the items of the configuration, or 0 if the
// library does not report them.
const char *hccl_error_string(const struct hccl_api *api, int code);
uint32_t hccl_capability(const struct hccl_api *api);

#endif
