// The part of HCCL's C ABI that the binding uses, the one-sided half, declared here so that no vendor header is needed
// to build. All values are the values of 64-bit Linux, on arm64 and on amd64, and are asserted in abi.c.
#ifndef KVFERRY_HCCL_ABI_H
#define KVFERRY_HCCL_ABI_H

#include <stddef.h>
#include <stdint.h>

// The binding keeps communicators, registrations, streams and addresses as integers, so that Go never takes a handle
// for a Go pointer.
typedef uintptr_t hccl_handle;
typedef uintptr_t hccl_address;

enum hccl_mem_type { HCCL_MEM_DEVICE = 0, HCCL_MEM_HOST = 1 };

enum hccl_data_type { HCCL_UINT8 = 7 };

enum hccl_topology { HCCL_FULLMESH = 0 };

struct hccl_mem {
  int type; // enum hccl_mem_type
  hccl_address address;
  uint64_t size;
};

// The description of an end's memory in the older sequence. The header declares it as plain bytes; the library itself
// looks for the ranks in front.
struct hccl_mem_desc {
  _Alignas(8) uint32_t local_rank;
  uint32_t remote_rank;
  char desc[504];
};

struct hccl_mem_descs {
  struct hccl_mem_desc *array;
  uint32_t length;
};

struct hccl_op_desc {
  hccl_address local;
  hccl_address remote;
  uint64_t count; // of elements
  int data_type;  // enum hccl_data_type
};

struct hccl_prepare_config {
  int topology; // enum hccl_topology
  uint64_t reserved[3];
};

struct hccl_root_info {
  char internal[4108];
};

enum { HCCL_NAME_BYTES = 128 };

// The configuration up to version 5, which has everything that is needed. Later versions only add fields at the end.
struct hccl_config {
  size_t size;
  uint32_t magic;
  uint32_t version;
  uint64_t reserved;
  uint32_t buffer_mb;
  uint32_t deterministic;
  char name[HCCL_NAME_BYTES];
  char udi[128];
  uint32_t expansion_mode;
  uint32_t traffic_class;
  uint32_t service_level;
};

enum {
  HCCL_CONFIG_BYTES = 300, // of version 5: without the padding at the end of the struct
  HCCL_CONFIG_VERSION = 5,
  HCCL_CONFIG_ROOM = 4096, // zeroed; a later library may read beyond this version's fields
};
#define HCCL_CONFIG_MAGIC UINT32_C(0xf0f0f0f0)
#define HCCL_NOT_SET UINT32_C(0xffffffff) // use the environment's

// Every function that the binding calls: X(symbol, return type, parameters). A library must have all of HCCL_ALWAYS,
// and all functions of a sequence.
#define HCCL_ALWAYS(X)                                                                                          \
  X(HcclCommDestroy, int, (hccl_handle comm))                                                                   \
  X(HcclBatchPut, int,                                                                                          \
    (hccl_handle comm, uint32_t rank, struct hccl_op_desc *descs, uint32_t count, hccl_handle stream))          \
  X(HcclBatchGet, int,                                                                                          \
    (hccl_handle comm, uint32_t rank, struct hccl_op_desc *descs, uint32_t count, hccl_handle stream))

// Sequence A: global memory, bound to communicators and prepared.
#define HCCL_GLOBAL(X)                                                                                          \
  X(HcclCommInitClusterInfoMemConfig, int,                                                                      \
    (const char *table, uint32_t rank, struct hccl_config *config, hccl_handle *comm))                          \
  X(HcclRegisterGlobalMem, int, (const struct hccl_mem *memory, hccl_handle *handle))                           \
  X(HcclDeregisterGlobalMem, int, (hccl_handle handle))                                                         \
  X(HcclCommBindMem, int, (hccl_handle comm, hccl_handle handle))                                               \
  X(HcclCommUnbindMem, int, (hccl_handle comm, hccl_handle handle))                                             \
  X(HcclCommPrepare, int, (hccl_handle comm, const struct hccl_prepare_config *config, const int seconds))

// Sequence B, the older sequence: register with a communicator, exchange descriptors, enable access.
#define HCCL_EXCHANGE(X)                                                                                        \
  X(HcclRegisterMem, int,                                                                                       \
    (hccl_handle comm, uint32_t rank, int type, hccl_address address, uint64_t size, struct hccl_mem_desc *desc)) \
  X(HcclDeregisterMem, int, (hccl_handle comm, struct hccl_mem_desc *desc))                                     \
  X(HcclExchangeMemDesc, int,                                                                                   \
    (hccl_handle comm, uint32_t rank, struct hccl_mem_descs *local, int seconds, struct hccl_mem_descs *remote, \
     uint32_t *count))                                                                                          \
  X(HcclEnableMemAccess, int, (hccl_handle comm, struct hccl_mem_desc *remote, struct hccl_mem *memory))        \
  X(HcclDisableMemAccess, int, (hccl_handle comm, struct hccl_mem_desc *remote))

#define HCCL_OPTIONAL(X)                                                                                        \
  X(HcclGetRootInfo, int, (struct hccl_root_info * root))                                                       \
  X(HcclCommInitRootInfo, int,                                                                                  \
    (uint32_t ranks, const struct hccl_root_info *root, uint32_t rank, hccl_handle *comm))                      \
  X(HcclCommInitRootInfoConfig, int,                                                                            \
    (uint32_t ranks, const struct hccl_root_info *root, uint32_t rank, const struct hccl_config *config,        \
     hccl_handle *comm))                                                                                        \
  X(HcclCommInitClusterInfo, int, (const char *path, uint32_t rank, hccl_handle *comm))                         \
  X(HcclCommInitClusterInfoConfig, int,                                                                         \
    (const char *path, uint32_t rank, struct hccl_config *config, hccl_handle *comm))                           \
  X(HcclGetErrorString, const char *, (int code))                                                               \
  X(HcclGetCommAsyncError, int, (hccl_handle comm, int *code))                                                  \
  X(HcclGetCommConfigCapability, uint32_t, (void))

// The functions of a library; the pointer to a missing function is NULL.
struct hccl_api {
#define HCCL_POINTER(symbol, result, parameters) result(*symbol) parameters;
  HCCL_ALWAYS(HCCL_POINTER)
  HCCL_GLOBAL(HCCL_POINTER)
  HCCL_EXCHANGE(HCCL_POINTER)
  HCCL_OPTIONAL(HCCL_POINTER)
#undef HCCL_POINTER
};

#endif
