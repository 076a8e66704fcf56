package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// Take returns the lane's connection if the peer is Ready and no request is in
// flight on it; the caller sends one. Otherwise it opens the lane if need be and
// returns zero: the peer shows up in Changed when there is something to take.
func (l *Links) Take(v *env.Env, h table.Handle, which Lane) effects.Conn {
	p := l.peers.Get(h)
	ln := &p.lanes[which]
	if p.state != Ready || ln.busy || ln.opening {
		return 0
	}
	if ln.conn == 0 {
		ln.opening = true
		v.Out.Open(effects.Open{
			Corr: l.corr(v, kindOpenLane+uint8(which), h, p), Channel: effects.ChannelAlloc,
			Addr: effects.Addr{Host: p.where.Host, Port: p.where.AllocPort},
		})
		return 0
	}
	ln.busy = true
	return ln.conn
}

// Open says whether Take would return a connection now; it opens the lane if need be.
func (l *Links) Open(v *env.Env, h table.Handle, which Lane) bool {
	p := l.peers.Get(h)
	if ln := &p.lanes[which]; ln.conn != 0 {
		return p.state == Ready && !ln.busy
	}
	l.Take(v, h, which)
	return false
}

// Untake ends what Take began: the answer came.
func (l *Links) Untake(h table.Handle, which Lane, conn effects.Conn) {
	p := l.peers.Get(h)
	if p == nil || p.lanes[which].conn != conn {
		return
	}
	p.lanes[which].busy = false
	l.change(h, p)
}

// CloseLane closes the lane, so that no late answer can arrive; whoever waits for
// an answer on it gets Unanswered.
func (l *Links) CloseLane(v *env.Env, h table.Handle, which Lane) {
	p := l.peers.Get(h)
	ln := &p.lanes[which]
	if ln.conn != 0 {
		v.Out.Close(ln.conn)
	}
	*ln = lane{opening: ln.opening}
	l.change(h, p)
}

// CloseTaken closes the lane if conn is still its connection: its request failed.
func (l *Links) CloseTaken(v *env.Env, h table.Handle, which Lane, conn effects.Conn) {
	if p := l.peers.Get(h); p != nil && p.lanes[which].conn == conn {
		l.CloseLane(v, h, which)
	}
}

func (l *Links) onLaneOpened(v *env.Env, h table.Handle, p *Peer, which Lane, conn effects.Conn, code effects.Code) {
	ln := &p.lanes[which]
	ln.opening = false
	if code != effects.OK {
		l.Fail(v, h, code, notOpened(code))
		p.absent = code == effects.Unreachable
		return
	}
	ln.conn = conn
	l.change(h, p)
}
