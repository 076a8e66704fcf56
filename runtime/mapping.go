package runtime

import (
	"os"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/device"
)

// A Mapping describes the memory of the node's pages for an engine in another process of the same host, which maps the
// memory shared and writable. Page i begins Offset + i × PageBytes bytes after the start of the file; Pages.MappedPage
// reports which pages a handle has. The engine must not use the file beyond the last page.
//
// Only the holder of a page's handle may access the page's bytes, in whichever process: the holder may store into the
// page after a Reserve, and may only read the page after a Get. The engine's stores must be complete before the node
// is called to put the page, and the engine's reads must be complete before the handle is released; a message between
// the two processes is sufficient for both. Pages that were released belong to the node again, although the engine
// still has them mapped.
//
// Where the pool is the engine's own blocks, block b of region r (in the numbering of Node.BlockBytes) begins at page
// Geometry().Page(r, b, 0).
//
// If the pages are memory of a device, there is no file, unless a second pool has a file. The engine's process imports
// the device memory by Export.Key, on the same device, after Node.AdmitProcess has allowed the process; the first page
// is Export.Offset bytes after the address that the import returns. Each Node.AdmitProcess requires one
// Node.RemoveProcess, when the process has closed the import or has ended: the node keeps the memory until then. Work
// that a killed process had started on the device may continue for a moment, so pages that the process held are
// returned ProcessEndMargin later.
type Mapping struct {
	// The node owns and closes the file; the caller must not close the file. A copy of the descriptor that was sent to
	// another process stays valid there.
	File      *os.File
	Offset    uint64 // in bytes
	PageBytes uint64 // the distance from one page to the next
	Pages     uint32
	// Export describes the memory of a device. If nil, File covers all pages.
	Export *device.Export
	// DevicePages is the number of pages of a second pool, in memory of a device (p2p_use_npu). The pages are numbered
	// from DeviceFrom on: page DeviceFrom + i begins Export.Offset + i × PageBytes bytes after the address that an
	// import returns. If DevicePages is 0, the node has no second pool.
	DeviceFrom, DevicePages uint32
}

// ProcessEndMargin is the time for which work of an ended process may continue on a device in pages of the node:
// running work ends with the process's context, which the device's driver takes down as the process ends. Data planes
// allow the same time for a dead peer with an NPU that reaches this node's memory (docs/npu.md).
const ProcessEndMargin = 100 * time.Millisecond

// AdmitProcess allows an engine's process to import the node's device memory. The process is identified by the number
// that the device's driver uses (acl.Thread.ProcessNumber). The call fails with Unsupported if the Mapping has no
// Export.
func (n *Node) AdmitProcess(process int32) error {
	const op = "admit"
	m, ok := n.driver.memory.(deviceMemory)
	if !ok || m.ExportedPool() == nil {
		e := argumentError(op, "the pool", "memory that is mapped", "memory of a device", "map Mapping.File")
		e.Code = effects.Unsupported
		return e
	}
	if err := n.tickets.refusalForWork(op); err != nil {
		return err
	}
	if err := m.AdmitProcess(process); err != nil {
		return &Error{Op: op, Code: effects.Faulted, Cause: err}
	}
	return nil
}

// RemoveProcess reports that a process that was admitted does not use the memory any more. Process 0 is ignored.
func (n *Node) RemoveProcess(process int32) {
	if m, ok := n.driver.memory.(deviceMemory); ok && process != 0 {
		m.RemoveProcess(process)
	}
}

// Mapping returns the memory of the node's pages for another process. The call fails with Unsupported if the node was
// opened without WithAttachable or the pages are memory of a device that cannot be exported, and fails after Close was
// called. The end of an engine's process does not affect the memory, which stays the node's, and the program that
// opened the node releases the handles that were for that engine.
func (n *Node) Mapping() (Mapping, error) {
	const op = "mapping"
	if err := n.tickets.refusalForWork(op); err != nil {
		return Mapping{}, err
	}
	if err := n.requireAttachable(op); err != nil {
		return Mapping{}, err
	}
	return Mapping{File: n.driver.memory.attachableFile(), PageBytes: n.pageBytes, Pages: n.pages, Export: n.exportedMemory(),
		DeviceFrom: n.deviceFrom, DevicePages: n.devicePages}, nil
}

// exportedMemory returns the description by which engines of separate processes import memory of a device, or nil if
// that is impossible.
func (n *Node) exportedMemory() *device.Export {
	if m, ok := n.driver.memory.(deviceMemory); ok {
		return m.ExportedPool()
	}
	return nil
}

// requireAttachable returns an error if engines of separate processes cannot map or import the node's memory.
func (n *Node) requireAttachable(op string) error {
	if n.driver.memory.attachableFile() != nil || n.exportedMemory() != nil {
		return nil
	}
	e := argumentError(op, "WithAttachable", "missing", "set", "open the node with WithAttachable")
	e.Code = effects.Unsupported
	return e
}
