// Package device is the interface between a node and the memory of an accelerator. A node without one keeps its pages
// in memory of its own process and serves them by fenced planes; with one its pages lie where ordinary code cannot
// follow an address, leased planes serve them, and what the node knows of a page is where it is.
package device

import (
	"context"
	"log/slog"
	"os"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A Pool is pages of equal size, one behind the other.
type Pool struct {
	ID   effects.PoolID
	Host bool // in pinned memory of the host; else the device's own
	// Attachable wants it open to engines of other processes: host memory as a file (Device.Attachable), the device's own
	// by a key (Device.Exported).
	Attachable bool
	Pages      uint32
	PageBytes  uint64
}

// A Page is where the bytes of a page are for the device that the pool belongs to: an address of its own, or one of
// pinned host memory.
type Page struct {
	Address uintptr
	Bytes   uint32
}

// Env is what a node wants of its device.
type Env struct {
	// Engine is the pool that the engine fills or reads.
	Engine Pool
	// Second is one in the device's own memory, which planes serve beside Engine: what peers share comes there
	// (p2p_use_npu). Its pages have the id of Engine's, and the numbers that follow. nil: there is none.
	Second *Pool
	// SecondBuffer is its name on the wire.
	SecondBuffer effects.BufferID
	// Arena is how many pages at the end of Engine, in host memory, chunks are copied to from the others
	// (use_host_staging).
	Arena uint32
	// Buffer is the served pool's name on the wire.
	Buffer effects.BufferID
	// Sink takes CopyDone and Settled of the device, and Revoked of the served pool.
	Sink plane.Sink
	Log  *slog.Logger
}

// An Export is how an engine in another process gets a pool in the device's own memory.
type Export struct {
	Key      string // for the device's library, in a process that was admitted
	Physical int    // the device's number on its host, whichever devices a process sees
	Offset   uint64 // bytes from where the key leads to page 0
	Bytes    uint64 // that are used from where the key leads, Offset included
}

// An Opener allocates a node's pools. The context bounds the opening only. An error that wraps ErrNoMemory says that
// the memory is not there; with any error nothing stays allocated.
type Opener func(ctx context.Context, env Env) (Device, error)

// A Device has a node's pools. Nothing blocks but Close. All methods are safe for concurrent use.
type Device interface {
	// Name is the device's, for people: "npu:0".
	Name() string
	// Leased is the served pool, with all regions that planes register.
	Leased() *plane.Leased
	// Address is where a page of any pool begins, as the device sees it.
	Address(page effects.Page) uintptr
	// Bytes are the valid bytes of a page in host memory; nil says that it is in the device's.
	Bytes(page effects.Page) []byte
	// Attachable is the engine's pool in host memory as a file that another process may map writable, page 0 at its
	// start; nil: it was not asked for, or the pool is the device's own memory. The file is the device's, which closes it.
	Attachable() *os.File
	// Exported is how engines of other processes get the pool in the device's own memory, the engine's or else the second
	// one; nil: it was not asked for, or there is none.
	Exported() *Export
	// Admit lets a process import what is exported. Its number is the one that the device's driver has for it. As often as
	// it was admitted Depart says that it has closed what it imported, or has ended: until then Close fails.
	Admit(process int32) error
	Depart(process int32)
	// Copy copies chunks between the pools, or to the arena; one CopyDone answers, and one Settled if that was unsettled.
	Copy(e *effects.Copy)
	// Cancel hastens the end of a copy; unknown ones are ignored.
	Cancel(corr effects.Corr)
	// Close ends copies that are under way and gives the memory back. All planes must have been closed. With an error
	// something of the device may still be at work, and the memory stays.
	Close(ctx context.Context) error
}
