// The part of AscendCL's C ABI that the binding uses, declared here so that no vendor header is needed to build. All
// values are the values of 64-bit Linux, on arm64 and on amd64, and are asserted in abi.c.
#ifndef KVFERRY_ACL_ABI_H
#define KVFERRY_ACL_ABI_H

#include <stddef.h>
#include <stdint.h>

// Contexts, streams and events are opaque. The binding keeps them as integers, so that Go never takes a handle for a Go
// pointer; the same holds for device addresses.
typedef uintptr_t acl_handle;
typedef uintptr_t acl_address;

enum acl_memcpy_kind {
  ACL_HOST_TO_HOST = 0,
  ACL_HOST_TO_DEVICE = 1,
  ACL_DEVICE_TO_HOST = 2,
  ACL_DEVICE_TO_DEVICE = 3,
};

enum acl_malloc_policy {
  ACL_HUGE_FIRST = 0,
  ACL_HUGE_ONLY = 1,
  ACL_NORMAL_ONLY = 2,
};

// Complete is 1 here, but 0 in the older aclrtQueryEvent, which the binding never calls.
enum acl_event_recorded { ACL_EVENT_NOT_READY = 0, ACL_EVENT_COMPLETE = 1 };

enum acl_stream_status { ACL_STREAM_COMPLETE = 0, ACL_STREAM_NOT_READY = 1 };

enum acl_stream_flag {
  ACL_STREAM_FAST_LAUNCH = 0x1,
  ACL_STREAM_FAST_SYNC = 0x2, // never used: a thread that waits for a stream with this flag spins
};

enum acl_failure_mode { ACL_CONTINUE_ON_FAILURE = 0, ACL_STOP_ON_FAILURE = 1 };

enum acl_event_flag {
  ACL_EVENT_SYNC = 0x1,
  ACL_EVENT_CAPTURE_PROGRESS = 0x2,
  ACL_EVENT_TIME_LINE = 0x8,
};

enum acl_mem_attr { ACL_MEM_DDR = 0, ACL_MEM_HBM = 1 };

enum acl_location {
  ACL_LOCATION_HOST = 0,
  ACL_LOCATION_DEVICE = 1,
  ACL_LOCATION_UNREGISTERED = 2,
  ACL_LOCATION_MANAGED = 3,
  ACL_LOCATION_HOST_NUMA = 4,
};

enum acl_host_register { ACL_HOST_REGISTER_MAPPED = 0 };

enum acl_host_register_v2 { ACL_HOST_V2_MAPPED = 0x2, ACL_HOST_V2_PINNED = 0x10000000 };

enum acl_device_attr {
  ACL_DEVICE_TOTAL_MEMORY = 301,
  ACL_DEVICE_SUPER_POD_DEVICE = 403,
  ACL_DEVICE_SUPER_POD_SERVER = 404,
  ACL_DEVICE_SUPER_POD = 405,
};

enum {
  ACL_IPC_KEY_SIZE = 65, // of a key, with the final zero
  ACL_IPC_EXPORT_LISTED = 0, // only named processes may import
  ACL_IPC_IMPORT_DEFAULT = 0,
};

struct acl_mem_location {
  uint32_t id; // means nothing where type is host
  int type;    // enum acl_location
};

struct acl_ptr_attributes {
  struct acl_mem_location location;
  uint32_t page_size;
  uint32_t reserved[4];
};

struct acl_memcpy_batch_attr {
  struct acl_mem_location dst;
  struct acl_mem_location src;
  uint8_t reserved[16];
};

