//go:build cgo && linux

package comm

/*
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"unsafe"

	"github.com/kvferry/kvferry/runtime/acl"
)

// global is the newer sequence: memory is registered once for the device, then bound to communicators and prepared.
type global struct{}

func (global) make(c *Comm, at acl.Current, o CommOptions, m *C.struct_making) error {
	table := C.CString(string(o.Table))
	defer C.free(unsafe.Pointer(table))
	code := C.hccl_init_table(c.lib.api, table, m, &c.handle)
	return c.lib.answer(at, code, "HcclCommInitClusterInfoMemConfig", "name=%s rank=%d table=%s", c.name, c.rank, o.Table)
}

func (global) bind(c *Comm, at acl.Current, r *Region, _ int) error {
	code := C.hccl_bind(c.lib.api, c.handle, r.handle)
	return c.lib.answer(at, code, "HcclCommBindMem", "comm=%s memory=%v", c.name, r.memory)
}

func (global) prepare(c *Comm, at acl.Current, seconds, _ int) error {
	code := C.hccl_prepare(c.lib.api, c.handle, C.int(seconds))
	return c.lib.answer(at, code, "HcclCommPrepare", "comm=%s seconds=%d", c.name, seconds)
}

// release must leave no region bound: otherwise the destruction of the communicator would fail and leave a half
// destroyed object.
func (global) release(c *Comm, at acl.Current) error {
	for len(c.bound) > 0 {
		r := c.bound[len(c.bound)-1]
		code := C.hccl_unbind(c.lib.api, c.handle, r.handle)
		if err := c.lib.answer(at, code, "HcclCommUnbindMem", "comm=%s memory=%v", c.name, r.memory); err != nil {
			return err
		}
		c.bound = c.bound[:len(c.bound)-1]
	}
	return nil
}

func (global) free() {}
