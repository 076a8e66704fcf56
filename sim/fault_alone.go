package sim

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
func (p *pool) served() bool { return p.alive() || p.after == afterServed }

// mapped says whether hardware can reach p.
func (p *pool) mapped() bool { return p.alive() || p.after == afterServed || p.after == afterMapped }

// remains says whether p is memory, of a rank that lives or of one that has failed alone.
func (p *pool) remains() bool { return p.alive() || p.after != afterNothing }

// A carelessness is what a driver must not do as its rank fails. Only tests know of one that does.
type carelessness uint8

const (
	memoryGivenOn  carelessness = iota + 1 // the rank in its place has its memory
	peersUntold                            // its connections and links do not end
	memoryBackSoon                         // the engine has what it filled back at once
)

// failAlone ends n's rank and nothing else of its process.
func (w *world) failAlone(n *node) {
	if !n.up || w.healed {
		n.trap = trap{}
		return
	}
	w.result.fault(plan.FaultAlone)
	w.journal.note(w.now, kindAlone, n.id, uint64(n.life), 0, 0)
	d := w.stop(n)
	n.pool.after, n.engine().after = afterServed, afterServed
	w.alone = append(w.alone, n.pool)
	if w.careless == memoryBackSoon {
		w.giveBack(n.pool)
	}
	closed := d.Again().Again().Heavy(4 * w.plan.Net)
	w.after(closed, delivery{kind: kindShut, node: n.id, a: uint64(len(w.alone))})
	w.after(closed+d.Span(10*effects.Millisecond, 1500*effects.Millisecond), delivery{kind: kindRestart, node: n.id})
}

// shut closes the planes of a rank that has failed: its threads have ended, its links end, and what its peers may
// still read for its transfers they can deliver no more.
func (w *world) shut(p *pool) {
	if p.after != afterServed {
		return
	}
	n := p.node
	w.journal.note(w.now, kindShut, n.id, uint64(p.life), 0, 0)
	p.after = afterMapped
	for _, t := range w.transfers {
		if t.local == p && !t.read && !w.plan.Leased {
			t.early = true
		}
	}
	d := w.draw(draw.Crash, n)
	if w.careless != peersUntold {
		w.leaveLinks(n, d)
	}
	gone := d.Again().Heavy(w.plan.Device)
	if w.plan.Leased {
		switch d = d.Again(); {
		case d.Permille(250):
			return // Its device is lost: nothing proves that the mapping is gone, ever.
		case d.Again().Permille(400):
			gone = d.Again().Again().Span(0, 3*effects.Second)
		}
	}
	w.after(gone, delivery{kind: kindKept, node: n.id, a: uint64(w.aloneAt(p))})
}

// aloneAt is the number of a failed rank's pool, from 1.
func (w *world) aloneAt(p *pool) int {
	for i, o := range w.alone {
		if o == p {
			return i + 1
		}
	}
	panic("BUG: this rank has not failed alone")
}

// keep is the proof that nothing reaches the pool any more: what it lent is taken back, and what its engine had filled
// is the engine's.
func (w *world) keep(number uint64) {
	p := w.alone[number-1]
	for _, t := range w.going.transfers.some {
		if t.local == p && t.flying > 0 { // The device is waited for.
			w.after(10*effects.Millisecond, delivery{kind: kindKept, node: p.node.id, a: number})
			return
		}
	}
	w.journal.note(w.now, kindKept, p.node.id, uint64(p.life), 0, 0)
	p.after = afterKept
	for _, g := range p.lent {
		g.revoking = true
	}
	w.giveBack(p)
}

// strayKey is of what no request is about: the engine uses its memory for something else.
const strayKey = 1<<28 - 1

// giveBack lets the engine of a failed rank use what it had filled.
func (w *world) giveBack(p *pool) {
	if p.engines != nil {
		p = p.engines
	}
	p.back = true
	fill := w.oracles.truth.newFill()
	for i := range p.pages {
		if pg := &p.pages[i]; pg.reserved != 0 {
			for part := range pg.stamps {
				pg.stamps[part] = makeStamp(strayKey, fill, part)
			}
		}
	}
}

// giveOn is what no driver may do: the memory of a failed rank becomes another's, who knows nothing of its former use.
func (w *world) giveOn(p, next *pool) {
	for _, t := range w.transfers {
		if t.remote == p {
			t.writing = nil
		}
	}
	for i := range p.pages {
		p.pages[i] = page{stamps: p.pages[i].stamps}
	}
	next.pages = p.pages
}
