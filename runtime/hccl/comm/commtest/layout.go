//go:build cgo && linux

// Package commtest reports the layout of C structs that the binding of HCCL assumes, for tests that compare it with the
// software NPU. Only tests import it.
package commtest

/*
#cgo CFLAGS: -std=c11 -O2 -Wall -Wextra -Werror -I${SRCDIR}/..
#include "abi.h"
*/
import "C"

import "unsafe"

// ABILayout returns sizes of structs and offsets of fields, by the vendor's names. HcclCommConfig has the fields of
// version 5 and no size, because the software NPU's version is the newest.
func ABILayout() map[string]uintptr {
	var memory C.struct_hccl_mem
	var desc C.struct_hccl_mem_desc
	var descs C.struct_hccl_mem_descs
	var op C.struct_hccl_op_desc
	var prepare C.struct_hccl_prepare_config
	var root C.struct_hccl_root_info
	var config C.struct_hccl_config
	reserved := unsafe.Offsetof(prepare.reserved)
	return map[string]uintptr{
		"HcclMem":                             unsafe.Sizeof(memory),
		"HcclMem.type":                        unsafe.Offsetof(memory._type),
		"HcclMem.addr":                        unsafe.Offsetof(memory.address),
		"HcclMem.size":                        unsafe.Offsetof(memory.size),
		"HcclMemDesc":                         unsafe.Sizeof(desc),
		"HcclMemDesc.localRank":               unsafe.Offsetof(desc.local_rank),
		"HcclMemDesc.remoteRank":              unsafe.Offsetof(desc.remote_rank),
		"HcclMemDesc.desc":                    unsafe.Offsetof(desc.desc),
		"HcclMemDescs":                        unsafe.Sizeof(descs),
		"HcclMemDescs.array":                  unsafe.Offsetof(descs.array),
		"HcclMemDescs.arrayLength":            unsafe.Offsetof(descs.length),
		"HcclOneSideOpDesc":                   unsafe.Sizeof(op),
		"HcclOneSideOpDesc.localAddr":         unsafe.Offsetof(op.local),
		"HcclOneSideOpDesc.remoteAddr":        unsafe.Offsetof(op.remote),
		"HcclOneSideOpDesc.count":             unsafe.Offsetof(op.count),
		"HcclOneSideOpDesc.dataType":          unsafe.Offsetof(op.data_type),
		"HcclPrepareConfig":                   unsafe.Sizeof(prepare),
		"HcclPrepareConfig.topoType":          unsafe.Offsetof(prepare.topology),
		"HcclPrepareConfig.rsvd0":             reserved,
		"HcclPrepareConfig.rsvd1":             reserved + unsafe.Sizeof(prepare.reserved[0]),
		"HcclPrepareConfig.rsvd2":             reserved + 2*unsafe.Sizeof(prepare.reserved[0]),
		"HcclRootInfo":                        unsafe.Sizeof(root),
		"HcclRootInfo.internal":               unsafe.Offsetof(root.internal),
		"HcclCommConfig.configSize":           unsafe.Offsetof(config.size),
		"HcclCommConfig.magic":                unsafe.Offsetof(config.magic),
		"HcclCommConfig.version":              unsafe.Offsetof(config.version),
		"HcclCommConfig.reserved":             unsafe.Offsetof(config.reserved),
		"HcclCommConfig.hcclBufferSize":       unsafe.Offsetof(config.buffer_mb),
		"HcclCommConfig.hcclDeterministic":    unsafe.Offsetof(config.deterministic),
		"HcclCommConfig.hcclCommName":         unsafe.Offsetof(config.name),
		"HcclCommConfig.hcclUdi":              unsafe.Offsetof(config.udi),
		"HcclCommConfig.hcclOpExpansionMode":  unsafe.Offsetof(config.expansion_mode),
		"HcclCommConfig.hcclRdmaTrafficClass": unsafe.Offsetof(config.traffic_class),
		"HcclCommConfig.hcclRdmaServiceLevel": unsafe.Offsetof(config.service_level),
	}
}
