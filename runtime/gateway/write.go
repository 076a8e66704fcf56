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

// A link is a way to the pages of a peer. A link to a peer that only writes to us leads to no pages.
type link struct {
	id    effects.Link
	peer  effects.Incarnation
	end   *end // nil: we write nothing to this peer
	name  string
	to    *geometry.Regions
	open  int // jobs in flight
	lost  bool
	drops bool
}

// A job is a Transfer. The machine's goroutine owns the job until it passes the job to the agent's goroutine, which
// owns the job until the end. The comments name the fields that both goroutines use.
type job struct {
	corr     effects.Corr
	link     *link
	reported bool // TransferDone was reported; belongs to the machine's goroutine
	pairs    []libnixl.Pair
	bytes    uint64 // of all pairs
	nextPair int    // index of the first pair that is not posted
	inFlight []*libnixl.Transfer
	remote   libnixl.Side
	notAfter effects.Time
	moved    effects.Time // when a batch was last posted or completed
	stop     effects.Code // if not OK, the reason why no more batches are posted
	stopBy   effects.Time // until when batches of a stopped job are waited for
}

// Bounds of the batches of a job that are in flight.
const (
	window      = 2
	descriptors = 1024
	batchBytes  = 16 << 20
	cancelGrace = effects.Duration(200 * time.Millisecond)
)

