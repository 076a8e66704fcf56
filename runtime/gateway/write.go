//go:build cgo && linux

package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A link is a way to the pages of a peer. A link to a peer that only writes to us leads to no pages.
type link struct {
	id            effects.Link
	peer          effects.Incarnation
	agent         *ownAgent // nil: we write nothing to this peer
	agentName     string
	regions       *geometry.Regions
	openJobs      int // jobs in flight
	lost          bool
	dropRequested bool
}

// A writeJob is a Transfer. The machine's goroutine owns the job until it passes the job to the agent's goroutine,
// which owns the job until the end. The comments name the fields that both goroutines use.
type writeJob struct {
	corr         effects.Corr
	link         *link
	reported     bool // TransferDone was reported; belongs to the machine's goroutine
	pairs        []libnixl.Pair
	bytes        uint64 // of all pairs
	nextPair     int    // index of the first pair that is not posted
	inFlight     []nixlproc.Transfer
	remote       libnixl.Side
	notAfter     effects.Time
	lastProgress effects.Time // when a batch was last posted or completed
	stopCode     effects.Code // if not OK, the reason why no more batches are posted
	stopDeadline effects.Time // until when batches of a stopped job are waited for
}

// Bounds of the batches of a job that are in flight.
const (
	batchWindow      = 2
	batchDescriptors = 1024
	batchBytes       = 16 << 20
	cancelGrace      = effects.Duration(200 * time.Millisecond)
)

// Import implements plane.Plane. The blob is the number of a hello.
func (g *Gateway) Import(e *effects.Import) {
	x := effects.Imported{Corr: e.Corr, Code: effects.Unreachable}
	peer, key := e.Peer, uint64(0)
	if len(e.Blob) >= 8 {
		key = binary.BigEndian.Uint64(e.Blob)
	}
	g.inbox.Push(func(effects.Time) {
		route, ok := g.m.FindRoute(key)
		switch {
		case !ok || g.closing:
		case route.Incarnation != peer:
			x.Code = effects.Stale
		case route.Regions != nil && g.agents[route.Agent] == nil:
		default:
			l := &link{id: g.env.IDs.NextLink(), peer: peer, agentName: route.Name, regions: route.Regions}
			if route.Regions != nil {
				l.agent = g.agents[route.Agent]
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
		l.dropRequested = true
		for _, j := range g.jobs {
			if j.link == l {
				g.stopJob(j, effects.PeerLost)
			}
		}
		g.finishDrop(l)
	})
}

func (g *Gateway) finishDrop(l *link) {
	if l.dropRequested && l.openJobs == 0 {
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
		j := &writeJob{corr: x.Corr, link: l, notAfter: x.NotAfter, lastProgress: now}
		switch {
		case l == nil || l.lost || l.dropRequested || l.agent == nil || l.agent.closeRequested || g.closing:
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
		l.openJobs++
		l.agent.inbox.Push(func(effects.Time) { l.agent.jobs = append(l.agent.jobs, j) })
	})
}

// layOut computes the byte ranges of a job. The result is false if a page does not exist at the peer.
func (g *Gateway) layOut(j *writeJob, pairs []effects.Pair) bool {
	to := j.link.regions
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
		j.addRange(libnixl.Pair{Local: uint64(g.env.Leased.PageAddress(p.Local)), Remote: at, Bytes: bytes})
	}
	return true
}

// addRange appends a range, or extends the last range if both ends are adjacent.
func (j *writeJob) addRange(p libnixl.Pair) {
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
			g.stopJob(j, effects.Cancelled)
		}
	})
}

// stopJob makes an end post nothing more of a job.
func (g *Gateway) stopJob(j *writeJob, code effects.Code) {
	e := j.link.agent
	e.inbox.Push(func(now effects.Time) {
		if j.stopCode == effects.OK {
			j.stopCode, j.stopDeadline = code, now.Add(cancelGrace)
		}
	})
}

// continueWrites continues all writes, and reports whether anything happened.
func (e *ownAgent) continueWrites() (moved bool) {
	now := plane.Now()
	for i := 0; i < len(e.jobs); i++ {
		j := e.jobs[i]
		progress, err := e.advanceJob(j, now)
		if err != nil {
			e.failAgent(err)
			return true
		}
		moved = moved || progress
		switch {
		case len(j.inFlight) == 0 && (j.nextPair == len(j.pairs) || j.stopCode != effects.OK):
			code := j.stopCode
			if j.nextPair == len(j.pairs) {
				code = effects.OK // all batches have succeeded, even if the job was stopped meanwhile
			}
			e.jobs = append(e.jobs[:i], e.jobs[i+1:]...)
			i--
			e.g.inbox.Push(func(effects.Time) { e.g.settleJob(j, code, true) })
		case j.stopCode != effects.OK && now > j.stopDeadline, now > j.lastProgress.Add(effects.Duration(e.g.cfg.Limits.StallTimeout)):
			e.failAgent(fmt.Errorf("no batch to %s ended in time", j.link.agentName))
			return true
		}
	}
	return moved
}

