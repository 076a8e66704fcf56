//go:build cgo && linux

// The numbers of the ABI, asserted at compile time: a wrong declaration does not compile.
#include "abi.h"

#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), "size of " #type)
#define AT(type, field, bytes) _Static_assert(offsetof(struct type, field) == (bytes), #type "." #field)
#define IS(name, value) _Static_assert((name) == (value), #name)

_Static_assert(sizeof(int) == 4, "an aclError and every enum is 32 bits wide");
_Static_assert(sizeof(enum acl_location) == 4, "an enum is 32 bits wide");
_Static_assert(sizeof(size_t) == 8, "sizes are 64 bits wide");
_Static_assert(sizeof(acl_handle) == sizeof(void *), "a handle is a pointer");
_Static_assert(sizeof(acl_address) == sizeof(void *), "an address is a pointer");

SIZE(acl_mem_location, 8);
AT(acl_mem_location, id, 0);
AT(acl_mem_location, type, 4);
_Static_assert(_Alignof(struct acl_mem_location) == 4, "alignment of acl_mem_location");

SIZE(acl_ptr_attributes, 28);
AT(acl_ptr_attributes, location, 0);
AT(acl_ptr_attributes, page_size, 8);
AT(acl_ptr_attributes, reserved, 12);
_Static_assert(_Alignof(struct acl_ptr_attributes) == 4, "alignment of acl_ptr_attributes");

SIZE(acl_memcpy_batch_attr, 32);
AT(acl_memcpy_batch_attr, dst, 0);
AT(acl_memcpy_batch_attr, src, 8);
AT(acl_memcpy_batch_attr, reserved, 16);
_Static_assert(_Alignof(struct acl_memcpy_batch_attr) == 4, "alignment of acl_memcpy_batch_attr");

IS(ACL_HOST_TO_HOST, 0);
IS(ACL_HOST_TO_DEVICE, 1);
IS(ACL_DEVICE_TO_HOST, 2);
IS(ACL_DEVICE_TO_DEVICE, 3);
IS(ACL_HUGE_FIRST, 0);
IS(ACL_HUGE_ONLY, 1);
IS(ACL_NORMAL_ONLY, 2);
IS(ACL_EVENT_NOT_READY, 0);
IS(ACL_EVENT_COMPLETE, 1);
IS(ACL_STREAM_COMPLETE, 0);
IS(ACL_STREAM_NOT_READY, 1);
IS(ACL_STREAM_FAST_LAUNCH, 0x1);
IS(ACL_STREAM_FAST_SYNC, 0x2);
IS(ACL_CONTINUE_ON_FAILURE, 0);
IS(ACL_STOP_ON_FAILURE, 1);
IS(ACL_EVENT_SYNC, 0x1);
IS(ACL_EVENT_CAPTURE_PROGRESS, 0x2);
IS(ACL_EVENT_TIME_LINE, 0x8);
IS(ACL_MEM_DDR, 0);
IS(ACL_MEM_HBM, 1);
IS(ACL_LOCATION_HOST, 0);
IS(ACL_LOCATION_DEVICE, 1);
IS(ACL_LOCATION_UNREGISTERED, 2);
IS(ACL_LOCATION_MANAGED, 3);
IS(ACL_LOCATION_HOST_NUMA, 4);
IS(ACL_HOST_REGISTER_MAPPED, 0);
IS(ACL_HOST_V2_MAPPED, 0x2);
IS(ACL_HOST_V2_PINNED, 0x10000000);
IS(ACL_DEVICE_TOTAL_MEMORY, 301);
IS(ACL_DEVICE_SUPER_POD_DEVICE, 403);
IS(ACL_DEVICE_SUPER_POD_SERVER, 404);
IS(ACL_DEVICE_SUPER_POD, 405);
