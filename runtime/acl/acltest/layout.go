//go:build cgo && linux

package acltest

// #cgo CFLAGS: -I${SRCDIR}/..
// #include "abi.h"
import "C"

import "unsafe"

// ABILayout returns the layout of the ABI's structs that the binding assumes, by the vendor's names: sizes, and offsets
// of fields. Tests compare it with what the software NPU was compiled from.
func ABILayout() map[string]uintptr {
	var location C.struct_acl_mem_location
	var attributes C.struct_acl_ptr_attributes
	var batch C.struct_acl_memcpy_batch_attr
	return map[string]uintptr{
		"aclrtMemLocation":            unsafe.Sizeof(location),
		"aclrtMemLocation.id":         unsafe.Offsetof(location.id),
		"aclrtMemLocation.type":       unsafe.Offsetof(location._type),
		"aclrtPtrAttributes":          unsafe.Sizeof(attributes),
		"aclrtPtrAttributes.location": unsafe.Offsetof(attributes.location),
		"aclrtPtrAttributes.pageSize": unsafe.Offsetof(attributes.page_size),
		"aclrtPtrAttributes.rsv":      unsafe.Offsetof(attributes.reserved),
		"aclrtMemcpyBatchAttr":        unsafe.Sizeof(batch),
		"aclrtMemcpyBatchAttr.dstLoc": unsafe.Offsetof(batch.dst),
		"aclrtMemcpyBatchAttr.srcLoc": unsafe.Offsetof(batch.src),
		"aclrtMemcpyBatchAttr.rsv":    unsafe.Offsetof(batch.reserved),
	}
}
