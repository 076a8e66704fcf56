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
	addr        effects.Addr     `snap:"share"`
	rank        uint32           `snap:"share"`
	backoffMin  effects.Duration `snap:"share"`
	backoffMax  effects.Duration `snap:"share"`
	attemptsMax uint32           `snap:"share"` // attempts to deliver one notification
	conn        effects.Conn
	opening     bool
	failures    uint32              // connections in a row that could not be opened
	notifying   table.Handle        // the request of the notification in flight
	timer       kernel.TimerID      `snap:"set"`
	message     protocol.ProxyNotif `snap:"scratch"`
}

func newProxy(cfg *Config) proxy {
	return proxy{
		addr: cfg.Proxy, rank: cfg.Rank, backoffMin: cfg.BackoffMin, backoffMax: cfg.BackoffMax, attemptsMax: cfg.TellsMax,
	}
}

// countUnnotified returns the number of requests of which the proxy was not notified yet.
func (x *proxy) countUnnotified(all *requests) int {
	if x.notifying != 0 {
		return all.countQueued() + 1
	}
	return all.countQueued()
}

// sendNext sends the next notification if the connection is free, or opens the connection.
func (x *proxy) sendNext(v *env.Env, all *requests) {
	if all.countQueued() == 0 || x.notifying != 0 || x.timer != 0 || x.opening {
		return
	}
	if x.conn == 0 {
		x.opening = true
		v.Out.Open(effects.Open{
			Corr:    v.Corrs.Open(engineRef(kindOpenProxy, 0)),
			Channel: effects.ChannelProxy, Addr: x.addr,
		})
		return
	}
	h, r := all.popQueued()
	x.notifying = h
	x.message.RequestID = r.id
	x.message.HasExt, x.message.Failed, x.message.Rank = true, r.missingChunks, x.rank
	v.Out.Post(effects.Post{
		Corr: v.Corrs.Open(engineRef(kindNotify, h)),
		Conn: x.conn, Body: v.Out.Cut(x.message.Append(v.Out.Arena())),
	})
}

// onOpened handles the completion of Open.
func (x *proxy) onOpened(v *env.Env, all *requests, ev *effects.Opened) {
	x.opening = false
	if ev.Code != effects.OK {
		x.failures++
		x.scheduleRetry(v, x.failures)
		return
	}
	x.conn, x.failures = ev.Conn, 0
	x.sendNext(v, all)
}

// onSendDone handles the completion of a notification.
func (x *proxy) onSendDone(v *env.Env, all *requests, h table.Handle, code effects.Code) {
	r := all.get(h)
	x.notifying = 0
	r.attempts++
	if code != effects.OK { // The next notification would fail, too.
		v.Out.Close(x.conn)
		x.conn = 0
	}
	if code != effects.OK && r.attempts < x.attemptsMax {
		// An error means that the notification was not sent, so the notification is still delivered at most once after
		// another attempt.
		v.Out.Mark(Marks.TellAgain)
		all.requeue(h)
		x.scheduleRetry(v, r.attempts)
		return
	}
	fact := effects.Observe{Fact: effects.FactProxyTold, Code: code, Count: r.missingChunks}
	if code != effects.OK {
		fact.Why = &effects.Why{
			Addr: x.addr, Stage: effects.StageProxy, Field: "Request", Ours: effects.SanitizeText(r.id), Theirs: "not notified",
		}
	}
	v.Out.Observe(fact)
	all.markNotified(v, h)
	x.sendNext(v, all)
}

// onConnLost closes the proxy's connection if conn is that connection. While a notification is in flight, only the
// completion of the notification decides whether the notification is repeated.
func (x *proxy) onConnLost(v *env.Env, all *requests, conn effects.Conn) {
	if x.conn == conn && x.notifying == 0 {
		v.Out.Close(conn)
		x.conn = 0
		x.sendNext(v, all)
	}
}

// onTimer makes the attempt that was postponed.
func (x *proxy) onTimer(v *env.Env, all *requests) {
	x.timer = 0
	x.sendNext(v, all)
}

// scheduleRetry postpones the next attempt. The delay doubles with each failure, from backoffMin up to backoffMax.
func (x *proxy) scheduleRetry(v *env.Env, failures uint32) {
	delay := min(x.backoffMin<<min(failures-1, 20), x.backoffMax)
	v.Timers.Set(&x.timer, v.Now.Add(delay), engineRef(kindProxy, 0))
}