// advanceJob completes batches of a job and posts further ones.
func (e *ownAgent) advanceJob(j *writeJob, now effects.Time) (progress bool, err error) {
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
		j.lastProgress, progress = now, true
	}
	for j.stopCode == effects.OK && len(j.inFlight) < batchWindow && j.nextPair < len(j.pairs) {
		n, bytes := 0, uint64(0)
		for n < batchDescriptors && j.nextPair+n < len(j.pairs) && (n == 0 || bytes+j.pairs[j.nextPair+n].Bytes <= batchBytes) {
			bytes += j.pairs[j.nextPair+n].Bytes
			n++
		}
		t, err := e.agent.NewTransfer(libnixl.TransferOptions{
			Operation: libnixl.Write, Peer: j.link.agentName, Remote: j.remote, Pairs: j.pairs[j.nextPair : j.nextPair+n],
		})
		if err != nil {
			return true, err
		}
		_, err = t.Post(timeUntil(j.notAfter))
		if errors.Is(err, nixlproc.ErrLate) {
			j.stopCode, j.stopDeadline = effects.Expired, now.Add(cancelGrace)
			if err := t.Close(); err != nil {
				e.unclosedTransfers = append(e.unclosedTransfers, t)
				return true, err
			}
			return true, nil
		}
		if err != nil {
			e.unclosedTransfers = append(e.unclosedTransfers, t)
			return true, err
		}
		j.inFlight = append(j.inFlight, t)
		j.nextPair += n
		j.lastProgress, progress = now, true
	}
	return progress, nil
}

// timeUntil returns how long it is until an instant, and never overflows.
func timeUntil(at effects.Time) time.Duration {
	now := plane.Now()
	if at > now && at-now < 0 {
		return math.MaxInt64
	}
	return time.Duration(at - now)
}

// failAgent ends all writes of an end: after an error nothing is known about further stores until the agent is
// destroyed (M4).
func (e *ownAgent) failAgent(err error) {
	e.failed = true
	g, open := e.g, e.jobs
	switch {
	case e.id == machine.Front && e.agent.Ended() != nil:
		g.log.Warn("the agent that receives registrations failed; it is made anew", "err", err)
		// A failure that leaves the process alone is that of the agent alone.
		if err := e.closeHandles(); err != nil {
			g.log.Warn("the agent that failed cannot be closed", "err", err)
		}
		e.sideServer.metadata.Store(nil)
		return
	case e.id == machine.Front:
		g.log.Error("the agent that receives registrations failed: no registration reaches this node any more", "err", err,
			"remedy", "close the node and open it again")
		e.sideServer.shutDown()
		return
	}
	g.inbox.Push(func(effects.Time) {
		g.log.Warn("an agent failed", "agent", e.id, "err", err)
		for _, j := range open {
			g.reportUnsettled(j, effects.Faulted)
		}
		g.m.OnWriterFailed(e.id, &g.out)
		g.requestClose(e)
	})
}

// reportUnsettled reports to the rank that a transfer has ended and is not settled.
func (g *Gateway) reportUnsettled(j *writeJob, code effects.Code) {
	if j.reported {
		return
	}
	j.reported = true
	g.countWrite(j, code)
	g.out.Events = append(g.out.Events, &effects.TransferDone{Corr: j.corr, Code: code, At: plane.Now()})
}

// settleJob ends a job. Without proof that nothing is written any more, the job is never reported as settled (M4).
func (g *Gateway) settleJob(j *writeJob, code effects.Code, proven bool) {
	switch {
	case !proven:
		g.reportUnsettled(j, code)
	case j.reported:
		g.out.Events = append(g.out.Events, &effects.Settled{Corr: j.corr, Code: code})
	default:
		g.countWrite(j, code)
		g.out.Events = append(g.out.Events,
			&effects.TransferDone{Corr: j.corr, Code: code, Settled: true, At: plane.Now()})
	}
	delete(g.jobs, j.corr)
	j.link.openJobs--
	g.finishDrop(j.link)
}
