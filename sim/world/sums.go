package world

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Where a plan has Sums, engines state the checksums of the chunks that they hand to their machines, and drivers compare
// what a peer has stored, or what they have read, with the checksum that the machine passes to them. On leased planes
// drivers see no stores, and compare when the machine asks for it (verify.go). The checksum of a
// page is that of the bytes as which a message would carry the page.

// sumOf returns the checksum of the first length bytes of a page.
func (p *Pool) sumOf(w *World, page *Page, length uint32) effects.Sum {
	w.sumBuf = p.appendBytes(w.sumBuf[:0], page, length)
	return effects.SumOf(w.sumBuf)
}

// appendBytes appends the first length bytes of a page. Each stamp is written at the start of the part's bytes.
func (p *Pool) appendBytes(b []byte, page *Page, length uint32) []byte {
	first := len(b)
	for range length {
		b = append(b, 0)
	}
	part := int(p.PageBytes) / Parts
	for i := range p.PartCount(length) {
		binary.LittleEndian.PutUint64(b[first+i*part:], uint64(page.Stamps[i]))
	}
	return b
}

// StateSums sets the checksum of each page, of which the engine has filled length bytes; 0 stands for the Length of each
// page. Nothing happens where the plan has no Sums.
func (w *World) StateSums(n *Node, pages []effects.Page, length uint32) {
	if !w.Conditions.Sums {
		return
	}
	for i := range pages {
		p := &pages[i]
		n.Pool.Pages[p.Index].unflip(p.Generation)
		p.Sum = n.Pool.sumOf(w, &n.Pool.Pages[p.Index], max(length, p.Length))
	}
}

// SumOf returns the checksum of the content of a page of n.
func (w *World) SumOf(n *Node, p effects.Page) effects.Sum {
	return n.Pool.sumOf(w, &n.Pool.Pages[p.Index], p.Length)
}

// A flip is a change of a bit of a page.
type flip struct {
	part  uint64
	bit   Stamp
	after Stamp // the part's stamp after the change
}

// Bits of a fill that no fill has set: the first of those that change at rest, the first of those that change while a
// page is moved, and the number of each. A bit of one kind never takes back a bit of the other kind: otherwise, a page
// that changed at rest before it was leased, and changed back in the read, would rightly have its checksum.
const (
	firstBitAtRest = 4 + 24
	firstBitMoved  = firstBitAtRest + flipBits
	flipBits       = 4
)

// flipBit changes a bit of the fill of one part, so that the page seems to come from two fills. The bit is one of flipBits
// bits that no fill has, so that no other fill has the changed stamp.
func flipBit(d draw.Value, page *Page, parts int, firstBit uint64) flip {
	f := flip{part: d.Below(uint64(parts)), bit: 1 << (firstBit + d.Rehash().Below(flipBits))}
	page.Stamps[f.part] ^= f.bit
	f.after = page.Stamps[f.part]
	return f
}

// unflip takes back what flipSource changed in this generation. An engine that states the checksum of a page once more,
// as it stores what it has put, would otherwise state the checksum of the changed bytes. Or it has filled the page anew.
func (p *Page) unflip(g effects.Generation) {
	if !p.WasFlippedIn(g) {
		return
	}
	if p.FlippedIn = 0; p.Stamps[p.flip.part] == p.flip.after {
		p.Stamps[p.flip.part] ^= p.flip.bit
	}
}

// flipSource changes a bit of the source of pair i before the pair is moved, if the fault strikes. The source keeps it.
func (t *Transfer) flipSource(w *World, i int) {
	if !w.Conditions.Sums || t.Gather.Layers > 0 {
		return
	}
	d, strikes := w.DrawStrike(plan.FaultMemoryFlipped, t.Name, uint64(i))
	p := t.Pairs[i]
	parts := t.Local.PartCount(p.Local.Length)
	if !strikes || parts == 0 {
		return
	}
	page, generation := &t.Local.Pages[p.Local.Index], p.Local.Generation
	if t.Read {
		page, generation = &t.Remote.Pages[p.Remote.Index], p.Remote.Generation
	}
	if page.Generation == generation && !page.WasFlippedIn(generation) {
		page.flip = flipBit(d, page, parts, firstBitAtRest)
		page.FlippedIn, t.flipped = generation, true
	}
}

// WasFlippedIn reports whether a bit of the page was changed at rest in this generation.
func (p *Page) WasFlippedIn(g effects.Generation) bool { return p.FlippedIn != 0 && p.FlippedIn == g }

// flipStored changes a bit of pair i after the pair was moved, if the fault strikes.
func (t *Transfer) flipStored(w *World, i int) {
	if !w.Conditions.Sums || t.Gather.Layers > 0 {
		return
	}
	fault, p := plan.FaultBitFlippedStored, t.Pairs[i]
	page := &t.Remote.Pages[p.Remote.Index]
	if t.Read {
		fault, page = plan.FaultBitFlippedRead, &t.Local.Pages[p.Local.Index]
	}
	if d, strikes := w.DrawStrike(fault, t.Name, uint64(i)); strikes {
		if parts := t.Local.PartCount(p.Local.Length); parts > 0 {
			flipBit(d, page, parts, firstBitMoved)
			t.flipped = true
		}
	}
	// Another transfer of the same source may have struck after this one had begun.
	if !t.Read && (t.flipped || t.Local.Pages[p.Local.Index].WasFlippedIn(p.Local.Generation)) {
		page.StoredFlipped = p.Remote.Generation
	}
}

// hasSum compares what was stored for pair i with the checksum that the machine has passed to the driver.
func (t *Transfer) hasSum(w *World, i int, stated effects.Sum) bool {
	if !w.Conditions.Sums || stated == 0 {
		return true
	}
	pool, index, node := t.Remote, t.Pairs[i].Remote.Index, t.Remote.Node
	if t.Read {
		pool, index, node = t.Local, t.Pairs[i].Local.Index, t.Local.Node
	}
	same := stated == pool.sumOf(w, &pool.Pages[index], t.Pairs[i].Local.Length)
	OnSumCompared.Report(&w.Panel, node.ID, SumCompared{node, t, i, same})
	return same
}

// WasFlipped reports whether a bit was changed in a page of the transfer, or at its source.
func (t *Transfer) WasFlipped() bool { return t.flipped }
