package replica

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// A Log is what one directory has of it. Whoever runs it gives it each event by Step, what it has to tell by Tell, and
// then calls GoOn.
type Log struct {
	config Config `snap:"share"`
	lines  [2]line
	corrs  effects.Corr

	nth    uint64 // of the next entry
	frames []byte // that wait
	left   bool   // something was left out behind them
	sealed []byte // an entry that the log may not have yet; empty: there is none

	after    sharedlog.Position // that all before were read
	last     sharedlog.Position // the end of the log, as the last answer says
	fresh    bool               // Caught has not spoken of that yet
	unread   []byte             // entries that were read, and not all handed out
	entry    int                // where the next of them begins
	frame    int                // where the next frame of the one before begins, and
	frameEnd int                // where its last one ends
	first    bool               // none of these was handed out
	from     teller             // who tells them
	marks    marks
	tellers  table.Slab[teller]
	order    table.List // those heard longest ago first
	gaps     uint64     // so far, of all
	missed   uint64     // of them, entries of who was followed
	heard    effects.Time
	begun    bool
	down     bool

	answer sharedlog.Answer `snap:"scratch"`
}

// A teller is another directory, in one life of it.
type teller struct {
	life uint64
	next uint64 // of its entries
	gaps uint64
}

// The lines.
const (
	appending = iota
	reading
)

// A line is a connection to the log.
type line struct {
	conn    effects.Conn
	corr    effects.Corr // outstanding; 0: nothing is
	opening bool
	at      effects.Time // the end of patience with that; or before which nothing is asked
}

// New returns one that has read nothing. The configuration must pass its Check.
func New(c Config) Log {
	return Log{config: c, tellers: table.NewSlab[teller](c.Tellers), marks: newMarks(c.Bytes)}
}

// On says whether there is a log.
func (l *Log) On() bool { return l.config.On() }

// Down says whether the log has not answered for so long that what other directories tell may be old.
func (l *Log) Down() bool { return l.down }

// Again is after what time a worker is wanted again: the first time, and at the most.
func (l *Log) Again() (least, most effects.Duration) { return l.config.Again, l.config.AgainMost }

// Missed is how often entries of a directory that is followed were missing so far.
func (l *Log) Missed() uint64 { return l.missed }

// Life names this life of the directory.
func (l *Log) Life() uint64 { return l.config.Life }

// Waiting is how many bytes are to be appended yet.
func (l *Log) Waiting() int { return len(l.frames) + len(l.sealed) }

// Tell has other directories be told a frame.
func (l *Log) Tell(k sharedlog.Kind, body []byte) {
	if !l.On() {
		return
	}
	if len(body) > l.config.Frame || len(l.frames)+sharedlog.FrameBytes(len(body)) > l.config.Buffer {
		l.left = true
		return
	}
	l.frames = sharedlog.AppendFrame(l.frames, k, body)
}

// Deadline is when GoOn has something to do.
func (l *Log) Deadline() (at effects.Time, ok bool) {
	if !l.On() {
		return 0, false
	}
	if at = l.lines[reading].at; len(l.unread) > 0 {
		at = l.heard // It is over: there is something to do.
	}
	if a := &l.lines[appending]; a.corr != 0 || a.conn == 0 || l.pending() {
		at = min(at, a.at)
	}
	if !l.down && l.begun {
		at = min(at, l.lateAt())
	}
	return at, true
}

func (l *Log) lateAt() effects.Time { return l.heard.Add(3 * l.config.Patience) }

func (l *Log) pending() bool { return len(l.frames) > 0 || len(l.sealed) > 0 }

