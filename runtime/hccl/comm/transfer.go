//go:build cgo && linux

package comm

// #include "calls.h"
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/acl"
)

// Put queues a batch that writes local memory to the peer's memory, on the stream of the communicator, which must
// always be the same. There are at most Library.DescMax descriptors. The descriptors of a batch have no order; the
// batches of a stream are carried out in order. When the stream reports that the batch has ended, the bytes are in
// place; the peer is not notified.
//
// Wrong arguments are refused before anything is queued, as ErrInvalid, ErrNotReady or the like. After an error of the
// library, part of the batch may be queued: the communicator is fenced, and the memory is in use until the communicator
// is gone (M4).
func (c *Comm) Put(at acl.CurrentThread, s *acl.Stream, descs []Desc) error {
	return c.queueBatch(at, s, descs, true)
}

// Get queues a batch that reads the peer's memory into local memory. Everything else is as in Put.
func (c *Comm) Get(at acl.CurrentThread, s *acl.Stream, descs []Desc) error {
	return c.queueBatch(at, s, descs, false)
}

func (c *Comm) queueBatch(at acl.CurrentThread, s *acl.Stream, descs []Desc, put bool) error {
	if err := c.checkThread(at); err != nil {
		return err
	}
	if err := s.CheckUsable(at); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkBatch(s, descs); err != nil {
		return err
	}
	c.stream = s
	c.fillBatch(descs)
	var code C.int
	symbol := "HcclBatchGet"
	peer, count, stream := C.uint32_t(c.peer), C.uint32_t(len(descs)), C.hccl_handle(s.Handle())
	if put {
		symbol = "HcclBatchPut"
		code = C.hccl_put(c.lib.api, c.handle, peer, c.batch, count, stream)
	} else {
		code = C.hccl_get(c.lib.api, c.handle, peer, c.batch, count, stream)
	}
	if code == 0 {
		return nil
	}
	c.state = stateFenced
	return c.lib.callError(at, code, symbol, "comm=%s count=%d stream=%#x", c.name, len(descs), s.Handle())
}

// checkBatch refuses a batch that the library would refuse, or accept and corrupt memory with.
func (c *Comm) checkBatch(s *acl.Stream, descs []Desc) error {
	if err := c.checkAccepting(); err != nil {
		return err
	}
	switch {
	case c.state != statePrepared:
		return fmt.Errorf("%w: communicator %s", ErrNotReady, c.name)
	case c.stream != nil && c.stream != s:
		return fmt.Errorf("%w: communicator %s has had batches on another stream: use the same stream for all batches", ErrInvalid, c.name)
	case len(descs) == 0 || len(descs) > c.lib.descMax:
		return fmt.Errorf("%w: a batch of %d descriptors: give 1 to %d", ErrInvalid, len(descs), c.lib.descMax)
	}
	for i, d := range descs {
		if d.Bytes == 0 || d.Remote == 0 {
			return fmt.Errorf("%w: descriptor %d: %d bytes at the peer's address %#x; neither may be zero", ErrInvalid, i, d.Bytes, d.Remote)
		}
		if !slices.ContainsFunc(c.boundRegions, func(r *Region) bool { return r.memory.containsRange(d.Local, d.Bytes) }) {
			return fmt.Errorf("%w: descriptor %d: %d bytes at %#x are in no region bound to communicator %s", ErrInvalid, i,
				d.Bytes, d.Local, c.name)
		}
	}
	return nil
}

// fillBatch writes the descriptors into the array that the library reads during the call.
func (c *Comm) fillBatch(descs []Desc) {
	rows := unsafe.Slice(&c.batch.descs[0], len(descs))
	for i, d := range descs {
		rows[i] = C.struct_hccl_op_desc{
			local: C.hccl_address(d.Local), remote: C.hccl_address(d.Remote),
			count: C.uint64_t(d.Bytes), data_type: C.HCCL_UINT8,
		}
	}
}
