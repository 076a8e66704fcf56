package replica

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// A Log is the state of a directory's client of the shared log. The caller passes each event to Step, queues frames
// with Tell, and then calls GoOn.
type Log struct {
	config Config `snap:"share"`
	lines  [2]line
	corrs  effects.Corr

	nth    uint64 // number of the next entry
	frames []byte // frames that wait to be appended
	left   bool   // a frame was dropped after the waiting frames
	// sealed is an entry that was sent, or is to be sent, and that the log has not confirmed; empty: none.
	sealed []byte

	after  sharedlog.Position // everything up to this position was read
	last   sharedlog.Position // end of the log, from the latest reply
	fresh  bool               // Caught has not used this reply yet
	unread []byte             // entries that were read and not completely returned
	entry  int                // offset in unread of the next entry
	// frame is the offset in unread of the next frame of the current entry, and frameEnd the end of the last frame.
	frame    int
	frameEnd int
	first    bool   // no frame of the current entry was returned yet
	from     teller // author of the current entry
	marks    marks
	tellers  table.Slab[teller]
	order    table.List // tellers, heard longest ago first
	gaps     uint64     // number of gaps so far, of all tellers
	// missed counts the gaps among them in which entries of a followed teller were missing.
	missed uint64
	heard  effects.Time
	begun  bool
	down   bool

	answer sharedlog.Answer `snap:"scratch"`
}

// A teller is an incarnation of another directory.
type teller struct {
	life uint64
	next uint64 // number of the next entry
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
	corr    effects.Corr // request in flight; 0: none
	opening bool
	// at is the deadline of the request in flight. Without a request it is the earliest instant for the next request.
	at effects.Time
}

// New returns a client that has read nothing. The configuration must pass its Check.
func New(c Config) Log {
	return Log{config: c, tellers: table.NewSlab[teller](c.Tellers), marks: newMarks(c.Bytes)}
}

// On reports whether a log is configured.
func (l *Log) On() bool { return l.config.On() }

// Down reports whether the log has not replied for so long that the reports of the remaining directories may be
// outdated.
func (l *Log) Down() bool { return l.down }

// Again returns the configured times after which the same worker is wanted again: the shortest and the longest.
func (l *Log) Again() (least, most effects.Duration) { return l.config.Again, l.config.AgainMost }

// Missed returns how often entries of a followed directory were missing so far.
func (l *Log) Missed() uint64 { return l.missed }

// Life returns the number of this incarnation of the directory.
func (l *Log) Life() uint64 { return l.config.Life }

// Waiting returns the number of bytes that wait to be appended.
func (l *Log) Waiting() int { return len(l.frames) + len(l.sealed) }

// Tell queues a frame for the directories that read the log. A frame that is too large, or does not fit into the
// buffer, is dropped, and the readers see a gap.
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

// Deadline returns the instant at which GoOn has work to do.
func (l *Log) Deadline() (at effects.Time, ok bool) {
	if !l.On() {
		return 0, false
	}
	if at = l.lines[reading].at; len(l.unread) > 0 {
		at = l.heard // This instant is over: frames are waiting to be returned.
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

// Step handles an event. Next returns the frames that were read.
func (l *Log) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	if !l.On() {
		return
	}
	switch x := ev.(type) {
	case *effects.Opened:
		k, ours := l.lineOf(x.Corr)
		switch {
		case !ours && x.Code == effects.OK:
			out.Close(x.Conn) // The request to open was abandoned.
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
	default: // Events of other components.
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

// end closes a connection, and schedules the next attempt after [Config.Pause].
func (l *Log) end(now effects.Time, k int, out *effects.Effects) {
	if l.lines[k].conn != 0 {
		out.Close(l.lines[k].conn)
	}
	l.lines[k] = line{at: now.Add(l.config.Pause)}
}

// replied handles a reply. A malformed reply is treated like a lost reply: the connection is closed and the request
// is repeated.
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
		// This log is not the log that was read before. Entries that are in both are recognized by their numbers.
		l.after = sharedlog.Position{}
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

// Caught reports, once for each reply, that all entries up to the end of the log at the time of the reply were read
// and returned.
func (l *Log) Caught() bool {
	all := l.fresh && len(l.unread) == 0
	if all {
		l.fresh = false
	}
	return all && !l.after.Less(l.last)
}

// GoOn opens connections and sends the requests that are due: an append if frames wait, and a read if all frames were
// returned.
func (l *Log) GoOn(now effects.Time, out *effects.Effects) {
	if !l.On() {
		return
	}
	if !l.begun {
		l.begun, l.heard = true, now
	}
	if len(l.unread) > 0 {
		// The log has replied. The next read is delayed only because frames wait to be returned.
		l.heard = now
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
