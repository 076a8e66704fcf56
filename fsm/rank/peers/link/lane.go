package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Lane is one connection to the peer's alloc port. To a peer that shares there is one lane, to where it takes lookups,
// which is LaneAlloc here. Commits have a lane of their own, which stays in lockstep: they free
// the memory that the allocations before them wait for. On the other one several requests may be in flight, as both
// ends said in their hellos.
type Lane uint8

// Lanes of a peer.
const (
	LaneAlloc Lane = iota
	LaneCommit
	Lanes
)

// Take returns the lane's connection if the peer is Ready and one more request may
// be in flight on it; the caller sends one. Otherwise it opens the lane if need be
// and returns zero: the peer shows up in Changed when there is something to take.
func (l *Links) Take(v *env.Env, h table.Handle, which Lane) effects.Conn {
	c := l.calling(v, h)
	lane := &c.p.lanes[which]
	if c.p.state != Ready || lane.opening {
		return 0
	}
	if lane.id == 0 {
		channel, at := c.laneAddr()
		window := c.x.window
		switch {
		case channel == effects.ChannelLookup:
			window = l.cfg.Lookups
		case channel == effects.ChannelRegister && which == LaneAlloc:
			window = l.cfg.Registers
		case which == LaneCommit:
			window = 0
		}
		lane.OpenMany(v, c.corr(kindOpenLane+uint8(which)), channel, window, at)
		return 0
	}
	if !lane.Ready() {
		return 0
	}
	lane.inFlight++
	return lane.id
}

// laneAddr returns the channel of the peer's lanes, and where the peer takes them.
func (c *calling) laneAddr() (effects.Channel, effects.Addr) {
	at := effects.Addr{Host: c.p.where.Host, Port: c.p.where.AllocPort}
	switch {
	case c.p.where.Shares():
		return effects.ChannelLookup, c.p.lookup
	case len(c.cfg.Geometry) > 0:
		return effects.ChannelRegister, at
	}
	return effects.ChannelAlloc, at
}

// Open says whether Take would return a connection now; it opens the lane if need be.
func (l *Links) Open(v *env.Env, h table.Handle, which Lane) bool {
	p := l.out.peers.Get(h)
	if lane := &p.lanes[which]; lane.id != 0 {
		return p.state == Ready && lane.Ready()
	}
	l.Take(v, h, which)
	return false
}

// Lane is what is known of a lane's connection, to look at now: nobody keeps it.
func (l *Links) Lane(h table.Handle, which Lane) *Conn { return &l.out.peers.Get(h).lanes[which] }

// Untake ends what Take began: the answer came.
func (l *Links) Untake(v *env.Env, h table.Handle, which Lane, conn effects.Conn) {
	p := l.out.peers.Get(h)
	if p == nil || p.lanes[which].id != conn {
		return
	}
	p.lanes[which].Answered(v.Now)
	l.out.changed.add(h, p)
}

// CloseTaken closes the lane if conn is still its connection, because its request failed: so no late answer can arrive.
// Whoever waits for an answer on it gets Unanswered.
func (l *Links) CloseTaken(v *env.Env, h table.Handle, which Lane, conn effects.Conn) {
	if c := l.calling(v, h); c.p != nil && c.p.lanes[which].id == conn {
		c.closeLane(which)
	}
}

func (c *calling) closeLane(which Lane) {
	c.p.lanes[which].Close(c.v)
	c.change()
}

func (c *calling) laneOpened(ref kernel.Ref, ev *effects.Opened) {
	c.p.lanes[ref.Kind-kindOpenLane].Opened(c.v, ev, ref)
	if ev.Code != effects.OK {
		channel, at := c.laneAddr()
		c.fail(ev.Code, laneNotOpened(at, channel, ev.Code))
		c.p.absent = ev.Code == effects.Unreachable
		return
	}
	c.change()
}
