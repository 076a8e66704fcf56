package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// A line is a connection to a directory. A closed line is opened again only after all outstanding completions have
// arrived. Therefore a completion is never mistaken for that of a later connection, and there are never more
// outstanding completions than the window of the line.
type line struct {
	conn  effects.Conn // 0: not connected
	to    effects.Addr `snap:"skip"`
	owed  uint16       // outstanding completions
	fails uint32       // consecutive failures
	again effects.Time // earliest instant for opening the line
	// until is the deadline of the reply; 0: no reply is expected.
	until effects.Time
}

// ready reports whether the line is connected and has less than window outstanding completions.
func (l *line) ready(window uint16) bool { return l.conn != 0 && l.owed < window }

// mayOpen reports whether the line may be opened now.
func (l *line) mayOpen(now effects.Time) bool { return l.conn == 0 && l.owed == 0 && now >= l.again }

// open opens the line. An Open is never cancelled, because the driver completes every Open.
func (l *line) open(v *env.Env, ref kernel.Ref, ch effects.Channel, window uint16, to effects.Addr) {
	l.owed = 1
	v.Out.Open(effects.Open{Corr: v.Corrs.Open(ref), Channel: ch, Window: window, Addr: to})
}

// opened handles the completion of an Open, and reports whether the line can be used.
func (l *line) opened(v *env.Env, ref kernel.Ref, ev *effects.Opened, p *pace) bool {
	l.owed = 0
	if ev.Code != effects.OK {
		l.failed(v.Now, p)
		return false
	}
	l.conn = ev.Conn
	v.Conns.Bind(l.conn, ref)
	return true
}

// send sends a request, with a deadline for the reply.
func (l *line) send(v *env.Env, ref kernel.Ref, body []byte, patience effects.Duration) {
	l.owed++
	l.until = v.Now.Add(patience)
	v.Out.Send(effects.Send{Corr: v.Corrs.Open(ref), Conn: l.conn, Body: v.Out.Cut(body)})
}

// post sends a message without a reply.
func (l *line) post(v *env.Env, ref kernel.Ref, body []byte) {
	l.owed++
	v.Out.Post(effects.Post{Corr: v.Corrs.Open(ref), Conn: l.conn, Body: v.Out.Cut(body)})
}

// done handles a completion. It returns false if the completion belongs to a line that was closed since, so that the
// result is of no interest.
func (l *line) done() bool {
	l.owed--
	if l.owed == 0 {
		l.until = 0
	}
	return l.conn != 0
}

// close closes the connection, if there is one. The line may be opened again after a backoff.
func (l *line) close(v *env.Env, p *pace) {
	if l.conn == 0 {
		return
	}
	v.Out.Close(l.conn)
	v.Conns.Unbind(l.conn)
	l.conn, l.until = 0, 0
	l.failed(v.Now, p)
}

func (l *line) failed(now effects.Time, p *pace) {
	l.again = now.Add(p.delay(l.fails))
	l.fails++
}

// late reports whether the reply is overdue.
func (l *line) late(now effects.Time) bool { return l.until != 0 && l.owed > 0 && now >= l.until }

// A pace computes the backoff after failures.
type pace struct {
	from     prng.Source
	min, max effects.Duration
}

// delay returns the backoff after a number of earlier failures. Half of the delay is random, so that clients that
// failed together do not reconnect together.
func (p *pace) delay(fails uint32) effects.Duration {
	return p.jitter(doubled(p.min, fails, p.max))
}

func (p *pace) jitter(d effects.Duration) effects.Duration {
	return d/2 + effects.Duration(p.from.Next()%uint64(d/2+1))
}

// doubled returns d doubled times times, but not more than most.
func doubled(d effects.Duration, times uint32, most effects.Duration) effects.Duration {
	for range min(times, 40) {
		if d >= most/2 {
			return most
		}
		d *= 2
	}
	return min(d, most)
}

// sooner returns the earlier of two instants, where zero means none.
func sooner(a, b effects.Time) effects.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
