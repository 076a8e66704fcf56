package runtime

import (
	"context"
	"errors"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/plane"
)

// leasedMemory is a pool in memory of this process that leased planes serve.
type leasedMemory struct {
	*plane.LeasedPool
	*hostMemory
}

// newLeasedMemory allocates the memory of a pool, stops when ctx ends, and makes the leased pool that records the
// grants. The fields of c mean the same as for a fenced pool. withFile gives the memory a file, for planes whose library
// runs in another process.
func newLeasedMemory(ctx context.Context, c plane.PoolConfig, withFile bool) (leasedMemory, error) {
	m, err := newHostMemory(ctx, c, withFile)
	if err != nil {
		return leasedMemory{}, err
	}
	pool, err := plane.NewLeasedPool(plane.LeasedPoolConfig{
		ID: c.ID, Buffer: c.Buffer, Pages: c.Pages, PageBytes: c.PageBytes, Sink: c.Sink,
		Region: plane.Region{Host: true, Base: uintptr(unsafe.Pointer(unsafe.SliceData(m.mem))),
			Bytes: uint64(c.Pages) * c.PageBytes, File: m.file},
	})
	if err != nil {
		return leasedMemory{}, errors.Join(err, m.Close())
	}
	return leasedMemory{pool, m}, nil
}

// RevokeAll does nothing: the proof that no peer accesses the pages is that the planes have been closed (M4).
func (leasedMemory) RevokeAll() {}

// Close implements processPool.
func (m leasedMemory) Close() error { return m.hostMemory.Close() }
