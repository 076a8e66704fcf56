package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// An attempt to reach a peer: how it begins, what may go wrong with it and with the link that it led to, and when the
// next one is. Completions of a former one are stale, and count only against how many more may begin.

// Owed is the most completions that a room for so many peers can be owed: of each peer those of leftoversMax
// stages of former attempts, of one more stage, and of a connection for each lane; and as many as there
// are peers of peers that had to go. A driver that lags is not asked for more.
func Owed(peersMax uint32) int {
	return int(peersMax) * (leftoversMax + 1 + int(Lanes) + 1)
}

const leftoversMax = 12

// ConnsMax is the most connections that a room for so many peers can have open: of each peer one to its init port, and
// its lanes.
func ConnsMax(peersMax uint32) int { return int(peersMax) * (1 + int(Lanes)) }

// connect starts a handshake, or puts it off while too many former attempts have not completed.
func (l *Links) connect(v *env.Env, h table.Handle, p *Outbound) {
	if p.owed > leftoversMax {
		v.Out.Mark(MarkConnectPutOff)
		p.state = Backoff
		v.Timers.Set(&p.timer, v.Now.Add(l.backoff(max(p.fails, 1))), timerRef(timerRetry, h))
		return
	}
	p.state, p.absent, p.alien, l.rows.Get(p.row).link.tried = Opening, false, false, ""
	p.epoch++
	at := effects.Addr{Host: p.where.Host, Port: p.where.InitPort}
	p.conn.Open(v, l.corr(v, kindOpenInit, h, p), effects.ChannelInit, at)
	l.stage(v, h, p)
}

func (l *Links) stage(v *env.Env, h table.Handle, p *Outbound) {
	v.Timers.Set(&p.timer, v.Now.Add(l.cfg.ReplyTimeout), timerRef(timerStage, h))
}

func (l *Links) corr(v *env.Env, kind uint8, h table.Handle, p *Outbound) effects.Corr {
	p.owed++
	return v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerLink, Kind: kind, Attempt: p.epoch, Subject: h})
}

// Fail ends the link, or the attempt at one: its connections and its data plane are closed, and it is made anew after a
// pause. What says more of the cause than its code.
func (l *Links) Fail(v *env.Env, h table.Handle, cause effects.Code, what effects.Why) {
	p := l.peers.Get(h)
	if p.state == Idle || p.state == Backoff {
		return
	}
	x := l.rows.Get(p.row)
	why := p.explain(x.who, &what)
	v.Out.Observe(effects.Observe{Fact: effects.FactLinkDown, Code: cause, Count: p.fails + 1, Peer: x.who, Why: why})
	p.epoch++
	p.conn.Close(v)
	for i := range p.lanes {
		l.CloseLane(v, h, Lane(i))
	}
	p.conn, p.lanes = Conn{}, [Lanes]Conn{} // an Opened still to come is of a former attempt
	l.drop(v, p.row)
	x.who, x.caps, x.echo = effects.Incarnation{}, 0, 0
	x.buffers, x.link.offers, x.link.planes = x.buffers[:0], x.link.offers[:0], x.link.planes[:0]
	p.cause, p.why = cause, why
	p.fails++
	p.state = Backoff
	v.Timers.Set(&p.timer, v.Now.Add(l.delay(p)), timerRef(timerRetry, h))
	l.change(h, p)
}

// OnTimer handles this room's deadlines.
func (l *Links) OnTimer(v *env.Env, ref kernel.Ref) {
	p := l.peers.Get(ref.Subject)
	if p == nil {
		panic("BUG: a deadline outlived its peer")
	}
	p.timer = 0
	switch ref.Kind {
	case timerStage:
		v.Out.Mark(MarkHandshakeTimeout)
		if p.state == Greeting && !p.met {
			p.silent++
		}
		l.Fail(v, ref.Subject, effects.Expired, p.noAnswer(l.cfg.ReplyTimeout))
	case timerRetry:
		p.state = Idle
		if p.wanted > 0 {
			l.connect(v, ref.Subject, p)
		}
	}
}

// OnLinkLost handles the end of a data-plane link that we imported.
func (l *Links) OnLinkLost(v *env.Env, link effects.Link) {
	if h := l.ByLink(link); h != 0 {
		v.Out.Mark(MarkLinkLost)
		l.Fail(v, h, effects.PeerLost, effects.Why{Field: "data plane", Theirs: "gone"})
	}
}

// OnConnLost handles the end of a connection that is ours, as ref says. One to the init port takes the attempt with it;
// a lane is opened again when somebody has something to say.
func (l *Links) OnConnLost(v *env.Env, ref kernel.Ref) {
	if ref.Kind == kindOpenInit {
		l.Fail(v, ref.Subject, effects.PeerLost, effects.Why{Field: "connection", Theirs: "gone"})
		return
	}
	l.CloseLane(v, ref.Subject, Lane(ref.Kind-kindOpenLane))
}
