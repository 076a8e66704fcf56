package runtime

import (
	"context"
	"os"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/device"
)

// A servedPool is the pool that planes serve: fenced, or a device's under leases.
type servedPool interface {
	ID() effects.PoolID
	Publish(pages []effects.Page)
	Grant(e *effects.Grant)
	Revoke(id effects.GrantID)
}

// memory is a node's pool, which the engine fills and planes serve.
type memory interface {
	served() servedPool
	// host returns the valid bytes of a page; nil says that it is in the memory of a device.
	host(page effects.Page) []byte
	// address is where a page begins, for a device.
	address(page effects.Page) uintptr
	// attachable is the pages as a file that another process may map writable; nil: there is none.
	attachable() *os.File
	// copy carries out a Copy, and cancel hastens its end.
	copy(e *effects.Copy)
	cancel(corr effects.Corr)
	// retract takes back every grant to peers that read by themselves, without a word to anybody: all planes must
	// have been closed.
	retract()
	// idle ends copies and waits for them until ctx ends. An error says that some go on. It may be called again.
	idle(ctx context.Context) error
	// close gives the memory back. All planes must have been closed, and idle without an error. After an error it may be
	// called again.
	close(ctx context.Context) error
}

// A processPool is a pool in memory of this process, that planes serve: fenced, or under leases.
type processPool interface {
	servedPool
	// Bytes returns the valid bytes of a page, for who owns it by the machine's word.
	Bytes(page effects.Page) []byte
	// PageRange returns the memory of pages that lie one behind the other.
	PageRange(first, count uint32) []byte
	// Attachable is its pages as a file that another process may map writable; nil: it was not made so.
	Attachable() *os.File
	// RevokeAll is memory's.
	RevokeAll()
	// Close gives the memory back. All planes must have been closed.
	Close() error
}

// processMemory is memory of this process.
type processMemory struct {
	pool   processPool
	copies *copies // to an arena at the pool's end; nil: it has none
}

func (m *processMemory) served() servedPool { return m.pool }

func (m *processMemory) host(page effects.Page) []byte { return m.pool.Bytes(page) }

func (m *processMemory) address(effects.Page) uintptr { return 0 }

func (m *processMemory) attachable() *os.File { return m.pool.Attachable() }

func (m *processMemory) copy(e *effects.Copy) { m.copies.start(e) }

func (m *processMemory) cancel(corr effects.Corr) {
	if m.copies != nil {
		m.copies.cancel(corr)
	}
}

func (m *processMemory) retract() { m.pool.RevokeAll() }

func (m *processMemory) idle(ctx context.Context) error {
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

// deviceMemory is memory of a device.
type deviceMemory struct{ device.Device }

func (m deviceMemory) served() servedPool                { return m.Leased() }
func (m deviceMemory) host(page effects.Page) []byte     { return m.Bytes(page) }
func (m deviceMemory) address(page effects.Page) uintptr { return m.Address(page) }
func (m deviceMemory) attachable() *os.File              { return m.Attachable() }
func (m deviceMemory) copy(e *effects.Copy)              { m.Copy(e) }
func (m deviceMemory) cancel(corr effects.Corr)          { m.Cancel(corr) }
func (m deviceMemory) retract()                          {}             // That its planes are closed is the proof.
func (m deviceMemory) idle(context.Context) error        { return nil } // Its Close ends them.
func (m deviceMemory) close(ctx context.Context) error   { return m.Close(ctx) }
