package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// An attempt to reach a peer: how it begins, what may go wrong with it and with the link that it led to, and when the
// next one is. Completions of a former one are stale, and count only against how many more may begin.

// Owed is the most completions that a room for so many peers can be owed: of each peer those of so many stages of
// former attempts, of one more stage, and of a connection for each lane; and as many as there are peers of peers that
// had to go. A driver that lags is not asked for more.
func Owed(peersMax, leftoversMax uint32) int {
	return int(peersMax) * (int(leftoversMax) + 1 + int(Lanes) + 1)
}

// ConnsMax is the most connections that a room for so many peers can have open: of each peer one to its init port, and
// its lanes.
func ConnsMax(peersMax uint32) int { return int(peersMax) * (1 + int(Lanes)) }

// connect starts a handshake, or puts it off while too many former attempts have not completed.
func (c *calling) connect() {
	p := c.p
	if p.owed > c.cfg.LeftoversMax {
		c.v.Out.Mark(Marks.ConnectPutOff)
		p.state = Backoff
		c.v.Timers.Set(&p.timer, c.v.Now.Add(c.out.pace.backoff(max(p.fails, 1))), timerRef(timerRetry, c.h))
		return
	}
	p.state, p.absent, p.alien, c.x.link.tried = Opening, false, false, ""
	p.epoch++
	at := effects.Addr{Host: p.where.Host, Port: p.where.InitPort}
	p.conn.Open(c.v, c.corr(kindOpenInit), effects.ChannelInit, at)
	c.stage()
}

// stage gives the next stage of the handshake its time.
func (c *calling) stage() {
	c.v.Timers.Set(&c.p.timer, c.v.Now.Add(c.cfg.ReplyTimeout), timerRef(timerStage, c.h))
}

func timerRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerLink, Kind: kind, Subject: h}
}

// Fail ends the link, or the attempt at one: its connections and its data plane are closed, and it is made anew after a
// pause. What says more of the cause than its code.
func (l *Links) Fail(v *env.Env, h table.Handle, cause effects.Code, what effects.Why) {
	c := l.calling(v, h)
	c.fail(cause, what)
}

func (c *calling) fail(cause effects.Code, what effects.Why) {
	v, p, x := c.v, c.p, c.x
	if p.state == Idle || p.state == Backoff {
		return
	}
	why := p.explain(x.who, &what)
	v.Out.Observe(effects.Observe{Fact: effects.FactLinkDown, Code: cause, Count: p.fails + 1, Peer: x.who, Why: why})
	p.epoch++
	p.conn.Close(v)
	for i := range p.lanes {
		c.closeLane(Lane(i))
	}
	p.conn, p.lanes = Conn{}, [Lanes]Conn{} // an Opened still to come is of a former attempt
	c.rows.drop(v, p.row)
	x.who, x.caps, x.window, x.carries, x.echo = effects.Incarnation{}, 0, 0, 0, 0
	x.buffers, x.link.offers, x.link.planes = x.buffers[:0], x.link.offers[:0], x.link.planes[:0]
	p.cause, p.why = cause, why
	p.fails++
	p.state = Backoff
	v.Timers.Set(&p.timer, v.Now.Add(c.out.pace.delay(p)), timerRef(timerRetry, c.h))
	c.change()
}

// OnTimer handles this room's deadlines.
func (l *Links) OnTimer(v *env.Env, ref kernel.Ref) {
	c := l.calling(v, ref.Subject)
	p := c.p
	if p == nil {
		panic("BUG: a deadline outlived its peer")
	}
	p.timer = 0
	switch ref.Kind {
	case timerStage:
		v.Out.Mark(Marks.HandshakeTimeout)
		if p.state == Greeting && !p.met {
			p.silent++
		}
		c.fail(effects.Expired, p.noAnswer(l.cfg.ReplyTimeout))
	case timerRetry:
		p.state = Idle
		if p.wanted > 0 {
			c.connect()
		}
	}
}

// OnLinkLost handles the end of a data-plane link that we imported.
func (l *Links) OnLinkLost(v *env.Env, link effects.Link) {
	if h := l.ByLink(link); h != 0 {
		v.Out.Mark(Marks.LinkLost)
		l.Fail(v, h, effects.PeerLost, effects.Why{Field: "data plane", Theirs: "gone"})
	}
}

// OnConnLost handles the end of a connection that is ours, as ref says. One to the init port takes the attempt with it;
// a lane is opened again when somebody has something to say.
func (l *Links) OnConnLost(v *env.Env, ref kernel.Ref) {
	c := l.calling(v, ref.Subject)
	if ref.Kind == kindOpenInit {
		c.fail(effects.PeerLost, effects.Why{Field: "connection", Theirs: "gone"})
		return
	}
	c.closeLane(Lane(ref.Kind - kindOpenLane))
}
