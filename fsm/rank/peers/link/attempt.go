package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// This file handles attempts to reach an outbound peer: how an attempt begins, how an attempt or the resulting link
// fails, and when the next attempt is made. Completions of former attempts are stale. They only count against the
// number of further attempts that may begin.

// CompletionsMax returns the largest number of outstanding completions for the given limits. Each peer accounts for
// leftoversMax completions of former attempts, for one more stage, and for a connection of each lane. Evicted peers
// together account for as many completions as there are peers. The bound keeps a slow driver from being given more and
// more work.
func CompletionsMax(peersMax, leftoversMax uint32) int {
	return int(peersMax) * (int(leftoversMax) + 1 + int(Lanes) + 1)
}

// ConnsMax returns the largest number of open connections for the given number of peers: one to each peer's init port,
// and the lanes of each peer.
func ConnsMax(peersMax uint32) int { return int(peersMax) * (1 + int(Lanes)) }

// startHandshake starts a handshake. If more than LeftoversMax completions of former attempts are outstanding, connect
// postpones the handshake by a backoff delay.
func (c *outboundView) startHandshake() {
	p := c.p
	if p.outstanding > c.cfg.LeftoversMax {
		c.v.Out.Mark(Marks.ConnectPutOff)
		p.enterState(c.v.Now, Backoff)
		c.v.Timers.Set(&p.timer, c.v.Now.Add(c.out.pace.failureDelay(max(p.failures, 1))), timerRef(timerRetry, c.h))
		return
	}
	p.enterState(c.v.Now, Opening)
	p.absent, p.otherKind, c.x.link.failedPlanes = false, false, ""
	p.epoch++
	at := effects.Addr{Host: p.addr.Host, Port: p.addr.InitPort}
	p.conn.OpenSingle(c.v, c.openCorr(kindOpenInit), effects.ChannelInit, at, 0)
	c.startStageTimer()
}

// startStageTimer starts the deadline of the next stage of the handshake.
func (c *outboundView) startStageTimer() {
	c.v.Timers.Set(&c.p.timer, c.v.Now.Add(c.cfg.ReplyTimeout), timerRef(timerStage, c.h))
}

// timerRef returns the reference by which a timer finds its outbound peer.
func timerRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerLink, Kind: kind, Subject: h}
}

// FailPeer ends the link to a peer, or the attempt to make a link. The connections and the data-plane link are closed,
// and a new attempt follows after a delay. The argument detail describes the cause in more detail than the code.
// FailPeer does nothing while the peer is Idle or in Backoff.
func (l *Links) FailPeer(v *env.Env, h table.Handle, cause effects.Code, detail effects.Why) {
	c := l.viewOutbound(v, h)
	c.failPeer(cause, detail)
}

func (c *outboundView) failPeer(cause effects.Code, detail effects.Why) {
	v, p, x := c.v, c.p, c.x
	if p.state == Idle || p.state == Backoff {
		return
	}
	why := p.completeWhy(x.peerID, &detail)
	v.Out.Observe(effects.Observe{Fact: effects.FactLinkDown, Code: cause, Count: p.failures + 1, Peer: x.peerID, Why: why})
	p.epoch++
	p.conn.Close(v)
	for i := range p.lanes {
		c.closeLane(Lane(i))
	}
	p.conn, p.lanes = Conn{}, [Lanes]Conn{} // a pending Opened completion belongs to a former attempt
	c.rows.dropLink(v, p.row)
	x.peerID, x.caps, x.window, x.carryBytes, x.newestStamp = effects.Incarnation{}, 0, 0, 0, 0
	x.principal, x.tenants, x.realm = 0, nil, 0
	x.buffers, x.link.commonPlanes, x.link.planeData = x.buffers[:0], x.link.commonPlanes[:0], x.link.planeData[:0]
	p.cause, p.why = cause, why
	p.failures++
	p.readyTotal = p.ReadyTime(v.Now)
	p.enterState(v.Now, Backoff)
	v.Timers.Set(&p.timer, v.Now.Add(c.out.pace.retryDelay(p)), timerRef(timerRetry, c.h))
	c.markChanged()
}

// OnHandshakeTimer handles the timers of handshakes: the deadline of a stage, and the time of the next attempt.
func (l *Links) OnHandshakeTimer(v *env.Env, ref kernel.Ref) {
	c := l.viewOutbound(v, ref.Subject)
	p := c.p
	if p == nil {
		panic("BUG: a deadline outlived its peer")
	}
	p.timer = 0
	switch ref.Kind {
	case timerStage:
		v.Out.Mark(Marks.HandshakeTimeout)
		if p.state == Greeting && !p.everAnswered {
			p.unansweredHellos++
		}
		c.failPeer(effects.Expired, p.noReplyReason(l.cfg.ReplyTimeout))
	case timerRetry:
		p.enterState(v.Now, Idle)
		if p.users > 0 {
			c.startHandshake()
		}
	}
}

// OnLinkLost handles the end of a data-plane link to an outbound peer.
func (l *Links) OnLinkLost(v *env.Env, link effects.Link) {
	if h := l.ByLink(link); h != 0 {
		v.Out.Mark(Marks.LinkLost)
		l.FailPeer(v, h, effects.PeerLost, effects.Why{Field: "data plane", Theirs: "gone"})
	}
}

// OnConnLost handles the loss of a connection to an outbound peer. The loss of the init connection fails the attempt. A
// lost lane is closed, and opened again when there is a request to send.
func (l *Links) OnConnLost(v *env.Env, ref kernel.Ref) {
	c := l.viewOutbound(v, ref.Subject)
	if ref.Kind == kindOpenInit {
		c.failPeer(effects.PeerLost, effects.Why{Field: "connection", Theirs: "gone"})
		return
	}
	c.closeLane(Lane(ref.Kind - kindOpenLane))
}
