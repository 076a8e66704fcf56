package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Lane identifies a connection to the peer's alloc port. The allocation lane carries as many requests in flight as both
// ends stated in their hellos. Commits have a lane of their own with one request in flight, because commits free the
// memory that the allocation requests before them wait for. To a peer that shares chunks there is one lane, LaneAlloc,
// which leads to where the peer takes lookups.
type Lane uint8

// The lanes of a peer. Lanes is the number of lanes.
const (
	LaneAlloc Lane = iota
	LaneCommit
	Lanes
)

// AcquireLane returns the connection of a lane if the peer is Ready and one more request may be in flight on the lane.
// The caller then sends one request. Otherwise AcquireLane returns zero, and opens the lane if it is not open. The peer
// is reported by NextChanged when the lane is worth another try.
func (l *Links) AcquireLane(v *env.Env, h table.Handle, laneID Lane) effects.Conn {
	c := l.viewOutbound(v, h)
	lane := &c.p.lanes[laneID]
	if c.p.state != Ready || lane.opening {
		return 0
	}
	if lane.id == 0 {
		channel, at := c.laneAddr()
		window := c.x.window
		switch {
		case channel == effects.ChannelLookup:
			window = l.cfg.Lookups
		case channel == effects.ChannelRegister && laneID == LaneAlloc:
			window = l.cfg.RegisterWindow
		case laneID == LaneCommit:
			window = 0
		}
		lane.OpenWindow(v, c.openCorr(kindOpenLane+uint8(laneID)), channel, window, at, c.x.principal)
		return 0
	}
	if !lane.CanSend() {
		return 0
	}
	lane.inFlight++
	return lane.id
}

// laneAddr returns the channel of the peer's lanes and the address at which the peer accepts them.
func (c *outboundView) laneAddr() (effects.Channel, effects.Addr) {
	at := effects.Addr{Host: c.p.addr.Host, Port: c.p.addr.AllocPort}
	switch {
	case c.p.addr.SharesChunks():
		return effects.ChannelLookup, c.p.lookupAddr
	case len(c.cfg.Geometry) > 0:
		return effects.ChannelRegister, at
	}
	return effects.ChannelAlloc, at
}

// EnsureLane reports whether AcquireLane would return a connection now. Open opens the lane if it is not open.
func (l *Links) EnsureLane(v *env.Env, h table.Handle, laneID Lane) bool {
	p := l.out.peers.Get(h)
	if lane := &p.lanes[laneID]; lane.id != 0 {
		return p.state == Ready && lane.CanSend()
	}
	l.AcquireLane(v, h, laneID)
	return false
}

// Lane returns the connection of a lane. The result is valid during the current call and must not be stored.
func (l *Links) Lane(h table.Handle, laneID Lane) *Conn { return &l.out.peers.Get(h).lanes[laneID] }

// ReleaseLane ends a request that began with AcquireLane, because its reply arrived.
func (l *Links) ReleaseLane(v *env.Env, h table.Handle, laneID Lane, conn effects.Conn) {
	p := l.out.peers.Get(h)
	if p == nil || p.lanes[laneID].id != conn {
		return
	}
	p.lanes[laneID].OnReplied(v.Now)
	p.heardAt = v.Now
	l.out.changed.addPeer(h, p)
}

// ReturnLane takes back AcquireLane, because no request is sent after all. Unlike a reply, this says nothing about the
// peer, so the other requests on the lane wait no longer for it.
func (l *Links) ReturnLane(h table.Handle, laneID Lane, conn effects.Conn) {
	p := l.out.peers.Get(h)
	if p == nil || p.lanes[laneID].id != conn {
		return
	}
	p.lanes[laneID].inFlight--
	l.out.changed.addPeer(h, p)
}

// CloseLane closes the lane if conn is still its connection, because a request on the lane failed. No late reply can
// arrive afterwards (rule M6). All requests in flight on the lane end as Unanswered.
func (l *Links) CloseLane(v *env.Env, h table.Handle, laneID Lane, conn effects.Conn) {
	if c := l.viewOutbound(v, h); c.p != nil && c.p.lanes[laneID].id == conn {
		c.closeLane(laneID)
	}
}

// closeLane closes the connection of a lane. Requests that wait for the peer are examined again.
func (c *outboundView) closeLane(laneID Lane) {
	c.p.lanes[laneID].Close(c.v)
	c.markChanged()
}

// onLaneOpened handles the completion of the opening of a lane. A failure fails the peer.
func (c *outboundView) onLaneOpened(ref kernel.Ref, ev *effects.Opened) {
	c.p.lanes[ref.Kind-kindOpenLane].OnOpened(c.v, ev, ref)
	if ev.Code != effects.OK {
		channel, at := c.laneAddr()
		c.failPeer(ev.Code, laneNotOpenedReason(at, channel, ev.Code))
		c.p.absent = ev.Code == effects.Unreachable
		return
	}
	c.markChanged()
}
