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

// exchangeSequence is the older sequence: memory is registered with each communicator, the ends exchange descriptors of
// the memory, and each end enables access to the peer's memory.
type exchangeSequence struct {
	regions   *C.struct_regions
	exchanged bool
	peerDescs int    // number of descriptors that the peer sent
	requested int    // for how many of these descriptors access was requested
	enabled   []bool // whether access was granted, for each of these descriptors
}

func (x *exchangeSequence) initComm(c *Comm, at acl.CurrentThread, o CommOptions, m *C.struct_making) error {
	var err error
	if o.RootInfo != nil {
		err = x.initFromRootInfo(c, at, o, m)
	} else {
		err = x.initFromFile(c, at, o, m)
	}
	if err == nil {
		x.regions = (*C.struct_regions)(C.calloc(1, C.sizeof_struct_regions))
	}
	return err
}

func (x *exchangeSequence) initFromRootInfo(c *Comm, at acl.CurrentThread, o CommOptions, m *C.struct_making) error {
	root := (*C.struct_hccl_root_info)(C.CBytes(o.RootInfo))
	defer C.free(unsafe.Pointer(root))
	symbol := "HcclCommInitRootInfoConfig"
	if !c.lib.HasSymbol(symbol) {
		symbol = "HcclCommInitRootInfo"
	}
	code := C.hccl_init_root(c.lib.api, root, m, &c.handle)
	return c.lib.callError(at, code, symbol, "ranks=2 name=%s rank=%d", c.name, c.rank)
}

// initFromFile writes the table to a file, because these libraries accept nothing else. The library reads the file
// during the call.
func (x *exchangeSequence) initFromFile(c *Comm, at acl.CurrentThread, o CommOptions, m *C.struct_making) error {
	symbol := "HcclCommInitClusterInfoConfig"
	if !c.lib.HasSymbol(symbol) {
		symbol = "HcclCommInitClusterInfo"
	}
	file, err := os.CreateTemp("", "kvferry-ranks-*.json")
	if err != nil {
		return fmt.Errorf("hccl: %w: the rank table: %w", acl.Config, err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // a file that stays is no failure of the communicator
	_, err = file.Write(o.RankTable)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("hccl: %w: the rank table: %w", acl.Config, err)
	}
	path := C.CString(file.Name())
	defer C.free(unsafe.Pointer(path))
	code := C.hccl_init_file(c.lib.api, path, m, &c.handle)
	return c.lib.callError(at, code, symbol, "name=%s rank=%d table=%s", c.name, c.rank, o.RankTable)
}

func (x *exchangeSequence) bindRegion(c *Comm, at acl.CurrentThread, r *Region, index int) error {
	m := r.memory
	code := C.hccl_register_with(c.lib.api, c.handle, C.uint32_t(c.peer), m.memoryType(), C.hccl_address(m.Address),
		C.uint64_t(m.Size), x.regions, C.uint32_t(index))
	return c.lib.callError(at, ignoreReferenced(code), "HcclRegisterMem", "comm=%s memory=%v", c.name, m)
}

// ignoreReferenced treats the code for "already referenced" as success.
func ignoreReferenced(code C.int) C.int {
	if Code(code) == codeAgain {
		return 0
	}
	return code
}

func (x *exchangeSequence) prepareComm(c *Comm, at acl.CurrentThread, seconds, peerRegions int) error {
	if !x.exchanged {
		var count C.uint32_t
		code := C.hccl_exchange(c.lib.api, c.handle, C.uint32_t(c.peer), x.regions, C.uint32_t(len(c.boundRegions)), C.int(seconds),
			&count)
		err := c.lib.callError(at, code, "HcclExchangeMemDesc", "comm=%s count=%d seconds=%d", c.name, len(c.boundRegions), seconds)
		if err != nil {
			return err
		}
		x.exchanged, x.peerDescs = true, int(count)
	}
	if x.peerDescs != peerRegions {
		return fmt.Errorf("%w: the peer of communicator %s sent %d regions; want %d, the number that both ends agreed on", ErrInvalid, c.name,
			x.peerDescs, peerRegions)
	}
	for ; x.requested < x.peerDescs; x.requested++ {
		code := C.hccl_enable(c.lib.api, c.handle, x.regions, C.uint32_t(x.requested))
		err := c.lib.callError(at, code, "HcclEnableMemAccess", "comm=%s index=%d", c.name, x.requested)
		// The library refuses host memory over HCCS; the newer sequence ignores host memory silently.
		if err != nil && !errors.Is(err, acl.Unsupported) {
			return err
		}
		x.enabled = append(x.enabled, err == nil)
	}
	return nil
}

// releaseRegions takes back the access to the peer's memory, and then to the memory that the peer may reach. Errors of
// the library are ignored here: the destruction of the communicator, which follows, ends all access or reports a
// failure.
func (x *exchangeSequence) releaseRegions(c *Comm, _ acl.CurrentThread) error {
	for i, enabled := range x.enabled {
		if enabled {
			C.hccl_disable(c.lib.api, c.handle, x.regions, C.uint32_t(i))
		}
	}
	x.enabled = nil
	for len(c.boundRegions) > 0 {
		C.hccl_deregister_with(c.lib.api, c.handle, x.regions, C.uint32_t(len(c.boundRegions)-1))
		c.boundRegions = c.boundRegions[:len(c.boundRegions)-1]
	}
	return nil
}

func (x *exchangeSequence) freeMemory() {
	C.free(unsafe.Pointer(x.regions))
	x.regions = nil
}

// RootInfo makes the root info of a communicator without a rank table. Rank 0 calls this method on the thread that
// makes the communicator, and sends the result to rank 1. Only libraries of the older sequence use root info.
func (l *Library) RootInfo(at acl.CurrentThread) ([]byte, error) {
	if err := at.CheckThread(); err != nil {
		return nil, err
	}
	if l.info.Sequence == Global {
		return nil, fmt.Errorf("%w: root info is for libraries of the older sequence; make a rank table", ErrInvalid)
	}
	root := (*C.struct_hccl_root_info)(C.calloc(1, C.sizeof_struct_hccl_root_info))
	defer C.free(unsafe.Pointer(root))
	if err := l.callError(at, C.hccl_make_root(l.api, root), "HcclGetRootInfo", ""); err != nil {
		return nil, err
	}
	return C.GoBytes(unsafe.Pointer(root), C.sizeof_struct_hccl_root_info), nil
}