// Import implements plane.Plane. The blob is the number of a hello.
func (g *Gateway) Import(e *effects.Import) {
	x := effects.Imported{Corr: e.Corr, Code: effects.Unreachable}
	peer, key := e.Peer, uint64(0)
	if len(e.Blob) >= 8 {
		key = binary.BigEndian.Uint64(e.Blob)
	}
	g.inbox.Push(func(effects.Time) {
		way, ok := g.m.FindRoute(key)
		switch {
		case !ok || g.over:
		case way.Incarnation != peer:
			x.Code = effects.Stale
		case way.Regions != nil && g.ends[way.Agent] == nil:
		default:
			l := &link{id: g.env.IDs.NextLink(), peer: peer, name: way.Name, to: way.Regions}
			if way.Regions != nil {
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
		case l == nil || l.lost || l.drops || l.end == nil || l.end.dismissed || g.over:
			refused = effects.PeerLost
		case l.peer != x.Peer:
			refused = effects.Stale
		case x.Read:
			refused = effects.Unsupported
		case !g.layOut(j, x.Pairs):
			refused = effects.Faulted
		}
		if refused != effects.OK {
			g.countWrite(j, refused)
			g.out.Events = append(g.out.Events,
				&effects.TransferDone{Corr: x.Corr, Code: refused, Settled: true, At: plane.Now()})
			return
		}
		g.jobs[j.corr] = j
		l.open++
		l.end.orders.Push(func(effects.Time) { l.end.jobs = append(l.end.jobs, j) })
	})
}

// layOut computes the byte ranges of a job. The result is false if a page does not exist at the peer.
func (g *Gateway) layOut(j *job, pairs []effects.Pair) bool {
	to := j.link.to
	if to.Mem == geometry.MemVRAM {
		j.remote = libnixl.Side{Kind: libnixl.Device, Device: to.Device}
	}
	for _, p := range pairs {
		if uint64(p.Remote.Index) >= to.CountPages() {
			return false
		}
		at, bytes := to.LocatePage(p.Remote.Index)
		if uint64(p.Local.Length) != bytes {
			return false
		}
		j.add(libnixl.Pair{Local: uint64(g.env.Leased.PageAddress(p.Local)), Remote: at, Bytes: bytes})
	}
	return true
}

// add appends a range, or extends the last range if both ends are adjacent.
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

// stop makes an end post nothing more of a job.
func (g *Gateway) stop(j *job, code effects.Code) {
	e := j.link.end
	e.orders.Push(func(now effects.Time) {
		if j.stop == effects.OK {
			j.stop, j.stopBy = code, now.Add(cancelGrace)
		}
	})
}

// write continues all writes, and reports whether anything happened.
func (e *end) write() (moved bool) {
	now := plane.Now()
	for i := 0; i < len(e.jobs); i++ {
		j := e.jobs[i]
		progress, err := e.advance(j, now)
		if err != nil {
			e.fail(err)
			return true
		}
		moved = moved || progress
		switch {
		case len(j.inFlight) == 0 && (j.nextPair == len(j.pairs) || j.stop != effects.OK):
			code := j.stop
			if j.nextPair == len(j.pairs) {
				code = effects.OK // all batches have succeeded, even if the job was stopped meanwhile
			}
			e.jobs = append(e.jobs[:i], e.jobs[i+1:]...)
			i--
			e.g.inbox.Push(func(effects.Time) { e.g.settle(j, code, true) })
		case j.stop != effects.OK && now > j.stopBy, now > j.moved.Add(effects.Duration(e.g.cfg.Limits.StallTimeout)):
			e.fail(fmt.Errorf("no batch to %s ended in time", j.link.name))
			return true
		}
	}
	return moved
}

// advance completes batches of a job and posts further ones.
func (e *end) advance(j *job, now effects.Time) (progress bool, err error) {
	for len(j.inFlight) > 0 {
		done, err := j.inFlight[0].Check()
		if err != nil {
			return true, err
		}
		if !done {
			break
		}
		if err := j.inFlight[0].Close(); err != nil {
			return true, err // the transfer stays in flight
		}
		j.inFlight = j.inFlight[1:]
		j.moved, progress = now, true
	}
	for j.stop == effects.OK && len(j.inFlight) < window && j.nextPair < len(j.pairs) {
		n, bytes := 0, uint64(0)
		for n < descriptors && j.nextPair+n < len(j.pairs) && (n == 0 || bytes+j.pairs[j.nextPair+n].Bytes <= batchBytes) {
			bytes += j.pairs[j.nextPair+n].Bytes
			n++
		}
		t, err := e.agent.NewTransfer(libnixl.TransferOptions{
			Operation: libnixl.Write, Peer: j.link.name, Remote: j.remote, Pairs: j.pairs[j.nextPair : j.nextPair+n],
		})
		if err != nil {
			return true, err
		}
		if plane.Now() > j.notAfter {
			j.stop, j.stopBy = effects.Expired, now.Add(cancelGrace)
			if err := t.Close(); err != nil {
				e.unclosed = append(e.unclosed, t)
				return true, err
			}
			return true, nil
		}
		if _, err := t.Post(); err != nil {
			e.unclosed = append(e.unclosed, t)
			return true, err
		}
		j.inFlight = append(j.inFlight, t)
		j.nextPair += n
		j.moved, progress = now, true
	}
	return progress, nil
}

// fail ends all writes of an end: after an error nothing is known about further stores until the agent is destroyed
// (M4).
func (e *end) fail(err error) {
	e.failed = true
	g, open := e.g, e.jobs
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
		g.m.OnWriterFailed(e.number, &g.out)
		g.dismiss(e)
	})
}

// report reports to the rank that a transfer has ended and is not settled.
func (g *Gateway) report(j *job, code effects.Code) {
	if j.reported {
		return
	}
	j.reported = true
	g.countWrite(j, code)
	g.out.Events = append(g.out.Events, &effects.TransferDone{Corr: j.corr, Code: code, At: plane.Now()})
}

// settle ends a job. Without proof that nothing is written any more, the job is never reported as settled (M4).
func (g *Gateway) settle(j *job, code effects.Code, proven bool) {
	switch {
	case !proven:
		g.report(j, code)
	case j.reported:
		g.out.Events = append(g.out.Events, &effects.Settled{Corr: j.corr, Code: code})
	default:
		g.countWrite(j, code)
		g.out.Events = append(g.out.Events,
			&effects.TransferDone{Corr: j.corr, Code: code, Settled: true, At: plane.Now()})
	}
	delete(g.jobs, j.corr)
	j.link.open--
	g.dropped(j.link)
}
