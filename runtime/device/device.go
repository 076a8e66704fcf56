// Package device defines the interface between a node and the memory of an accelerator. A node without a device keeps
// pages in the memory of the node's process, where fenced planes serve the pages. With a device the pages lie in
// memory that ordinary code cannot address; leased planes serve the pages, and the node knows only the location of a
// page.
//
// Package runtime/npu implements the interface for Ascend NPUs. An embedder passes an [Opener] to runtime.WithDevice.
// The node opens the device before the planes and closes the device after the planes: all planes of a device must be
// closed before [Device.Close].
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
	// Attachable lets engines in separate processes use the pool: host memory as a file (Device.AttachableFile), the
	// device's own memory by a key (Device.ExportedPool).
	Attachable bool
	Pages      uint32
	PageBytes  uint64
}

// A Page is the place of a page in the addressing of the device: in the device's own memory, or in pinned host memory.
type Page struct {
	Address uintptr
	Bytes   uint32
}

// Env describes the pools that a node needs of the device.
type Env struct {
	// Engine is the pool that the engine fills or reads.
	Engine Pool
	// Second is a pool in the device's own memory, which planes serve beside Engine: chunks that peers share are
	// brought there (p2p_use_npu). The pages have Engine's pool id, and the numbers that follow Engine's pages. Second
	// is nil if there is no second pool.
	Second *Pool
	// SecondBuffer is the second pool's name on the wire.
	SecondBuffer effects.BufferID
	// Arena is the number of pages at the end of Engine, in host memory, to which chunks are copied from the remaining
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
	Physical int    // the device's number on the host, independent of which devices a process can see
	Offset   uint64 // bytes from the address that the key leads to, to page 0
	Bytes    uint64 // bytes in use from that address on, including Offset
}

// An Opener allocates a node's pools. The context bounds the opening only. If there is not enough memory, the error
// wraps ErrNoMemory. After any error nothing stays allocated.
type Opener func(ctx context.Context, env Env) (Device, error)

// A Device has a node's pools. Close is the only method that blocks. All methods are safe for concurrent use.
type Device interface {
	// Name returns a readable name of the device, for example "npu:0".
	Name() string
	// LeasedPool returns the served pool, with all regions that planes must register.
	LeasedPool() *plane.LeasedPool
	// PageAddress returns the address of a page of any pool, in the addressing of the device.
	PageAddress(page effects.Page) uintptr
	// PageBytes returns the valid bytes of a page in host memory, or nil if the page is in the device's memory.
	PageBytes(page effects.Page) []byte
	// AttachableFile returns the engine's pool in host memory as a file that another process may map writable, with
	// page 0 at the start. The result is nil if that was not requested, or if the pool is in the device's memory. The
	// device owns and closes the file.
	AttachableFile() *os.File
	// ExportedPool returns what engines in separate processes need to map the pool in the device's own memory: the
	// engine's pool, or else the second pool. The result is nil if that was not requested, or if the device's own
	// memory holds no pool.
	ExportedPool() *Export
	// AdmitProcess lets a process import what is exported. The process is identified by the number that the device's
	// driver uses. [Device.RemoveProcess] must be called as often as [Device.AdmitProcess], each time when the process
	// has closed the import or has ended. Until then Close fails.
	AdmitProcess(process int32) error
	RemoveProcess(process int32)
	// StartCopy copies chunks between the pools, or to the arena. Each copy is answered by one CopyDone, followed by
	// one Settled if the copy was not settled.
	StartCopy(e *effects.Copy)
	// CancelCopy asks a copy to end early. Unknown copies are ignored.
	CancelCopy(corr effects.Corr)
	// Close ends copies in flight and frees the memory. All planes must have been closed before. After an error, the
	// device may still access the memory, which therefore stays allocated.
	Close(ctx context.Context) error
}
