package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// A rank that fails alone (runtime.WithFailAlone): its machine is stepped no more and its sockets are closed, while the
// process, the engine and the memory stay. Its planes go on by themselves until they are closed, which takes a while;
// then peers see that their links end. Hardware may reach the memory for as long as its mapping stands, which on a
// leased plane may be for good. The memory is given to nobody; what the engine had filled is the engine's again once
// nothing can be at it. Another rank takes the failed one's place, in memory of its own.

// An afterlife is how far the end of a failed rank's pool has come.
type afterlife uint8

const (
	afterNothing afterlife = iota // its rank lives, or its whole process has died
	afterServed                   // its planes still run
	afterMapped                   // they are closed; what peers submitted before may still reach it
	afterKept                     // nothing reaches it any more
)

// served says whether threads of a plane still carry out what concerns p.
func (p *Pool) served() bool { return p.Alive() || p.after == afterServed }

// Mapped says whether hardware can reach p.
func (p *Pool) Mapped() bool { return p.Alive() || p.after == afterServed || p.after == afterMapped }

// Remains says whether p is memory, of a rank that lives or of one that has failed alone.
func (p *Pool) Remains() bool { return p.Alive() || p.after != afterNothing }

// A Carelessness is what a driver must not do as its rank fails. Only tests know of one that does.
type Carelessness uint8

const (
	MemoryGivenOn  Carelessness = iota + 1 // the rank in its place has its memory
	PeersUntold                            // its connections and links do not end
	MemoryBackSoon                         // the engine has what it filled back at once
)

// failAlone ends n's rank and nothing else of its process.
func (n *Node) failAlone(w *World) {
	if !n.Up || w.Healed {
		n.Trap = Trap{}
		return
	}
	w.Result.Fault(plan.FaultAlone)
	w.Journal.Note(w.Now, KindAlone, n.ID, uint64(n.Life), 0, 0)
	d := n.stop(w)
	n.Pool.after = afterServed
	w.alone = append(w.alone, n.Pool)
	if w.Careless == MemoryBackSoon {
		n.Pool.giveBack(w)
	}
	closed := d.Again().Again().Heavy(4 * w.Setting.Net)
	w.After(closed, Delivery{Kind: KindShut, Node: n.ID, A: uint64(len(w.alone))})
	w.After(closed+d.Span(10*effects.Millisecond, 1500*effects.Millisecond), Delivery{Kind: KindRestart, Node: n.ID})
}

// shut closes the planes of a rank that has failed: its threads have ended, its links end, and what its peers may
// still read for its transfers they can deliver no more.
func (p *Pool) shut(w *World) {
	if p.after != afterServed {
		return
	}
	n := p.Node
	w.Journal.Note(w.Now, KindShut, n.ID, uint64(p.Life), 0, 0)
	p.after = afterMapped
	for _, t := range w.Transfers {
		if t.Local == p && !t.Read && !w.Setting.Leased {
			t.Early = true
		}
	}
	d := n.draw(w, draw.Crash)
	if w.Careless != PeersUntold {
		n.leaveLinks(w, d)
	}
	gone := d.Again().Heavy(w.Setting.Device)
	if w.Setting.Leased {
		switch d = d.Again(); {
		case d.Permille(250):
			return // Its device is lost: nothing proves that the mapping is gone, ever.
		case d.Again().Permille(400):
			gone = d.Again().Again().Span(0, 3*effects.Second)
		}
	}
	w.After(gone, Delivery{Kind: KindKept, Node: n.ID, A: uint64(p.aloneAt(w))})
}

// aloneAt is the number of a failed rank's pool, from 1.
func (p *Pool) aloneAt(w *World) int {
	for i, o := range w.alone {
		if o == p {
			return i + 1
		}
	}
	panic("BUG: this rank has not failed alone")
}

// keep is the proof that nothing reaches the pool any more: what it lent is taken back, and what its engine had filled
// is the engine's.
func (w *World) keep(number uint64) {
	p := w.alone[number-1]
	for _, t := range w.Going.Transfers.Some {
		if t.Local == p && t.Flying > 0 { // The device is waited for.
			w.After(10*effects.Millisecond, Delivery{Kind: KindKept, Node: p.Node.ID, A: number})
			return
		}
	}
	w.Journal.Note(w.Now, KindKept, p.Node.ID, uint64(p.Life), 0, 0)
	p.after = afterKept
	for _, g := range p.Lent {
		g.Revoking = true
	}
	p.giveBack(w)
}

// strayKey is of what no request is about: the engine uses its memory for something else.
const strayKey = 1<<28 - 1

// giveBack lets the engine of a failed rank use what it had filled.
func (p *Pool) giveBack(w *World) {
	p.Back = true
	fill := w.NewFill()
	for i := range p.Pages {
		if pg := &p.Pages[i]; pg.Reserved != 0 {
			for part := range pg.Stamps {
				pg.Stamps[part] = MakeStamp(strayKey, fill, part)
			}
		}
	}
}

// giveOn is what no driver may do: the memory of a failed rank becomes another's, who knows nothing of its former use.
func (p *Pool) giveOn(w *World, next *Pool) {
	for _, t := range w.Transfers {
		if t.Remote == p {
			t.Writing = nil
		}
	}
	for i := range p.Pages {
		p.Pages[i] = Page{Stamps: p.Pages[i].Stamps}
	}
	next.Pages = p.Pages
}
