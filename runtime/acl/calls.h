// A function for each function of the library, because Go cannot call through a C pointer. The first argument is the
// record of the calling thread; the result is the library's code, or a code of the binding.
#ifndef KVFERRY_ACL_CALLS_H
#define KVFERRY_ACL_CALLS_H

#include "call.h"

// The process: no context is needed.
int call_init(struct call *c);
int call_finalize_reference(struct call *c, uint64_t *left);
int call_version(struct call *c, int32_t *major, int32_t *minor, int32_t *patch);
int call_package_version(struct call *c, const char *package, char version[128]);
int call_soc_name(struct call *c, char *name, size_t name_bytes);
int call_device_count(struct call *c, uint32_t *count);
int call_device_info(struct call *c, uint32_t device, int attribute, int64_t *value);
int call_physical_device(struct call *c, int32_t device, int32_t *physical);
int call_can_access_peer(struct call *c, int32_t device, int32_t peer, int32_t *can);

// Devices and contexts.
int call_set_device(struct call *c, int32_t device);
int call_reset_device(struct call *c, int32_t device);
int call_create_context(struct call *c, int32_t device, acl_handle *context);
int call_destroy_context(struct call *c, acl_handle context);
int call_set_context(struct call *c, acl_handle context);
int call_get_context(struct call *c, acl_handle *context);

// Streams.
int call_create_stream(struct call *c, uint32_t flags, acl_handle *stream);
int call_destroy_stream(struct call *c, acl_handle stream);
int call_destroy_stream_force(struct call *c, acl_handle stream);
int call_synchronize_stream(struct call *c, acl_handle stream, int32_t milliseconds);
int call_query_stream(struct call *c, acl_handle stream, int *status);
int call_abort_stream(struct call *c, acl_handle stream);
int call_set_failure_mode(struct call *c, acl_handle stream, uint64_t mode);

// Events.
int call_create_event(struct call *c, acl_handle *event);
int call_create_event_ex(struct call *c, uint32_t flags, acl_handle *event);
int call_destroy_event(struct call *c, acl_handle event);
int call_record_event(struct call *c, acl_handle event, acl_handle stream);
int call_reset_event(struct call *c, acl_handle event, acl_handle stream);
int call_query_event(struct call *c, acl_handle event, int *status);
int call_wait_event(struct call *c, acl_handle stream, acl_handle event);
int call_synchronize_event(struct call *c, acl_handle event, int32_t milliseconds);
int call_elapsed(struct call *c, acl_handle start, acl_handle end, float *milliseconds);

// Memory.
int call_malloc(struct call *c, size_t size, int policy, acl_address *address);
int call_free(struct call *c, acl_address address);
int call_malloc_host(struct call *c, size_t size, acl_address *address);
int call_free_host(struct call *c, acl_address address);
int call_host_register(struct call *c, acl_address address, uint64_t size, acl_address *mapped);
int call_host_register_v2(struct call *c, acl_address address, uint64_t size);
int call_host_mapped(struct call *c, acl_address address, acl_address *mapped);
int call_host_unregister(struct call *c, acl_address address);
int call_mem_info(struct call *c, int attribute, size_t *available, size_t *total);
int call_attributes(struct call *c, acl_address address, struct acl_ptr_attributes *attributes);
int call_address_range(struct call *c, acl_address address, acl_address *base, size_t *size);
int call_export(struct call *c, acl_address address, size_t size, char key[ACL_IPC_KEY_SIZE]);
int call_admit(struct call *c, const char *key, int32_t process);
int call_import(struct call *c, const char *key, acl_address *address);
int call_close_ipc(struct call *c, const char *key);
int call_process(struct call *c, int32_t *process);

// call_pointer gives Go the library's host memory as memory that is not Go's.
void *call_pointer(acl_address address);

// Copies.
int call_upload(struct call *c, acl_address dst, const void *src, size_t size);
int call_download(struct call *c, void *dst, acl_address src, size_t size);
int call_copy_async(struct call *c, acl_address dst, acl_address src, size_t size, int kind, acl_handle stream);
int call_set_async(struct call *c, acl_address address, int32_t value, size_t size, acl_handle stream);

enum { BATCH_MAX = 4096 };

// The arguments of a batched copy, in C memory.
struct batch {
  acl_address dsts[BATCH_MAX];
  acl_address srcs[BATCH_MAX];
  size_t sizes[BATCH_MAX];
};

// failed is the index of the element to blame, or SIZE_MAX.
int call_copy_batch(struct call *c, struct batch *b, size_t count, struct acl_mem_location dst,
                    struct acl_mem_location src, acl_handle stream, size_t *failed);

#endif
