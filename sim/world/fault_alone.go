package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// A rank fails alone (runtime.WithFailureContainment) if its machine is stepped no more and its sockets are closed,
// while the process, the engine and the memory stay.
//
//   - The rank's planes continue by themselves until they are closed, which takes a while. Peers then see that their
//     links end.
//   - Hardware may reach the memory for as long as it is mapped, which on a leased plane may be for good.
//   - The memory is given to nothing else. The pages that the engine had filled are returned to the engine once nothing
//     can touch these pages.
//   - Another rank takes the place of the failed rank, in memory of its own.

// A poolState is the state of a pool, which matters after the rank has failed alone.
type afterlife uint8

const (
	afterNothing afterlife = iota // the rank is running, or its whole process has died
	afterServed                   // the planes of the rank still run
	afterMapped                   // the planes are closed; accesses that peers submitted before may still arrive
	afterKept                     // nothing can reach the pool any more
)

// served reports whether the threads of a plane still carry out operations on p.
func (p *Pool) served() bool { return p.Alive() || p.after == afterServed }

// Mapped reports whether hardware can reach p.
func (p *Pool) Mapped() bool { return p.Alive() || p.after == afterServed || p.after == afterMapped }

// Remains reports whether p still exists as memory, of a rank that is running or of a rank that has failed alone.
func (p *Pool) Remains() bool { return p.Alive() || p.after != afterNothing }

// A DriverMistake is a mistake that a driver could make when its rank fails. Only tests use driver mistakes.
type Carelessness uint8

const (
	MemoryGivenOn  Carelessness = iota + 1 // the next rank uses the memory of the failed rank
	PeersUntold                            // the connections and links do not end
	MemoryBackSoon                         // the engine immediately gets back the pages that it filled
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

// shut closes the planes of a rank that has failed. Their threads have ended, the rank's links end, and peers can no
// longer deliver what they still read for the rank's transfers.
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
			return // The device is lost: nothing will ever prove that the mapping is destroyed.
		case d.Again().Permille(400):
			gone = d.Again().Again().Span(0, 3*effects.Second)
		}
	}
	w.After(gone, Delivery{Kind: KindKept, Node: n.ID, A: uint64(p.aloneAt(w))})
}

// aloneAt returns the number of a failed rank's pool, from 1.
func (p *Pool) aloneAt(w *World) int {
	for i, o := range w.alone {
		if o == p {
			return i + 1
		}
	}
	panic("BUG: this rank has not failed alone")
}

// retireFailedPool is called when it is proven that nothing can reach the pool any more. The read leases of the pool
// are revoked, and what the engine had filled is returned to the engine.
func (w *World) keep(number uint64) {
	p := w.alone[number-1]
	for _, t := range w.Going.Transfers.Some {
		if t.Local == p && t.Flying > 0 { // Wait for the device.
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

// strayKey is the key of content that belongs to no request, because the engine uses its memory for something else.
const strayKey = 1<<28 - 1

// returnToEngine returns the pages that the engine of a failed rank had filled. The engine overwrites these pages.
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

// giveOn does what no driver may do: the memory of a failed rank is given to another rank, which knows nothing of the
// memory's former use.
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
