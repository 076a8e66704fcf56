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

// globalSequence is the newer sequence: memory is registered once for the device, then bound to communicators and
// prepared.
type globalSequence struct{}

func (globalSequence) initComm(c *Comm, at acl.CurrentThread, o CommOptions, m *C.struct_making) error {
	table := C.CString(string(o.RankTable))
	defer C.free(unsafe.Pointer(table))
	code := C.hccl_init_table(c.lib.api, table, m, &c.handle)
	return c.lib.callError(at, code, "HcclCommInitClusterInfoMemConfig", "name=%s rank=%d table=%s", c.name, c.rank, o.RankTable)
}

func (globalSequence) bindRegion(c *Comm, at acl.CurrentThread, r *Region, _ int) error {
	code := C.hccl_bind(c.lib.api, c.handle, r.handle)
	return c.lib.callError(at, code, "HcclCommBindMem", "comm=%s memory=%v", c.name, r.memory)
}

func (globalSequence) prepareComm(c *Comm, at acl.CurrentThread, seconds, _ int) error {
	code := C.hccl_prepare(c.lib.api, c.handle, C.int(seconds))
	return c.lib.callError(at, code, "HcclCommPrepare", "comm=%s seconds=%d", c.name, seconds)
}

// releaseRegions must leave no region bound: otherwise the destruction of the communicator would fail and leave a half
// destroyed object.
func (globalSequence) releaseRegions(c *Comm, at acl.CurrentThread) error {
	for len(c.boundRegions) > 0 {
		r := c.boundRegions[len(c.boundRegions)-1]
		code := C.hccl_unbind(c.lib.api, c.handle, r.handle)
		if err := c.lib.callError(at, code, "HcclCommUnbindMem", "comm=%s memory=%v", c.name, r.memory); err != nil {
			return err
		}
		c.boundRegions = c.boundRegions[:len(c.boundRegions)-1]
	}
	return nil
}

func (globalSequence) freeMemory() {}
