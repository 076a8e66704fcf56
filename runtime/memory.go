package runtime

import (
	"context"
	"os"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/device"
)

// A servedPool is the pool that planes serve: a fenced pool, or a leased pool, for example of a device.
type servedPool interface {
	ID() effects.PoolID
	Publish(pages []effects.Page)
	Grant(e *effects.Grant)
	Revoke(id effects.GrantID)
}

// memory is a node's pool, which the engine fills and planes serve.
type memory interface {
	servedPool() servedPool
	// hostBytes returns the valid bytes of a page, or nil if the page is in the memory of a device.
	hostBytes(page effects.Page) []byte
	// deviceAddress returns the address of a page for a device; 0 if the pool is memory of this process.
	deviceAddress(page effects.Page) uintptr
	// attachableFile returns the pages as a file that another process may map writable, or nil if there is no file.
	attachableFile() *os.File
	// startCopy carries out a Copy effect, and the second method requests an early end.
	startCopy(e *effects.Copy)
	cancelCopy(corr effects.Corr)
	// revokeAll withdraws every grant of peers that read by themselves, without a notification. All planes must have
	// been closed.
	revokeAll()
	// awaitCopies ends the copies and waits until ctx ends. An error means that some copies still run. The call may be
	// repeated.
	awaitCopies(ctx context.Context) error
	// close returns the memory to the system. Invariant (M3, M4): all planes must have been closed, and the copies
	// must have ended, because otherwise a peer or a copy could still access the memory. After an error close may be
	// called again.
	close(ctx context.Context) error
}

// A processPool is a pool in memory of this process that planes serve, fenced or leased.
type processPool interface {
	servedPool
	// Bytes returns the valid bytes of a page, for the page's owner according to the machine.
	Bytes(page effects.Page) []byte
	// PageRange returns the memory of count consecutive pages.
	PageRange(first, count uint32) []byte
	// Attachable returns the pages as a file that another process may map writable, or nil if the pool was not made
	// attachable.
	Attachable() *os.File
	// RevokeAll implements memory.revokeAll.
	RevokeAll()
	// Close returns the memory to the system. All planes must have been closed.
	Close() error
}

// processMemory is a pool in memory of this process.
type processMemory struct {
	pool   processPool
	copies *copier // copies to an arena at the pool's end; nil if there is no arena
}

func (m *processMemory) servedPool() servedPool { return m.pool }

func (m *processMemory) hostBytes(page effects.Page) []byte { return m.pool.Bytes(page) }

func (m *processMemory) deviceAddress(effects.Page) uintptr { return 0 }

func (m *processMemory) attachableFile() *os.File { return m.pool.Attachable() }

func (m *processMemory) startCopy(e *effects.Copy) { m.copies.startCopy(e) }

func (m *processMemory) cancelCopy(corr effects.Corr) {
	if m.copies != nil {
		m.copies.cancelCopy(corr)
	}
}

func (m *processMemory) revokeAll() { m.pool.RevokeAll() }

func (m *processMemory) awaitCopies(ctx context.Context) error {
	if m.copies == nil {
		return nil
	}
	return m.copies.close(ctx)
}

func (m *processMemory) close(context.Context) error {
	if m.pool == nil {
		return nil
	}
	return m.pool.Close()
}

// deviceMemory is a pool in the memory of a device.
type deviceMemory struct{ device.Device }

func (m deviceMemory) servedPool() servedPool                  { return m.LeasedPool() }
func (m deviceMemory) hostBytes(page effects.Page) []byte      { return m.PageBytes(page) }
func (m deviceMemory) deviceAddress(page effects.Page) uintptr { return m.PageAddress(page) }
func (m deviceMemory) attachableFile() *os.File                { return m.AttachableFile() }
func (m deviceMemory) startCopy(e *effects.Copy)               { m.StartCopy(e) }
func (m deviceMemory) cancelCopy(corr effects.Corr)            { m.CancelCopy(corr) }
func (m deviceMemory) revokeAll()                              {}             // the proof is that its planes are closed
func (m deviceMemory) awaitCopies(context.Context) error       { return nil } // Close ends its copies
func (m deviceMemory) close(ctx context.Context) error         { return m.Close(ctx) }
