package push

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// planPairs turns f.reply into pairs of pages, and returns false if the reply does not fit the request.
func (f *Source) planPairs(remote *link.Incarnation, p *putRow) bool {
	f.pairs, f.gatherPages = f.pairs[:0], f.gatherPages[:0]
	ok := f.matchPages(remote, p)
	if p.CountKeys(p.namesChunks) == 1 {
		return ok // A single key cannot be repeated.
	}
	// The entries are removed one by one, so that the time depends on this batch alone, however large an earlier
	// one was.
	for i := range f.pairs {
		f.pairByPage.Remove(f.hashPage(&f.pairs[i].Remote), table.Handle(i+1))
	}
	return ok
}

// matchPages pairs each chunk with the page that the reply names, and returns false if the reply's lists do not cover
// the chunks exactly, or name a page that the peer has not listed.
func (f *Source) matchPages(remote *link.Incarnation, p *putRow) bool {
	m := &f.reply
	n := p.CountKeys(p.namesChunks)
	p.PresentPages = p.PresentPages[:0]
	if len(m.AlreadySent) > n || len(m.RemoteIndexes)+len(m.AlreadySent) != n {
		return false
	}
	granted := m.HasExt && m.Ext.Grant != 0 && len(m.Ext.Generations) == len(m.RemoteIndexes)
	if remote.HasExtensions() && len(m.RemoteIndexes) > 0 && !granted {
		return false
	}
	sent, next := 0, 0
	for i := range n {
		if sent < len(m.AlreadySent) && m.AlreadySent[sent] == int64(i) {
			sent++
			p.recordPresent(uint32(i))
			continue
		}
		if next >= len(m.RemoteIndexes) {
			return false
		}
		index := m.RemoteIndexes[next]
		var id effects.BufferID // Upstream forms name no buffer and mean the first one.
		switch {
		case next < len(m.RemoteUUIDs):
			id = effects.BufferID(m.RemoteUUIDs[next])
		case m.Form == protocol.FormAscend:
			return false
		default:
			id = remote.FirstBuffer()
		}
		buffer, ok := remote.FindBuffer(id)
		if !ok || index < 0 || index >= int64(buffer.Pages) {
			return false
		}
		pair := effects.Pair{Local: p.localPage(i), Remote: effects.RemotePage{Buffer: id, Index: uint32(index)}}
		if m.HasExt && next < len(m.Ext.Generations) {
			pair.Remote.Generation = effects.Generation(m.Ext.Generations[next])
		}
		next++
		if n == 1 || !f.findOrAddPage(&pair.Remote) {
			f.pairs = append(f.pairs, pair)
			f.gatherPages = append(f.gatherPages, p.gatheredPages(i)...)
		}
	}
	// Indexes that were out of order or out of range have matched no chunk.
	if sent != len(m.AlreadySent) || next != len(m.RemoteIndexes) {
		return false
	}
	p.Sent, p.Skipped = uint32(next), uint32(sent)
	return true
}

// recordPresent records the positions of the pages that the receiver does not need, because the contents are there.
func (p *putRow) recordPresent(key uint32) {
	switch {
	case p.namesChunks:
		for layer := range p.Layers {
			p.PresentPages = append(p.PresentPages, key*p.Layers+layer)
		}
	case p.Layers > 0:
		p.PresentPages = append(p.PresentPages, key)
	}
}

// gatheredPages returns the local pages of the layers that are gathered into one remote page, if the receiver's pages
// hold all layers of a chunk.
func (p *putRow) gatheredPages(key int) []effects.Page {
	if !p.namesChunks {
		return nil
	}
	return p.Pages[key*int(p.Layers) : (key+1)*int(p.Layers)]
}

// localPage returns the local page of a key. If layers are gathered, localPage returns the first layer's page with the
// length of all layers.
func (p *putRow) localPage(key int) effects.Page {
	if !p.namesChunks {
		return p.Pages[key]
	}
	page := p.Pages[key*int(p.Layers)]
	page.Length *= p.Layers
	return page
}

// findOrAddPage reports whether the remote page r has a pair already, because the key is repeated in the batch. If not,
// planned records r for the pair that is appended next.
func (f *Source) findOrAddPage(r *effects.RemotePage) bool {
	hash := f.hashPage(r)
	for q := f.pairByPage.Find(hash); q.Found(); q = f.pairByPage.Next(q) {
		if f.pairs[q.Handle().Slot()].Remote == *r {
			return true
		}
	}
	f.pairByPage.Add(hash, table.Handle(len(f.pairs)+1))
	return false
}

// hashPage returns the hash of a remote page. The hash depends on the secret seed, so a receiver cannot choose
// pages that collide.
func (f *Source) hashPage(r *effects.RemotePage) uint64 {
	var b [28]byte
	copy(b[:], r.Buffer[:])
	binary.LittleEndian.PutUint32(b[16:], r.Index)
	binary.LittleEndian.PutUint64(b[20:], uint64(r.Generation))
	return table.Hash(f.seed, b[:])
}
