//go:build cgo && linux

package acl

/*
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"errors"
	"fmt"
)

// BatchMax is the largest number of copies in one call of the library. The library names no maximum; this number is
// used in practice. Longer lists are divided.
const BatchMax = C.BATCH_MAX

// CopyAll puts many copies of one direction into the stream, in as few calls as the library allows. The device may
// carry out the copies in any order. Arguments are checked first: after an error of the binding nothing was queued.
// After an *Error some copies may have been queued, so all ranges stay in use until the stream is aborted or a later
// completion has arrived.
func (s *Stream) CopyAll(t *Thread, copies []Copy) error {
	if err := s.CheckUsable(t); err != nil {
		return err
	}
	if len(copies) == 0 {
		return nil
	}
	kind, err := commonDirection(t, copies)
	if err != nil {
		return err
	}
	for first := 0; first < len(copies); first += BatchMax {
		part := copies[first:min(first+BatchMax, len(copies))]
		if err := s.copyPart(t, part, kind); err != nil {
			return fmt.Errorf("copies %d to %d of %d: %w", first, first+len(part)-1, len(copies), err)
		}
	}
	return nil
}

// commonDirection returns the common direction of all copies.
func commonDirection(t *Thread, copies []Copy) (C.int, error) {
	var kind C.int
	for i, c := range copies {
		next, err := c.checkedDirection(t)
		if err != nil {
			return 0, fmt.Errorf("copy %d of %d: %w", i, len(copies), err)
		}
		if i == 0 {
			kind = next
		} else if next != kind {
			return 0, fmt.Errorf("%w: the direction of copy %d of %d differs from the first copy", ErrInvalid, i, len(copies))
		}
	}
	return kind, nil
}

// copyPart makes one batched call, or one call per copy if the library or the chip has no batched copies. Copies within
// the device are also queued separately, because batches do not support them.
func (s *Stream) copyPart(t *Thread, copies []Copy, kind C.int) error {
	if kind != C.ACL_DEVICE_TO_DEVICE && !t.ctx.noBatch {
		err := s.copyBatch(t, copies, kind)
		if !errors.Is(err, Unsupported) {
			return err
		}
		t.ctx.noBatch = true
	}
	for i, c := range copies {
		if err := s.queueCopy(t, c, kind); err != nil {
			return fmt.Errorf("copy %d: %w", i, err)
		}
	}
	return nil
}

func (s *Stream) copyBatch(t *Thread, copies []Copy, kind C.int) error {
	n := t.fillBatch(copies)
	if n == 0 {
		return nil
	}
	host := C.struct_acl_mem_location{_type: C.ACL_LOCATION_HOST}
	device := C.struct_acl_mem_location{_type: C.ACL_LOCATION_DEVICE, id: C.uint32_t(t.ctx.device)}
	dst, src := device, host
	if kind == C.ACL_DEVICE_TO_HOST {
		dst, src = host, device
	}
	var failed C.size_t
	code := C.call_copy_batch(t.call, t.batch, C.size_t(n), dst, src, s.handle, &failed)
	if code == 0 {
		return nil
	}
	return t.callError(code, "aclrtMemcpyBatchAsync", "count=%d kind=%d stream=%#x failed=%d", n, kind, s.handle,
		int64(failed))
}

// fillBatch writes the arguments of the copies to C memory, without empty copies, and returns their number.
func (t *Thread) fillBatch(copies []Copy) int {
	if t.batch == nil {
		t.batch = (*C.struct_batch)(C.malloc(C.sizeof_struct_batch))
	}
	n := 0
	for _, c := range copies {
		if c.Src.Size != 0 {
			t.batch.dsts[n], t.batch.srcs[n], t.batch.sizes[n] = c.Dst.startAddress(), c.Src.startAddress(), C.size_t(c.Src.Size)
			n++
		}
	}
	return n
}
