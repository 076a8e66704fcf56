package push

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// plan turns f.reply into pairs of pages, and returns false if the reply does not fit the request.
func (f *Source) plan(of *link.Incarnation, p *outgoing) bool {
	f.pairs, f.layers = f.pairs[:0], f.layers[:0]
	ok := f.match(of, p)
	if p.Keys(p.chunks) == 1 {
		return ok // A single key cannot be repeated.
	}
	// The entries are removed one by one, so that the time depends on this batch alone, however large an earlier
	// one was.
	for i := range f.pairs {
		f.byPage.Remove(f.pageHash(&f.pairs[i].Remote), table.Handle(i+1))
	}
	return ok
}

// match pairs each chunk with the page that the reply names, and returns false if the reply's lists do not cover
// the chunks exactly, or name a page that the peer has not listed.
func (f *Source) match(of *link.Incarnation, p *outgoing) bool {
	m := &f.reply
	n := p.Keys(p.chunks)
	p.Already = p.Already[:0]
	if len(m.AlreadySent) > n || len(m.RemoteIndexes)+len(m.AlreadySent) != n {
		return false
	}
	granted := m.HasExt && m.Ext.Grant != 0 && len(m.Ext.Generations) == len(m.RemoteIndexes)
	if of.Extended() && len(m.RemoteIndexes) > 0 && !granted {
		return false
	}
	sent, next := 0, 0
	for i := range n {
		if sent < len(m.AlreadySent) && m.AlreadySent[sent] == int64(i) {
			sent++
			p.wasThere(uint32(i))
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
			id = of.FirstBuffer()
		}
		buffer, ok := of.Buffer(id)
		if !ok || index < 0 || index >= int64(buffer.Pages) {
			return false
		}
		pair := effects.Pair{Local: p.local(i), Remote: effects.RemotePage{Buffer: id, Index: uint32(index)}}
		if m.HasExt && next < len(m.Ext.Generations) {
			pair.Remote.Generation = effects.Generation(m.Ext.Generations[next])
		}
		next++
		if n == 1 || !f.planned(&pair.Remote) {
			f.pairs = append(f.pairs, pair)
			f.layers = append(f.layers, p.layersOf(i)...)
		}
	}
	// Indexes that were out of order or out of range have matched no chunk.
	if sent != len(m.AlreadySent) || next != len(m.RemoteIndexes) {
		return false
	}
	p.Sent, p.Skipped = uint32(next), uint32(sent)
	return true
}

// wasThere records the positions of the pages that the receiver does not need, because the contents are there.
func (p *outgoing) wasThere(key uint32) {
	switch {
	case p.chunks:
		for layer := range p.Layers {
			p.Already = append(p.Already, key*p.Layers+layer)
		}
	case p.Layers > 0:
		p.Already = append(p.Already, key)
	}
}

// layersOf returns the local pages of the layers that are gathered into one remote page, if the receiver's pages
// hold all layers of a chunk.
func (p *outgoing) layersOf(key int) []effects.Page {
	if !p.chunks {
		return nil
	}
	return p.Pages[key*int(p.Layers) : (key+1)*int(p.Layers)]
}

// local returns the local page of a key. If layers are gathered, local returns the first layer's page with the
// length of all layers.
func (p *outgoing) local(key int) effects.Page {
	if !p.chunks {
		return p.Pages[key]
	}
	page := p.Pages[key*int(p.Layers)]
	page.Length *= p.Layers
	return page
}

// planned reports whether the remote page r has a pair already, because the key is repeated in the batch. If not,
// planned records r for the pair that is appended next.
func (f *Source) planned(r *effects.RemotePage) bool {
	hash := f.pageHash(r)
	for q := f.byPage.Seek(hash); q.Found(); q = f.byPage.Next(q) {
		if f.pairs[q.Handle().Slot()].Remote == *r {
			return true
		}
	}
	f.byPage.Add(hash, table.Handle(len(f.pairs)+1))
	return false
}

// pageHash returns the hash of a remote page. The hash depends on the secret seed, so a receiver cannot choose
// pages that collide.
func (f *Source) pageHash(r *effects.RemotePage) uint64 {
	var b [28]byte
	copy(b[:], r.Buffer[:])
	binary.LittleEndian.PutUint32(b[16:], r.Index)
	binary.LittleEndian.PutUint64(b[20:], uint64(r.Generation))
	return table.Hash(f.seed, b[:])
}
