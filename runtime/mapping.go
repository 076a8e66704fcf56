package runtime

import (
	"os"

	"github.com/kvferry/kvferry/effects"
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
type Mapping struct {
	File      *os.File // the node's, which closes it: do not. What was sent of it to another process stays there
	Offset    uint64   // bytes
	PageBytes uint64   // from one page to the next
	Pages     uint32
}

// Mapping is the memory of the node's pages for another process. It refuses as Unsupported if the node was opened
// without WithAttachable, or its pages are memory of a device; and once Close was called. An engine that ends takes
// nothing with it: the memory stays the node's, and the handles that were for it are its opener's to release.
func (n *Node) Mapping() (Mapping, error) {
	const op = "mapping"
	if err := n.tickets.isOver(op); err != nil {
		return Mapping{}, err
	}
	file, err := n.attachable(op)
	if err != nil {
		return Mapping{}, err
	}
	return Mapping{File: file, PageBytes: n.pageBytes, Pages: n.pages}, nil
}

// attachable is the pages' file, or says why there is none.
func (n *Node) attachable(op string) (*os.File, error) {
	if file := n.world.memory.attachable(); file != nil {
		return file, nil
	}
	e := wrong(op, "WithAttachable", "not there", "given", "open the node with it")
	if _, ok := n.world.memory.(deviceMemory); ok {
		e = wrong(op, "the pool", "memory of a device", "memory of this process",
			"nobody here can share it: use Pages.Device, or set pd_buffer_device: cpu and leave WithDevice out")
	}
	e.Code = effects.Unsupported
	return nil, e
}
