//go:build cgo && linux

package gateway

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A link is a way to a peer's pages, or of a peer that writes to us to nothing.
type link struct {
	id    effects.Link
	peer  effects.Incarnation
	end   *end // nil: we write nothing there
	name  string
	to    *geometry.Regions
	open  int // jobs
	lost  bool
	drops bool
}

// A job is one Transfer. It is the machine's goroutine's until it is given to an end, and that one's until it has
// ended; what both look at says so.
type job struct {
	corr     effects.Corr
	link     *link
	told     bool // the machine's goroutine's: it was told its end
	pairs    []libnixl.Pair
	bytes    uint64 // of them all
	from     int    // of pairs, what is not posted
	flying   []*libnixl.Transfer
	remote   libnixl.Side
	notAfter effects.Time
	moved    effects.Time // when a batch was posted, or has ended
	stop     effects.Code // nothing more is posted: why; OK: it goes on
	by       effects.Time // until when what flies of a stopped one is waited for
}

// Bounds of what is posted of one job at a time.
const (
	window      = 2
	descriptors = 1024
	batchBytes  = 16 << 20
	cancelGrace = effects.Duration(200 * time.Millisecond)
)

// Import implements plane.Plane: the blob is the number of a hello's.
func (g *Gateway) Import(e *effects.Import) {
	x := effects.Imported{Corr: e.Corr, Code: effects.Unreachable}
	peer, key := e.Peer, uint64(0)
	if len(e.Blob) >= 8 {
		key = binary.BigEndian.Uint64(e.Blob)
	}
	g.inbox.Push(func(effects.Time) {
		way, ok := g.m.Reach(key)
		switch {
		case !ok || g.over:
		case way.Who != peer:
			x.Code = effects.Stale
		case way.To != nil && g.ends[way.Agent] == nil:
		default:
			l := &link{id: g.env.IDs.NextLink(), peer: peer, name: way.Name, to: way.To}
			if way.To != nil {
				l.end = g.ends[way.Agent]
			}
			g.links[l.id] = l
			x.Code, x.Link = effects.OK, l.id
		}
		g.out.Events = append(g.out.Events, &x)
	})
}

// Drop implements plane.Plane.
func (g *Gateway) Drop(id effects.Link) {
	g.inbox.Push(func(effects.Time) {
		l := g.links[id]
		if l == nil {
			return
		}
		l.drops = true
		for _, j := range g.jobs {
			if j.link == l {
				g.stop(j, effects.PeerLost)
			}
		}
		g.dropped(l)
	})
}

func (g *Gateway) dropped(l *link) {
	if l.drops && l.open == 0 {
		delete(g.links, l.id)
		g.out.Events = append(g.out.Events, &effects.Dropped{Link: l.id})
	}
}

// Transfer implements plane.Plane.
func (g *Gateway) Transfer(e *effects.Transfer) {
	x := *e
	x.Pairs = append([]effects.Pair(nil), e.Pairs...)
	g.inbox.Push(func(now effects.Time) {
		l := g.links[x.Link]
		refused := effects.OK
		j := &job{corr: x.Corr, link: l, notAfter: x.NotAfter, moved: now}
		switch {
		case l == nil || l.lost || l.drops || l.end == nil || l.end.leaves || g.over:
			refused = effects.PeerLost
		case l.peer != x.Peer:
			refused = effects.Stale
		case x.Read:
			refused = effects.Unsupported
		case !g.lay(j, x.Pairs):
			refused = effects.Faulted
		}
		if refused != effects.OK {
			g.counted(j, refused)
			g.out.Events = append(g.out.Events,
				&effects.TransferDone{Corr: x.Corr, Code: refused, Settled: true, At: plane.Now()})
			return
		}
		g.jobs[j.corr] = j
		l.open++
		l.end.orders.Push(func(effects.Time) { l.end.flights = append(l.end.flights, j) })
	})
}

// lay puts the pieces of a job together; false: the peer has no such page.
func (g *Gateway) lay(j *job, pairs []effects.Pair) bool {
	to := j.link.to
	if to.Mem == geometry.MemVRAM {
		j.remote = libnixl.Side{Kind: libnixl.Device, Device: to.Device}
	}
	for _, p := range pairs {
		if uint64(p.Remote.Index) >= to.Pages() {
			return false
		}
		at, bytes := to.Bytes(p.Remote.Index)
		if uint64(p.Local.Length) != bytes {
			return false
		}
		j.add(libnixl.Pair{Local: uint64(g.env.Leased.Address(p.Local)), Remote: at, Bytes: bytes})
	}
	return true
}

// add joins what lies side by side at both ends.
func (j *job) add(p libnixl.Pair) {
	j.bytes += p.Bytes
	if n := len(j.pairs); n > 0 {
		last := &j.pairs[n-1]
		if last.Local+last.Bytes == p.Local && last.Remote+last.Bytes == p.Remote && last.Bytes+p.Bytes <= batchBytes {
			last.Bytes += p.Bytes
			return
		}
	}
	j.pairs = append(j.pairs, p)
}