// Step takes an event. What was read by it, Next hands out.
func (l *Log) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	if !l.On() {
		return
	}
	switch x := ev.(type) {
	case *effects.Opened:
		k, ours := l.lineOf(x.Corr)
		switch {
		case !ours && x.Code == effects.OK:
			out.Close(x.Conn) // Nobody waits for it any more.
		case !ours:
		case x.Code != effects.OK:
			l.end(now, k, out)
		default:
			l.lines[k] = line{conn: x.Conn, at: now}
		}
	case *effects.Replied:
		if k, ours := l.lineOf(x.Corr); ours {
			l.replied(now, k, x.Body, out)
		}
	case *effects.Unanswered:
		if k, ours := l.lineOf(x.Corr); ours {
			l.end(now, k, out)
		}
	case *effects.ConnLost:
		for k := range l.lines {
			if l.lines[k].conn == x.Conn {
				l.end(now, k, out)
			}
		}
	default: // Nothing of the log's.
	}
}

func (l *Log) lineOf(c effects.Corr) (int, bool) {
	for k := range l.lines {
		if c != 0 && l.lines[k].corr == c {
			return k, true
		}
	}
	return 0, false
}

// end gives a connection up, and lets a while pass.
func (l *Log) end(now effects.Time, k int, out *effects.Effects) {
	if l.lines[k].conn != 0 {
		out.Close(l.lines[k].conn)
	}
	l.lines[k] = line{at: now.Add(l.config.Pause)}
}

// replied takes an answer. What is none is as if there was none: a question whose answer is lost is asked again.
func (l *Log) replied(now effects.Time, k int, body []byte, out *effects.Effects) {
	a := &l.answer
	if a.Decode(body) != nil {
		l.end(now, k, out)
		return
	}
	x := &l.lines[k]
	x.corr, x.at = 0, now
	if k == appending {
		l.sealed = l.sealed[:0]
		return
	}
	l.heard, l.last, l.fresh, l.down = now, a.Last, true, false
	switch n := len(a.Entries); {
	case a.Last.Less(l.after):
		l.after = sharedlog.Position{} // It is not the one that was read before. What is in both is known by its number.
		l.marks.clear()
	case n > 0:
		l.after = a.Entries[n-1].At
		for i := range a.Entries {
			l.marks.read(a.Entries[i].At, len(a.Entries[i].Entry))
		}
		l.unread = append(l.unread, sharedlog.StoredOf(body)...)
	}
	if !l.after.Less(a.Last) {
		x.at = now.Add(l.config.Poll)
	}
}

// Caught says, once for each answer, that all was handed out which that knew of.
func (l *Log) Caught() bool {
	all := l.fresh && len(l.unread) == 0
	if all {
		l.fresh = false
	}
	return all && !l.after.Less(l.last)
}

// GoOn asks what there is to ask.
func (l *Log) GoOn(now effects.Time, out *effects.Effects) {
	if !l.On() {
		return
	}
	if !l.begun {
		l.begun, l.heard = true, now
	}
	if len(l.unread) > 0 {
		l.heard = now // It has answered, and is not asked before all of that was taken.
	}
	l.down = l.down || now >= l.lateAt()
	for k := range l.lines {
		x := &l.lines[k]
		if x.corr != 0 && now >= x.at {
			l.end(now, k, out)
		}
		switch {
		case x.corr != 0 || now < x.at:
		case x.conn == 0:
			l.corrs++
			*x = line{corr: l.corrs, opening: true, at: now.Add(l.config.Patience)}
			out.Open(effects.Open{Corr: x.corr, Channel: effects.ChannelLog, Addr: l.config.Addr})
		case k == reading && len(l.unread) > 0:
		case k == reading:
			l.ask(now, x, &sharedlog.Request{After: l.after, Most: l.config.Read}, out)
		case l.pending():
			l.seal()
			l.ask(now, x, &sharedlog.Request{Entry: l.sealed, Keep: l.config.Keep, Before: l.marks.before()}, out)
		}
	}
}

func (l *Log) ask(now effects.Time, x *line, r *sharedlog.Request, out *effects.Effects) {
	l.corrs++
	x.corr, x.at = l.corrs, now.Add(l.config.Patience)
	out.Send(effects.Send{Corr: x.corr, Conn: x.conn, Body: out.Cut(r.Append(out.Arena()))})
}
