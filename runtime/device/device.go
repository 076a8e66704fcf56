// Package device defines the interface between a node and the memory of an accelerator. A node without a device keeps
// its pages in its own process's memory and serves them by fenced planes. With a device the pages lie in memory that
// ordinary code cannot address; leased planes serve them, and the node knows of a page only where it is.
//
// Package runtime/npu implements the interface for Ascend NPUs. An embedder passes an [Opener] to runtime.WithDevice.
// The node opens the device before its planes and closes it after them: all planes of a device must be closed before
// [Device.Close].
package device

import (
	"context"
	"log/slog"
	"os"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A Pool describes consecutive pages of equal size.
type Pool struct {
	ID   effects.PoolID
	Host bool // in pinned host memory; otherwise in the device's own memory
	// Attachable lets engines in other processes use the pool: host memory as a file (Device.Attachable), the
	// device's own memory by a key (Device.Exported).
	Attachable bool
	Pages      uint32
	PageBytes  uint64
}

// A Page is the place of a page as the device addresses it: in the device's own memory, or in pinned host memory.
type Page struct {
	Address uintptr
	Bytes   uint32
}

// Env is what a node needs of its device.
type Env struct {
	// Engine is the pool that the engine fills or reads.
	Engine Pool
	// Second is a pool in the device's own memory, which planes serve beside Engine: chunks that peers share are
	// brought there (p2p_use_npu). Its pages have Engine's pool id, and the numbers that follow Engine's pages. It is
	// nil if there is none.
	Second *Pool
	// SecondBuffer is the second pool's name on the wire.
	SecondBuffer effects.BufferID
	// Arena is the number of pages at the end of Engine, in host memory, to which chunks are copied from the other
	// pages (use_host_staging).
	Arena uint32
	// Buffer is the served pool's name on the wire.
	Buffer effects.BufferID
	// Sink receives CopyDone and Settled of the device, and Revoked of the served pool.
	Sink plane.Sink
	Log  *slog.Logger
}

// An Export lets an engine in another process map a pool in the device's own memory.
type Export struct {
	Key      string // for the device's library, in a process that was admitted
	Physical int    // the device's number on its host, independent of which devices a process can see
	Offset   uint64 // bytes from the address that the key leads to, to page 0
	Bytes    uint64 // bytes in use from that address on, including Offset
}

// An Opener allocates a node's pools. The context bounds the opening only. If there is not enough memory, the error
// wraps ErrNoMemory. After any error nothing stays allocated.
type Opener func(ctx context.Context, env Env) (Device, error)

// A Device has a node's pools. Close is the only method that blocks. All methods are safe for concurrent use.
type Device interface {
	// Name returns a readable name of the device, such as "npu:0".
	Name() string
	// Leased returns the served pool, with all regions that planes must register.
	Leased() *plane.LeasedPool
	// Address returns the address of a page of any pool, as the device sees it.
	Address(page effects.Page) uintptr
	// Bytes returns the valid bytes of a page in host memory, or nil if the page is in the device's memory.
	Bytes(page effects.Page) []byte
	// Attachable returns the engine's pool in host memory as a file that another process may map writable, with page
	// 0 at its start. It returns nil if that was not requested, or if the pool is in the device's memory. The device
	// owns the file and closes it.
	Attachable() *os.File
	// Exported returns what engines in other processes need to map the pool in the device's own memory: the engine's
	// pool, or else the second one. It returns nil if that was not requested, or if there is no such pool.
	Exported() *Export
	// Admit lets a process import what is exported. The process is named by the number that the device's driver has
	// for it. Depart must be called as often as Admit, each time when the process has closed what it imported or has
	// ended. Until then Close fails.
	Admit(process int32) error
	Depart(process int32)
	// Copy copies chunks between the pools, or to the arena. It is answered by one CopyDone, followed by one Settled
	// if the copy was not settled.
	Copy(e *effects.Copy)
	// Cancel asks a copy to end early. Unknown copies are ignored.
	Cancel(corr effects.Corr)
	// Close ends copies in flight and frees the memory. All planes must have been closed before. If it returns an
	// error, the device may still access the memory, which therefore stays allocated.
	Close(ctx context.Context) error
}