// Cancel implements plane.Plane.
func (g *Gateway) Cancel(corr effects.Corr) {
	g.inbox.Push(func(effects.Time) {
		if j := g.jobs[corr]; j != nil {
			g.stop(j, effects.Cancelled)
		}
	})
}

// stop has nothing more of a job posted.
func (g *Gateway) stop(j *job, code effects.Code) {
	e := j.link.end
	e.orders.Push(func(now effects.Time) {
		if j.stop == effects.OK {
			j.stop, j.by = code, now.Add(cancelGrace)
		}
	})
}

// write carries on what is written, and says whether anything came of it.
func (e *end) write() (moved bool) {
	now := plane.Now()
	for i := 0; i < len(e.flights); i++ {
		j := e.flights[i]
		progress, err := e.carryOn(j, now)
		if err != nil {
			e.fail(err)
			return true
		}
		moved = moved || progress
		switch {
		case len(j.flying) == 0 && (j.from == len(j.pairs) || j.stop != effects.OK):
			code := j.stop
			if j.from == len(j.pairs) {
				code = effects.OK // All of it has ended well, whatever was said meanwhile.
			}
			e.flights = append(e.flights[:i], e.flights[i+1:]...)
			i--
			e.g.inbox.Push(func(effects.Time) { e.g.settle(j, code, true) })
		case j.stop != effects.OK && now > j.by, now > j.moved.Add(effects.Duration(e.g.cfg.Limits.StallTimeout)):
			e.fail(fmt.Errorf("no batch to %s ended in time", j.link.name))
			return true
		}
	}
	return moved
}

// carryOn ends batches and posts others.
func (e *end) carryOn(j *job, now effects.Time) (progress bool, err error) {
	for len(j.flying) > 0 {
		done, err := j.flying[0].Check()
		if err != nil {
			return true, err
		}
		if !done {
			break
		}
		if err := j.flying[0].Close(); err != nil {
			return true, err // It stays among those that flew.
		}
		j.flying = j.flying[1:]
		j.moved, progress = now, true
	}
	for j.stop == effects.OK && len(j.flying) < window && j.from < len(j.pairs) {
		n, bytes := 0, uint64(0)
		for n < descriptors && j.from+n < len(j.pairs) && (n == 0 || bytes+j.pairs[j.from+n].Bytes <= batchBytes) {
			bytes += j.pairs[j.from+n].Bytes
			n++
		}
		t, err := e.agent.NewTransfer(libnixl.TransferOptions{
			Operation: libnixl.Write, Peer: j.link.name, Remote: j.remote, Pairs: j.pairs[j.from : j.from+n],
		})
		if err != nil {
			return true, err
		}
		if plane.Now() > j.notAfter {
			j.stop, j.by = effects.Expired, now.Add(cancelGrace)
			if err := t.Close(); err != nil {
				e.strays = append(e.strays, t)
				return true, err
			}
			return true, nil
		}
		if _, err := t.Post(); err != nil {
			e.strays = append(e.strays, t)
			return true, err
		}
		j.flying = append(j.flying, t)
		j.from += n
		j.moved, progress = now, true
	}
	return progress, nil
}

// fail ends all that an end writes: after an error nobody knows what may still be written, until the agent is gone.
func (e *end) fail(err error) {
	e.failed = true
	g, open := e.g, e.flights
	if e.number == machine.Front {
		g.log.Error("the agent that engines send registrations to failed: none reaches this node any more", "err", err,
			"remedy", "open the node anew")
		e.side.close()
		return
	}
	g.inbox.Push(func(effects.Time) {
		g.log.Warn("an agent failed", "agent", e.number, "err", err)
		for _, j := range open {
			g.report(j, effects.Faulted)
		}
		g.m.Failed(e.number, &g.out)
		g.dismiss(e)
	})
}

// report tells the rank that a transfer has ended, and is not settled.
func (g *Gateway) report(j *job, code effects.Code) {
	if j.told {
		return
	}
	j.told = true
	g.counted(j, code)
	g.out.Events = append(g.out.Events, &effects.TransferDone{Corr: j.corr, Code: code, At: plane.Now()})
}

// settle ends a job; without proof the rank never hears that it is settled.
func (g *Gateway) settle(j *job, code effects.Code, proven bool) {
	switch {
	case !proven:
		g.report(j, code)
	case j.told:
		g.out.Events = append(g.out.Events, &effects.Settled{Corr: j.corr, Code: code})
	default:
		g.counted(j, code)
		g.out.Events = append(g.out.Events,
			&effects.TransferDone{Corr: j.corr, Code: code, Settled: true, At: plane.Now()})
	}
	delete(g.jobs, j.corr)
	j.link.open--
	g.dropped(j.link)
}
