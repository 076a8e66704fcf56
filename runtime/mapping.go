package runtime

import (
	"os"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/device"
)

// A Mapping is the memory of the node's page handles, to be given to an engine in another process of this host, which
// maps it shared and writable. Page i begins Offset + i × PageBytes behind the file's start; Pages.At says which pages
// a handle has. What lies behind the last one is not the engine's.
//
// Only who holds the handle of a page may touch its bytes, in whichever process: to store into them after a Reserve,
// and only to read them after a Get. What the engine stored must be done before the node is told to put it, and its
// reads before the handle is released; a message between the two processes is enough for both. Pages that were released
// are the node's again, although the engine still has them mapped.
//
// Where the pool is the engine's own blocks, block b of region r, as Node.Block counts them, begins at page
// Geometry().Page(r, b, 0).
//
// In memory of a device there is no file, but for a second pool beside one that is a file. The engine's process imports
// the memory by Export.Key, on the same device, once Admit has let it; its first page is Export.Offset behind the address
// that it gets. Each Admit wants one Depart, when the process has closed what it imported or has ended: the node keeps its
// memory until then. What a process was doing on the device when it was killed may go on for a moment, so pages that it
// held are given back DepartureMargin later.
type Mapping struct {
	File      *os.File // the node's, which closes it: do not. What was sent of it to another process stays there
	Offset    uint64   // bytes
	PageBytes uint64   // from one page to the next
	Pages     uint32
	Export    *device.Export // of memory of a device; nil: File is all there is
	// DevicePages are those of a second pool, in memory of a device (p2p_use_npu), numbered from DeviceFrom on: page
	// DeviceFrom + i begins Export.Offset + i × PageBytes behind the address that an import gets. 0: File or Export is all
	// there is.
	DeviceFrom, DevicePages uint32
}

// DepartureMargin is how long after the end of a process its last work on a device may go on in pages of the node: what
// was running ends with the process's context, which the driver takes down as the process ends. It is what data planes
// allow a dead peer whose NPU reaches ours (docs/npu.md).
const DepartureMargin = 100 * time.Millisecond

// Admit lets an engine's process import the node's device memory. process is its number as the device's driver knows it
// (acl.Thread.Process there). It refuses as Unsupported where Mapping has no Export.
func (n *Node) Admit(process int32) error {
	const op = "admit"
	m, ok := n.world.memory.(deviceMemory)
	if !ok || m.Exported() == nil {
		e := wrong(op, "the pool", "memory that is mapped", "memory of a device", "map Mapping.File")
		e.Code = effects.Unsupported
		return e
	}
	if err := n.tickets.isOver(op); err != nil {
		return err
	}
	if err := m.Admit(process); err != nil {
		return &Error{Op: op, Code: effects.Faulted, Cause: err}
	}
	return nil
}

// Depart says that a process that was admitted uses the memory no more. Process 0 is nobody.
func (n *Node) Depart(process int32) {
	if m, ok := n.world.memory.(deviceMemory); ok && process != 0 {
		m.Depart(process)
	}
}

// Mapping is the memory of the node's pages for another process. It refuses as Unsupported if the node was opened
// without WithAttachable, or its pages are memory of a device; and once Close was called. An engine that ends takes
// nothing with it: the memory stays the node's, and the handles that were for it are its opener's to release.
func (n *Node) Mapping() (Mapping, error) {
	const op = "mapping"
	if err := n.tickets.isOver(op); err != nil {
		return Mapping{}, err
	}
	if err := n.openToEngines(op); err != nil {
		return Mapping{}, err
	}
	return Mapping{File: n.world.memory.attachable(), PageBytes: n.pageBytes, Pages: n.pages, Export: n.exported(),
		DeviceFrom: n.deviceFrom, DevicePages: n.devicePages}, nil
}

// exported is how engines of other processes get memory of a device; nil: they do not.
func (n *Node) exported() *device.Export {
	if m, ok := n.world.memory.(deviceMemory); ok {
		return m.Exported()
	}
	return nil
}

// openToEngines refuses what engines of other processes cannot reach.
func (n *Node) openToEngines(op string) error {
	if n.world.memory.attachable() != nil || n.exported() != nil {
		return nil
	}
	e := wrong(op, "WithAttachable", "not there", "given", "open the node with it")
	e.Code = effects.Unsupported
	return e
}
