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
type poolState uint8

const (
	poolNormal      poolState = iota // the rank is running, or its whole process has died
	poolServed                       // the planes of the rank still run
	poolMapped                       // the planes are closed; accesses that peers submitted before may still arrive
	poolUnreachable                  // nothing can reach the pool any more
)

// isServed reports whether the threads of a plane still carry out operations on p.
func (p *Pool) isServed() bool { return p.IsAlive() || p.state == poolServed }

// IsMapped reports whether hardware can reach p.
func (p *Pool) IsMapped() bool { return p.IsAlive() || p.state == poolServed || p.state == poolMapped }

// Exists reports whether p still exists as memory, of a rank that is running or of a rank that has failed alone.
func (p *Pool) Exists() bool { return p.IsAlive() || p.state != poolNormal }

// A DriverMistake is a mistake that a driver could make when its rank fails. Only tests use driver mistakes.
type DriverMistake uint8

const (
	MemoryReused        DriverMistake = iota + 1 // the next rank uses the memory of the failed rank
	PeersNotNotified                             // the connections and links do not end
	MemoryReturnedEarly                          // the engine immediately gets back the pages that it filled
)

// failRankAlone ends n's rank and nothing else of its process.
func (n *Node) failRankAlone(w *World) {
	if !n.Up || w.Healed {
		n.Trap = Trap{}
		return
	}
	w.Result.CountFault(plan.FaultRankAlone)
	w.Journal.AddLine(w.Now, KindRankFailed, n.ID, uint64(n.Incarnation), 0, 0)
	d := n.stopIncarnation(w)
	n.Pool.state = poolServed
	w.failedPools = append(w.failedPools, n.Pool)
	if w.DriverMistake == MemoryReturnedEarly {
		n.Pool.returnToEngine(w)
	}
	closed := d.Rehash().Rehash().HeavyTail(4 * w.Conditions.MessageTime)
	w.QueueAfter(closed, Delivery{Kind: KindPlanesClosed, Node: n.ID, A: uint64(len(w.failedPools))})
	w.QueueAfter(closed+d.Duration(10*effects.Millisecond, 1500*effects.Millisecond), Delivery{Kind: KindRestart, Node: n.ID})
}

// closePlanes closes the planes of a rank that has failed. Their threads have ended, the rank's links end, and peers
// can no longer deliver what they still read for the rank's transfers.
func (p *Pool) closePlanes(w *World) {
	if p.state != poolServed {
		return
	}
	n := p.Node
	w.Journal.AddLine(w.Now, KindPlanesClosed, n.ID, uint64(p.Incarnation), 0, 0)
	p.state = poolMapped
	for _, t := range w.Transfers {
		if t.Local == p && !t.Read && !w.Conditions.Leased {
			t.SettledEarly = true
		}
	}
	d := n.nextDraw(w, draw.Crash)
	if w.DriverMistake != PeersNotNotified {
		n.endLinks(w, d)
	}
	gone := d.Rehash().HeavyTail(w.Conditions.DeviceTime)
	if w.Conditions.Leased {
		switch d = d.Rehash(); {
		case d.ChancePermille(250):
			return // The device is lost: nothing will ever prove that the mapping is destroyed.
		case d.Rehash().ChancePermille(400):
			gone = d.Rehash().Rehash().Duration(0, 3*effects.Second)
		}
	}
	w.QueueAfter(gone, Delivery{Kind: KindPoolUnreachable, Node: n.ID, A: uint64(p.failedNumber(w))})
}

// failedNumber returns the number of a failed rank's pool, from 1.
func (p *Pool) failedNumber(w *World) int {
	for i, o := range w.failedPools {
		if o == p {
			return i + 1
		}
	}
	panic("BUG: the pool does not belong to a rank that has failed alone")
}

// retireFailedPool is called when it is proven that nothing can reach the pool any more. The read leases of the pool
// are revoked, and what the engine had filled is returned to the engine.
func (w *World) retireFailedPool(number uint64) {
	p := w.failedPools[number-1]
	for _, t := range w.Active.Transfers.Items {
		if t.Local == p && t.InFlight > 0 { // Wait for the device.
			w.QueueAfter(10*effects.Millisecond, Delivery{Kind: KindPoolUnreachable, Node: p.Node.ID, A: number})
			return
		}
	}
	w.Journal.AddLine(w.Now, KindPoolUnreachable, p.Node.ID, uint64(p.Incarnation), 0, 0)
	p.state = poolUnreachable
	for _, g := range p.ReadLeases {
		g.Revoking = true
	}
	p.returnToEngine(w)
}

// foreignKey is the key of content that belongs to no request, because the engine uses its memory for something else.
const foreignKey = 1<<28 - 1

// returnToEngine returns the pages that the engine of a failed rank had filled. The engine overwrites these pages.
func (p *Pool) returnToEngine(w *World) {
	p.Returned = true
	fill := w.NewFill()
	for i := range p.Pages {
		if pg := &p.Pages[i]; pg.Reserved != 0 {
			for part := range pg.Stamps {
				pg.Stamps[part] = MakeStamp(foreignKey, fill, part)
			}
		}
	}
}

// giveToNextRank does what no driver may do: the memory of a failed rank is given to another rank, which knows nothing
// of the memory's former use.
func (p *Pool) giveToNextRank(w *World, next *Pool) {
	for _, t := range w.Transfers {
		if t.Remote == p {
			t.StoresLeft = nil
		}
	}
	for i := range p.Pages {
		p.Pages[i] = Page{Stamps: p.Pages[i].Stamps}
	}
	next.Pages = p.Pages
}
