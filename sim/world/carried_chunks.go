package world

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
)

// A message carries a chunk as the stamps of the chunk's parts. Each stamp is written at the start of the part's bytes,
// of which there are at least eight.

// loadCarried writes the present content of the carried pages over the end of the message.
func (n *Node) loadCarried(w *World, e *effects.Send) {
	if len(e.Carries) == 0 {
		return
	}
	if OnSendingPages.Report(&w.Panel, n.ID, SendingPages{n, e}); w.Failure != nil {
		return
	}
	at := len(e.Body)
	for _, p := range e.Carries {
		at -= int(p.Length)
	}
	for _, p := range e.Carries {
		n.Pool.appendBytes(e.Body[:at], &n.Pool.Pages[p.Index], p.Length)
		at += int(p.Length)
	}
}

// storeCarried copies bytes of a received message into a page of n.
func (n *Node) storeCarried(w *World, e *effects.Store) {
	if OnStoringCarried.Report(&w.Panel, n.ID, StoringCarried{n, e}); w.Failure != nil {
		return
	}
	page := &n.Pool.Pages[e.Page.Index]
	part := int(n.Pool.PageBytes) / Parts
	for i := range n.Pool.PartCount(uint32(len(e.Bytes))) {
		page.Stamps[i] = Stamp(binary.LittleEndian.Uint64(e.Bytes[i*part:]))
	}
}
