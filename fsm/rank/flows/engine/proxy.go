package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// proxy is the one connection to the proxy. proxy delivers one notification at a time, and each notification at most
// once: a request leaves the queue before its notification is sent, and goes back only if the driver reports that the
// notification was not sent.
type proxy struct {
	at         effects.Addr     `snap:"share"`
	rank       uint32           `snap:"share"`
	backoffMin effects.Duration `snap:"share"`
	backoffMax effects.Duration `snap:"share"`
	tellsMax   uint32           `snap:"share"` // attempts to deliver one notification
	conn       effects.Conn
	opening    bool
	fails      uint32              // connections in a row that could not be opened
	telling    table.Handle        // the request of the notification in flight
	timer      kernel.TimerID      `snap:"set"`
	notif      protocol.ProxyNotif `snap:"scratch"`
}

func newProxy(cfg *Config) proxy {
	return proxy{
		at: cfg.Proxy, rank: cfg.Rank, backoffMin: cfg.BackoffMin, backoffMax: cfg.BackoffMax, tellsMax: cfg.TellsMax,
	}
}

// left returns the number of requests of which the proxy was not notified yet.
func (x *proxy) left(all *requests) int {
	if x.telling != 0 {
		return all.queued() + 1
	}
	return all.queued()
}

// maybeTell sends the next notification if the connection is free, or opens the connection.
func (x *proxy) maybeTell(v *env.Env, all *requests) {
	if all.queued() == 0 || x.telling != 0 || x.timer != 0 || x.opening {
		return
	}
	if x.conn == 0 {
		x.opening = true
		v.Out.Open(effects.Open{
			Corr:    v.Corrs.Open(ref(kindOpenProxy, 0)),
			Channel: effects.ChannelProxy, Addr: x.at,
		})
		return
	}
	h, r := all.next()
	x.telling = h
	x.notif.RequestID = r.id
	x.notif.HasExt, x.notif.Failed, x.notif.Rank = true, r.missing, x.rank
	v.Out.Post(effects.Post{
		Corr: v.Corrs.Open(ref(kindTell, h)),
		Conn: x.conn, Body: v.Out.Cut(x.notif.Append(v.Out.Arena())),
	})
}

// opened handles the completion of Open.
func (x *proxy) opened(v *env.Env, all *requests, ev *effects.Opened) {
	x.opening = false
	if ev.Code != effects.OK {
		x.fails++
		x.later(v, x.fails)
		return
	}
	x.conn, x.fails = ev.Conn, 0
	x.maybeTell(v, all)
}

// sendDone handles the completion of a notification.
func (x *proxy) sendDone(v *env.Env, all *requests, h table.Handle, code effects.Code) {
	r := all.of(h)
	x.telling = 0
	r.tries++
	if code != effects.OK { // The next notification would fail, too.
		v.Out.Close(x.conn)
		x.conn = 0
	}
	if code != effects.OK && r.tries < x.tellsMax {
		// An error means that the notification was not sent, so the notification is still delivered at most once after
		// another attempt.
		v.Out.Mark(Marks.TellAgain)
		all.again(h)
		x.later(v, r.tries)
		return
	}
	fact := effects.Observe{Fact: effects.FactProxyTold, Code: code, Count: r.missing}
	if code != effects.OK {
		fact.Why = &effects.Why{
			Addr: x.at, Stage: effects.StageProxy, Field: "Request", Ours: effects.Words(r.id), Theirs: "not told",
		}
	}
	v.Out.Observe(fact)
	all.becomeTold(v, h)
	x.maybeTell(v, all)
}

// connLost closes the proxy's connection if conn is that connection. While a notification is in flight, only the
// completion of the notification decides whether the notification is repeated.
func (x *proxy) connLost(v *env.Env, all *requests, conn effects.Conn) {
	if x.conn == conn && x.telling == 0 {
		v.Out.Close(conn)
		x.conn = 0
		x.maybeTell(v, all)
	}
}

// due makes the attempt that was postponed.
func (x *proxy) due(v *env.Env, all *requests) {
	x.timer = 0
	x.maybeTell(v, all)
}

// later postpones the next attempt. The delay doubles with each failure, from backoffMin up to backoffMax.
func (x *proxy) later(v *env.Env, tries uint32) {
	delay := min(x.backoffMin<<min(tries-1, 20), x.backoffMax)
	v.Timers.Set(&x.timer, v.Now.Add(delay), ref(kindProxy, 0))
}
