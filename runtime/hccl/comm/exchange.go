//go:build cgo && linux

package comm

/*
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/acl"
)

// exchange is the older sequence: memory is registered with each communicator, the ends exchange descriptors of the
// memory, and each end enables access to the peer's memory.
type exchange struct {
	regions   *C.struct_regions
	exchanged bool
	remote    int    // number of descriptors that the peer sent
	asked     int    // for how many of these descriptors access was requested
	enabled   []bool // whether access was granted, for each of these descriptors
}

func (x *exchange) make(c *Comm, at acl.Current, o CommOptions, m *C.struct_making) error {
	var err error
	if o.RootInfo != nil {
		err = x.fromRoot(c, at, o, m)
	} else {
		err = x.fromFile(c, at, o, m)
	}
	if err == nil {
		x.regions = (*C.struct_regions)(C.calloc(1, C.sizeof_struct_regions))
	}
	return err
}

func (x *exchange) fromRoot(c *Comm, at acl.Current, o CommOptions, m *C.struct_making) error {
	root := (*C.struct_hccl_root_info)(C.CBytes(o.RootInfo))
	defer C.free(unsafe.Pointer(root))
	symbol := "HcclCommInitRootInfoConfig"
	if !c.lib.Has(symbol) {
		symbol = "HcclCommInitRootInfo"
	}
	code := C.hccl_init_root(c.lib.api, root, m, &c.handle)
	return c.lib.answer(at, code, symbol, "ranks=2 name=%s rank=%d", c.name, c.rank)
}

// fromFile writes the table to a file, because these libraries accept nothing else. The library reads the file during
// the call.
func (x *exchange) fromFile(c *Comm, at acl.Current, o CommOptions, m *C.struct_making) error {
	symbol := "HcclCommInitClusterInfoConfig"
	if !c.lib.Has(symbol) {
		symbol = "HcclCommInitClusterInfo"
	}
	file, err := os.CreateTemp("", "kvferry-ranks-*.json")
	if err != nil {
		return fmt.Errorf("hccl: %w: the rank table: %w", acl.Config, err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // a file that stays is no failure of the communicator
	_, err = file.Write(o.Table)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("hccl: %w: the rank table: %w", acl.Config, err)
	}
	path := C.CString(file.Name())
	defer C.free(unsafe.Pointer(path))
	code := C.hccl_init_file(c.lib.api, path, m, &c.handle)
	return c.lib.answer(at, code, symbol, "name=%s rank=%d table=%s", c.name, c.rank, o.Table)
}

func (x *exchange) bind(c *Comm, at acl.Current, r *Region, index int) error {
	m := r.memory
	code := C.hccl_register_with(c.lib.api, c.handle, C.uint32_t(c.peer), m.kind(), C.hccl_address(m.Address),
		C.uint64_t(m.Size), x.regions, C.uint32_t(index))
	return c.lib.answer(at, referenced(code), "HcclRegisterMem", "comm=%s memory=%v", c.name, m)
}

// referenced treats the code for "already referenced" as success.
func referenced(code C.int) C.int {
	if Code(code) == again {
		return 0
	}
	return code
}

func (x *exchange) prepare(c *Comm, at acl.Current, seconds, peerRegions int) error {
	if !x.exchanged {
		var count C.uint32_t
		code := C.hccl_exchange(c.lib.api, c.handle, C.uint32_t(c.peer), x.regions, C.uint32_t(len(c.bound)), C.int(seconds),
			&count)
		err := c.lib.answer(at, code, "HcclExchangeMemDesc", "comm=%s count=%d seconds=%d", c.name, len(c.bound), seconds)
		if err != nil {
			return err
		}
		x.exchanged, x.remote = true, int(count)
	}
	if x.remote != peerRegions {
		return fmt.Errorf("%w: the peer of communicator %s told of %d regions, and %d were agreed on", ErrInvalid, c.name,
			x.remote, peerRegions)
	}
	for ; x.asked < x.remote; x.asked++ {
		code := C.hccl_enable(c.lib.api, c.handle, x.regions, C.uint32_t(x.asked))
		err := c.lib.answer(at, code, "HcclEnableMemAccess", "comm=%s index=%d", c.name, x.asked)
		// The library refuses host memory over HCCS; the newer sequence ignores host memory silently.
		if err != nil && !errors.Is(err, acl.Unsupported) {
			return err
		}
		x.enabled = append(x.enabled, err == nil)
	}
	return nil
}

// release takes back the access to the peer's memory, and then to the memory that the peer may reach. Errors of the
// library are ignored here: the destruction of the communicator, which follows, ends all access or reports a failure.
func (x *exchange) release(c *Comm, _ acl.Current) error {
	for i, enabled := range x.enabled {
		if enabled {
			C.hccl_disable(c.lib.api, c.handle, x.regions, C.uint32_t(i))
		}
	}
	x.enabled = nil
	for len(c.bound) > 0 {
		C.hccl_deregister_with(c.lib.api, c.handle, x.regions, C.uint32_t(len(c.bound)-1))
		c.bound = c.bound[:len(c.bound)-1]
	}
	return nil
}

func (x *exchange) free() {
	C.free(unsafe.Pointer(x.regions))
	x.regions = nil
}

// RootInfo makes the root info of a communicator without a rank table. Rank 0 calls this method on the thread that
// makes the communicator, and sends the result to rank 1. Only libraries of the older sequence use root info.
func (l *Library) RootInfo(at acl.Current) ([]byte, error) {
	if err := at.Here(); err != nil {
		return nil, err
	}
	if l.info.Sequence == Global {
		return nil, fmt.Errorf("%w: root info is for libraries of the older sequence; make a rank table", ErrInvalid)
	}
	root := (*C.struct_hccl_root_info)(C.calloc(1, C.sizeof_struct_hccl_root_info))
	defer C.free(unsafe.Pointer(root))
	if err := l.answer(at, C.hccl_make_root(l.api, root), "HcclGetRootInfo", ""); err != nil {
		return nil, err
	}
	return C.GoBytes(unsafe.Pointer(root), C.sizeof_struct_hccl_root_info), nil
}