// Every function that the binding calls: X(symbol, return type, parameters). A library without a required function is
// refused; without an optional function the binding uses a fallback, or reports the missing function. aclFinalize is
// left out on purpose, because it would end AscendCL for the engine in the same process as well.
#define ACL_REQUIRED(X)                                                                                         \
  X(aclInit, int, (const char *config))                                                                         \
  X(aclGetRecentErrMsg, const char *, (void))                                                                   \
  X(aclrtGetDeviceCount, int, (uint32_t * count))                                                               \
  X(aclrtSetDevice, int, (int32_t device))                                                                      \
  X(aclrtResetDevice, int, (int32_t device))                                                                    \
  X(aclrtCreateContext, int, (acl_handle * context, int32_t device))                                            \
  X(aclrtDestroyContext, int, (acl_handle context))                                                             \
  X(aclrtSetCurrentContext, int, (acl_handle context))                                                          \
  X(aclrtGetCurrentContext, int, (acl_handle * context))                                                        \
  X(aclrtCreateStreamWithConfig, int, (acl_handle * stream, uint32_t priority, uint32_t flags))                 \
  X(aclrtDestroyStream, int, (acl_handle stream))                                                               \
  X(aclrtSynchronizeStreamWithTimeout, int, (acl_handle stream, int32_t milliseconds))                          \
  X(aclrtCreateEvent, int, (acl_handle * event))                                                                \
  X(aclrtDestroyEvent, int, (acl_handle event))                                                                 \
  X(aclrtRecordEvent, int, (acl_handle event, acl_handle stream))                                               \
  X(aclrtQueryEventStatus, int, (acl_handle event, int *status))                                                \
  X(aclrtStreamWaitEvent, int, (acl_handle stream, acl_handle event))                                           \
  X(aclrtMalloc, int, (acl_address * address, size_t size, int policy))                                         \
  X(aclrtFree, int, (acl_address address))                                                                      \
  X(aclrtMallocHost, int, (acl_address * address, size_t size))                                                 \
  X(aclrtFreeHost, int, (acl_address address))                                                                  \
  X(aclrtMemcpy, int, (acl_address dst, size_t dst_max, acl_address src, size_t count, int kind))               \
  X(aclrtMemcpyAsync, int,                                                                                      \
    (acl_address dst, size_t dst_max, acl_address src, size_t count, int kind, acl_handle stream))              \
  X(aclrtMemsetAsync, int, (acl_address address, size_t max, int32_t value, size_t count, acl_handle stream))   \
  X(aclrtGetMemInfo, int, (int attribute, size_t *available, size_t *total))

#define ACL_OPTIONAL(X)                                                                                         \
  X(aclFinalizeReference, int, (uint64_t * left))                                                               \
  X(aclrtGetVersion, int, (int32_t * major, int32_t *minor, int32_t *patch))                                    \
  X(aclsysGetVersionStr, int, (const char *package, char *version))                                             \
  X(aclrtGetSocName, const char *, (void))                                                                      \
  X(aclrtGetDeviceInfo, int, (uint32_t device, int attribute, int64_t *value))                                  \
  X(aclrtGetPhyDevIdByLogicDevId, int, (const int32_t device, int32_t *const physical))                         \
  X(aclrtDeviceCanAccessPeer, int, (int32_t * can, int32_t device, int32_t peer))                               \
  X(aclrtDestroyStreamForce, int, (acl_handle stream))                                                          \
  X(aclrtStreamQuery, int, (acl_handle stream, int *status))                                                    \
  X(aclrtStreamAbort, int, (acl_handle stream))                                                                 \
  X(aclrtSetStreamFailureMode, int, (acl_handle stream, uint64_t mode))                                         \
  X(aclrtCreateEventExWithFlag, int, (acl_handle * event, uint32_t flags))                                      \
  X(aclrtResetEvent, int, (acl_handle event, acl_handle stream))                                                \
  X(aclrtSynchronizeEventWithTimeout, int, (acl_handle event, int32_t milliseconds))                            \
  X(aclrtEventElapsedTime, int, (float *milliseconds, acl_handle start, acl_handle end))                        \
  X(aclrtMemcpyBatchAsync, int,                                                                                 \
    (acl_address * dsts, size_t *dst_maxs, acl_address *srcs, size_t *sizes, size_t count,                      \
     struct acl_memcpy_batch_attr *attrs, size_t *attr_indexes, size_t attr_count, size_t *failed,              \
     acl_handle stream))                                                                                        \
  X(aclrtHostRegister, int, (acl_address address, uint64_t size, int type, acl_address *mapped))                \
  X(aclrtHostRegisterV2, int, (acl_address address, uint64_t size, uint32_t flags))                             \
  X(aclrtHostGetDevicePointer, int, (acl_address address, acl_address *mapped, uint32_t flags))                 \
  X(aclrtHostUnregister, int, (acl_address address))                                                            \
  X(aclrtPointerGetAttributes, int, (acl_address address, struct acl_ptr_attributes *attributes))               \
  X(aclrtMemGetAddressRange, int, (acl_address address, acl_address *base, size_t *size))                       \
  X(aclrtIpcMemGetExportKey, int, (acl_address address, size_t size, char *key, size_t key_size, uint64_t flags)) \
  X(aclrtIpcMemSetImportPid, int, (const char *key, int32_t *processes, size_t count))                          \
  X(aclrtIpcMemImportByKey, int, (acl_address * address, const char *key, uint64_t flags))                      \
  X(aclrtIpcMemClose, int, (const char *key))                                                                   \
  X(aclrtDeviceGetBareTgid, int, (int32_t * process))

// The functions of a library; the pointer to a missing optional function is NULL.
struct acl_api {
#define ACL_POINTER(symbol, result, parameters) result(*symbol) parameters;
  ACL_REQUIRED(ACL_POINTER)
  ACL_OPTIONAL(ACL_POINTER)
#undef ACL_POINTER
};

#endif
