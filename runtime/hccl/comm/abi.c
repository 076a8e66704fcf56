//go:build cgo && linux

// The numbers of the ABI, asserted at compile time: a wrong declaration does not compile.
#include "abi.h"

#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), "size of " #type)
#define ALIGN(type, bytes) _Static_assert(_Alignof(struct type) == (bytes), "alignment of " #type)
#define AT(type, field, bytes) _Static_assert(offsetof(struct type, field) == (bytes), #type "." #field)
#define IS(name, value) _Static_assert((name) == (value), #name)

_Static_assert(sizeof(int) == 4, "an HcclResult and every enum is 32 bits wide");
_Static_assert(sizeof(size_t) == 8, "sizes are 64 bits wide");
_Static_assert(sizeof(hccl_handle) == sizeof(void *), "a handle is a pointer");
_Static_assert(sizeof(hccl_address) == sizeof(void *), "an address is a pointer");

SIZE(hccl_mem, 24);
ALIGN(hccl_mem, 8);
AT(hccl_mem, type, 0);
AT(hccl_mem, address, 8);
AT(hccl_mem, size, 16);

// The vendor's is aligned to 1 or to 4; to 8 is both.
SIZE(hccl_mem_desc, 512);
ALIGN(hccl_mem_desc, 8);
AT(hccl_mem_desc, local_rank, 0);
AT(hccl_mem_desc, remote_rank, 4);
AT(hccl_mem_desc, desc, 8);

SIZE(hccl_mem_descs, 16);
ALIGN(hccl_mem_descs, 8);
AT(hccl_mem_descs, array, 0);
AT(hccl_mem_descs, length, 8);

SIZE(hccl_op_desc, 32);
ALIGN(hccl_op_desc, 8);
AT(hccl_op_desc, local, 0);
AT(hccl_op_desc, remote, 8);
AT(hccl_op_desc, count, 16);
AT(hccl_op_desc, data_type, 24);

SIZE(hccl_prepare_config, 32);
ALIGN(hccl_prepare_config, 8);
AT(hccl_prepare_config, topology, 0);
AT(hccl_prepare_config, reserved, 8);

SIZE(hccl_root_info, 4108);
ALIGN(hccl_root_info, 1);
AT(hccl_root_info, internal, 0);

ALIGN(hccl_config, 8);
AT(hccl_config, size, 0);
AT(hccl_config, magic, 8);
AT(hccl_config, version, 12);
AT(hccl_config, reserved, 16);
AT(hccl_config, buffer_mb, 24);
AT(hccl_config, deterministic, 28);
AT(hccl_config, name, 32);
AT(hccl_config, udi, 160);
AT(hccl_config, expansion_mode, 288);
AT(hccl_config, traffic_class, 292);
AT(hccl_config, service_level, 296);
_Static_assert(offsetof(struct hccl_config, service_level) + sizeof(uint32_t) == HCCL_CONFIG_BYTES,
               "version 5 ends with the service level");
_Static_assert(sizeof(struct hccl_config) <= HCCL_CONFIG_ROOM, "the configuration has room");

IS(HCCL_CONFIG_BYTES, 300);
IS(HCCL_CONFIG_VERSION, 5);
IS(HCCL_NAME_BYTES, 128);
IS(HCCL_MEM_DEVICE, 0);
IS(HCCL_MEM_HOST, 1);
IS(HCCL_UINT8, 7);
IS(HCCL_FULLMESH, 0);
