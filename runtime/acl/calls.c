//go:build cgo && linux

#include "calls.h"

#include <stdio.h>

int call_init(struct call *c) { CALL(c, aclInit, NULL); }

int call_finalize_reference(struct call *c, uint64_t *left) { CALL(c, aclFinalizeReference, left); }

int call_version(struct call *c, int32_t *major, int32_t *minor, int32_t *patch) {
  CALL(c, aclrtGetVersion, major, minor, patch);
}

int call_package_version(struct call *c, const char *package, char version[128]) {
  CALL(c, aclsysGetVersionStr, package, version);
}

int call_soc_name(struct call *c, char *name, size_t name_bytes) {
  name[0] = '\0';
  if (c->api->aclrtGetSocName == NULL) return CALL_NO_SYMBOL;
  const char *text = c->api->aclrtGetSocName();
  if (text != NULL) snprintf(name, name_bytes, "%s", text);
  return 0;
}

int call_device_count(struct call *c, uint32_t *count) { CALL(c, aclrtGetDeviceCount, count); }

int call_device_info(struct call *c, uint32_t device, int attribute, int64_t *value) {
  CALL(c, aclrtGetDeviceInfo, device, attribute, value);
}

int call_physical_device(struct call *c, int32_t device, int32_t *physical) {
  CALL(c, aclrtGetPhyDevIdByLogicDevId, device, physical);
}

int call_can_access_peer(struct call *c, int32_t device, int32_t peer, int32_t *can) {
  CALL(c, aclrtDeviceCanAccessPeer, can, device, peer);
}

int call_set_device(struct call *c, int32_t device) { CALL(c, aclrtSetDevice, device); }

int call_reset_device(struct call *c, int32_t device) { CALL(c, aclrtResetDevice, device); }

int call_create_context(struct call *c, int32_t device, acl_handle *context) {
  CALL(c, aclrtCreateContext, context, device);
}

int call_destroy_context(struct call *c, acl_handle context) { CALL(c, aclrtDestroyContext, context); }

int call_set_context(struct call *c, acl_handle context) { CALL(c, aclrtSetCurrentContext, context); }

int call_get_context(struct call *c, acl_handle *context) { CALL(c, aclrtGetCurrentContext, context); }

int call_create_stream(struct call *c, uint32_t flags, acl_handle *stream) {
  CALL(c, aclrtCreateStreamWithConfig, stream, 0, flags);
}

int call_destroy_stream(struct call *c, acl_handle stream) { CALL(c, aclrtDestroyStream, stream); }

int call_destroy_stream_force(struct call *c, acl_handle stream) { CALL(c, aclrtDestroyStreamForce, stream); }

int call_synchronize_stream(struct call *c, acl_handle stream, int32_t milliseconds) {
  CALL(c, aclrtSynchronizeStreamWithTimeout, stream, milliseconds);
}

int call_query_stream(struct call *c, acl_handle stream, int *status) {
  CALL(c, aclrtStreamQuery, stream, status);
}

int call_abort_stream(struct call *c, acl_handle stream) { CALL(c, aclrtStreamAbort, stream); }

int call_set_failure_mode(struct call *c, acl_handle stream, uint64_t mode) {
  CALL(c, aclrtSetStreamFailureMode, stream, mode);
}

int call_create_event(struct call *c, acl_handle *event) { CALL(c, aclrtCreateEvent, event); }

int call_create_event_ex(struct call *c, uint32_t flags, acl_handle *event) {
  CALL(c, aclrtCreateEventExWithFlag, event, flags);
}

int call_destroy_event(struct call *c, acl_handle event) { CALL(c, aclrtDestroyEvent, event); }

int call_record_event(struct call *c, acl_handle event, acl_handle stream) {
  CALL(c, aclrtRecordEvent, event, stream);
}

int call_reset_event(struct call *c, acl_handle event, acl_handle stream) {
  CALL(c, aclrtResetEvent, event, stream);
}

int call_query_event(struct call *c, acl_handle event, int *status) { CALL(c, aclrtQueryEventStatus, event, status); }

int call_wait_event(struct call *c, acl_handle stream, acl_handle event) {
  CALL(c, aclrtStreamWaitEvent, stream, event);
}

