package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// A clientConn is a connection to a directory. A closed line is opened again only after all outstanding completions
// have arrived. Therefore a completion is never mistaken for that of a later connection, and there are never more
// outstanding completions than the window of the line.
type clientConn struct {
	conn        effects.Conn // 0: not connected
	addr        effects.Addr `snap:"skip"`
	outstanding uint16       // outstanding completions
	failures    uint32       // consecutive failures
	openAfter   effects.Time // earliest instant for opening the line
	// replyDeadline is the deadline of the reply; 0: no reply is expected.
	replyDeadline effects.Time
}

// isReady reports whether the line is connected and has less than window outstanding completions.
func (l *clientConn) isReady(window uint16) bool { return l.conn != 0 && l.outstanding < window }

// mayOpen reports whether the line may be opened now.
func (l *clientConn) mayOpen(now effects.Time) bool {
	return l.conn == 0 && l.outstanding == 0 && now >= l.openAfter
}

// openConn opens the line. An Open is never cancelled, because the driver completes every Open.
func (l *clientConn) openConn(v *env.Env, ref kernel.Ref, ch effects.Channel, window uint16, to effects.Addr) {
	l.outstanding = 1
	v.Out.Open(effects.Open{Corr: v.Corrs.Open(ref), Channel: ch, Window: window, Addr: to})
}

// onOpened handles the completion of an Open, and reports whether the line can be used.
func (l *clientConn) onOpened(v *env.Env, ref kernel.Ref, ev *effects.Opened, p *pace) bool {
	l.outstanding = 0
	if ev.Code != effects.OK {
		l.recordFailure(v.Now, p)
		return false
	}
	l.conn = ev.Conn
	v.Conns.Bind(l.conn, ref)
	return true
}

// sendRequest sends a request, with a deadline for the reply.
func (l *clientConn) sendRequest(v *env.Env, ref kernel.Ref, body []byte, patience effects.Duration) {
	l.outstanding++
	l.replyDeadline = v.Now.Add(patience)
	v.Out.Send(effects.Send{Corr: v.Corrs.Open(ref), Conn: l.conn, Body: v.Out.Cut(body)})
}

// postMessage sends a message without a reply.
func (l *clientConn) postMessage(v *env.Env, ref kernel.Ref, body []byte) {
	l.outstanding++
	v.Out.Post(effects.Post{Corr: v.Corrs.Open(ref), Conn: l.conn, Body: v.Out.Cut(body)})
}

// completeOne handles a completion. It returns false if the completion belongs to a line that was closed since, so that
// the result is of no interest.
func (l *clientConn) completeOne() bool {
	l.outstanding--
	if l.outstanding == 0 {
		l.replyDeadline = 0
	}
	return l.conn != 0
}

// closeConn closes the connection, if there is one. The line may be opened again after a backoff.
func (l *clientConn) closeConn(v *env.Env, p *pace) {
	if l.conn == 0 {
		return
	}
	v.Out.Close(l.conn)
	v.Conns.Unbind(l.conn)
	l.conn, l.replyDeadline = 0, 0
	l.recordFailure(v.Now, p)
}

func (l *clientConn) recordFailure(now effects.Time, p *pace) {
	l.openAfter = now.Add(p.retryDelay(l.failures))
	l.failures++
}

// isOverdue reports whether the reply is overdue.
func (l *clientConn) isOverdue(now effects.Time) bool {
	return l.replyDeadline != 0 && l.outstanding > 0 && now >= l.replyDeadline
}

// A pace computes the backoff after failures.
type pace struct {
	source             prng.Source
	delayMin, delayMax effects.Duration
}

// retryDelay returns the backoff after a number of earlier failures. Half of the delay is random, so that clients that
// failed together do not reconnect together.
func (p *pace) retryDelay(fails uint32) effects.Duration {
	return p.addJitter(doubleTimes(p.delayMin, fails, p.delayMax))
}

func (p *pace) addJitter(d effects.Duration) effects.Duration {
	return d/2 + effects.Duration(p.source.Next()%uint64(d/2+1))
}

// doubleTimes returns d doubled times times, but not more than limit.
func doubleTimes(d effects.Duration, times uint32, limit effects.Duration) effects.Duration {
	for range min(times, 40) {
		if d >= limit/2 {
			return limit
		}
		d *= 2
	}
	return min(d, limit)
}

// earlierOf returns the earlier of two instants, where zero means none.
func earlierOf(a, b effects.Time) effects.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
