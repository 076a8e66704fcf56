package registrar

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// A line is a connection to a directory. What it awaits completions of, it awaits before it is opened again: so none
// can be taken for a later one's, and there are never more of them than its window.
type line struct {
	conn  effects.Conn // 0: there is none
	to    effects.Addr `snap:"skip"`
	owed  uint16       // completions that are awaited
	fails uint32       // in a row
	again effects.Time // not opened before
	until effects.Time // when patience with the answer is over; 0: nobody waits for one
}

// ready says whether the line can be used now, for one more of so many at a time.
func (l *line) ready(window uint16) bool { return l.conn != 0 && l.owed < window }

// mayOpen says whether the line is to be opened now by who needs it.
func (l *line) mayOpen(now effects.Time) bool { return l.conn == 0 && l.owed == 0 && now >= l.again }

// open opens it. Nobody gives up an Open: a driver ends each.
func (l *line) open(v *env.Env, ref kernel.Ref, ch effects.Channel, window uint16, to effects.Addr) {
	l.owed = 1
	v.Out.Open(effects.Open{Corr: v.Corrs.Open(ref), Channel: ch, Window: window, Addr: to})
}

// opened takes the end of that, and says whether it can be used.
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

// send asks a question, which is to be answered in time.
func (l *line) send(v *env.Env, ref kernel.Ref, body []byte, patience effects.Duration) {
	l.owed++
	l.until = v.Now.Add(patience)
	v.Out.Send(effects.Send{Corr: v.Corrs.Open(ref), Conn: l.conn, Body: v.Out.Cut(body)})
}

// post says what nobody answers.
func (l *line) post(v *env.Env, ref kernel.Ref, body []byte) {
	l.owed++
	v.Out.Post(effects.Post{Corr: v.Corrs.Open(ref), Conn: l.conn, Body: v.Out.Cut(body)})
}

// done takes a completion, and says whether anybody waits for it: not if the line was closed before.
func (l *line) done() bool {
	l.owed--
	if l.owed == 0 {
		l.until = 0
	}
	return l.conn != 0
}

// close gives the connection up, if there is one. It is opened again after a while.
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

// late says whether patience is over.
func (l *line) late(now effects.Time) bool { return l.until != 0 && l.owed > 0 && now >= l.until }

// A pace is how long what failed is left alone.
type pace struct {
	from     prng.Source
	min, max effects.Duration
}

// delay is that after so many failures before: half of it is drawn, so that who failed together comes back apart.
func (p *pace) delay(fails uint32) effects.Duration {
	return p.jitter(doubled(p.min, fails, p.max))
}

func (p *pace) jitter(d effects.Duration) effects.Duration {
	return d/2 + effects.Duration(p.from.Next()%uint64(d/2+1))
}

// doubled is d doubled so many times, and no more than most.
func doubled(d effects.Duration, times uint32, most effects.Duration) effects.Duration {
	for range min(times, 40) {
		if d >= most/2 {
			return most
		}
		d *= 2
	}
	return min(d, most)
}

// sooner is the earlier of two instants, of which zero is none.
func sooner(a, b effects.Time) effects.Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