int call_synchronize_event(struct call *c, acl_handle event, int32_t milliseconds) {
  CALL(c, aclrtSynchronizeEventWithTimeout, event, milliseconds);
}

int call_elapsed(struct call *c, acl_handle start, acl_handle end, float *milliseconds) {
  CALL(c, aclrtEventElapsedTime, milliseconds, start, end);
}

int call_malloc(struct call *c, size_t size, int policy, acl_address *address) {
  CALL(c, aclrtMalloc, address, size, policy);
}

int call_free(struct call *c, acl_address address) { CALL(c, aclrtFree, address); }

int call_malloc_host(struct call *c, size_t size, acl_address *address) { CALL(c, aclrtMallocHost, address, size); }

int call_free_host(struct call *c, acl_address address) { CALL(c, aclrtFreeHost, address); }

int call_host_register(struct call *c, acl_address address, uint64_t size, acl_address *mapped) {
  CALL(c, aclrtHostRegister, address, size, ACL_HOST_REGISTER_MAPPED, mapped);
}

int call_host_register_v2(struct call *c, acl_address address, uint64_t size) {
  CALL(c, aclrtHostRegisterV2, address, size, ACL_HOST_V2_MAPPED | ACL_HOST_V2_PINNED);
}

int call_host_mapped(struct call *c, acl_address address, acl_address *mapped) {
  CALL(c, aclrtHostGetDevicePointer, address, mapped, 0);
}

int call_host_unregister(struct call *c, acl_address address) { CALL(c, aclrtHostUnregister, address); }

int call_mem_info(struct call *c, int attribute, size_t *available, size_t *total) {
  CALL(c, aclrtGetMemInfo, attribute, available, total);
}

int call_attributes(struct call *c, acl_address address, struct acl_ptr_attributes *attributes) {
  CALL(c, aclrtPointerGetAttributes, address, attributes);
}

int call_address_range(struct call *c, acl_address address, acl_address *base, size_t *size) {
  CALL(c, aclrtMemGetAddressRange, address, base, size);
}

int call_export(struct call *c, acl_address address, size_t size, char key[ACL_IPC_KEY_SIZE]) {
  CALL(c, aclrtIpcMemGetExportKey, address, size, key, ACL_IPC_KEY_SIZE, ACL_IPC_EXPORT_LISTED);
}

int call_admit(struct call *c, const char *key, int32_t process) {
  CALL(c, aclrtIpcMemSetImportPid, key, &process, 1);
}

int call_import(struct call *c, const char *key, acl_address *address) {
  CALL(c, aclrtIpcMemImportByKey, address, key, ACL_IPC_IMPORT_DEFAULT);
}

int call_close_ipc(struct call *c, const char *key) { CALL(c, aclrtIpcMemClose, key); }

int call_process(struct call *c, int32_t *process) { CALL(c, aclrtDeviceGetBareTgid, process); }

void *call_pointer(acl_address address) { return (void *)address; }

int call_upload(struct call *c, acl_address dst, const void *src, size_t size) {
  CALL(c, aclrtMemcpy, dst, size, (acl_address)src, size, ACL_HOST_TO_DEVICE);
}

int call_download(struct call *c, void *dst, acl_address src, size_t size) {
  CALL(c, aclrtMemcpy, (acl_address)dst, size, src, size, ACL_DEVICE_TO_HOST);
}

int call_copy_async(struct call *c, acl_address dst, acl_address src, size_t size, int kind, acl_handle stream) {
  CALL(c, aclrtMemcpyAsync, dst, size, src, size, kind, stream);
}

int call_set_async(struct call *c, acl_address address, int32_t value, size_t size, acl_handle stream) {
  CALL(c, aclrtMemsetAsync, address, size, value, size, stream);
}

int call_copy_batch(struct call *c, struct batch *b, size_t count, struct acl_mem_location dst,
                    struct acl_mem_location src, acl_handle stream, size_t *failed) {
  struct acl_memcpy_batch_attr attr = {.dst = dst, .src = src};
  size_t first = 0; // the attribute holds from the first element on
  CALL(c, aclrtMemcpyBatchAsync, b->dsts, b->sizes, b->srcs, b->sizes, count, &attr, &first, 1, failed, stream);
}
