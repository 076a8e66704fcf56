package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Lane is one lockstep connection to the peer's alloc port. Commits have a lane
// of their own: they free the memory that the allocation before them waits for.
type Lane uint8

// Lanes of a peer.
const (
	LaneAlloc Lane = iota
	LaneCommit
	Lanes
)

// Take returns the lane's connection if the peer is Ready and no request is in
// flight on it; the caller sends one. Otherwise it opens the lane if need be and
// returns zero: the peer shows up in Changed when there is something to take.
func (l *Links) Take(v *env.Env, h table.Handle, which Lane) effects.Conn {
	p := l.peers.Get(h)
	c := &p.lanes[which]
	if p.state != Ready || c.inFlight || c.opening {
		return 0
	}
	if c.id == 0 {
		at := effects.Addr{Host: p.where.Host, Port: p.where.AllocPort}
		c.Open(v, l.corr(v, kindOpenLane+uint8(which), h, p), effects.ChannelAlloc, at)
		return 0
	}
	c.inFlight = true
	return c.id
}

// Open says whether Take would return a connection now; it opens the lane if need be.
func (l *Links) Open(v *env.Env, h table.Handle, which Lane) bool {
	p := l.peers.Get(h)
	if c := &p.lanes[which]; c.id != 0 {
		return p.state == Ready && c.Ready()
	}
	l.Take(v, h, which)
	return false
}

// Untake ends what Take began: the answer came.
func (l *Links) Untake(h table.Handle, which Lane, conn effects.Conn) {
	p := l.peers.Get(h)
	if p == nil || p.lanes[which].id != conn {
		return
	}
	p.lanes[which].Answered()
	l.change(h, p)
}

// CloseLane closes the lane, so that no late answer can arrive; whoever waits for
// an answer on it gets Unanswered.
func (l *Links) CloseLane(v *env.Env, h table.Handle, which Lane) {
	p := l.peers.Get(h)
	p.lanes[which].Close(v)
	l.change(h, p)
}

// CloseTaken closes the lane if conn is still its connection: its request failed.
func (l *Links) CloseTaken(v *env.Env, h table.Handle, which Lane, conn effects.Conn) {
	if p := l.peers.Get(h); p != nil && p.lanes[which].id == conn {
		l.CloseLane(v, h, which)
	}
}

func (l *Links) onLaneOpened(v *env.Env, ref kernel.Ref, p *Outbound, ev *effects.Opened) {
	p.lanes[ref.Kind-kindOpenLane].Opened(v, ev, ref)
	if ev.Code != effects.OK {
		l.Fail(v, ref.Subject, ev.Code, notOpened(ev.Code))
		p.absent = ev.Code == effects.Unreachable
		return
	}
	l.change(ref.Subject, p)
}
