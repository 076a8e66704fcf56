package replica

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// A Log is the state of a directory's client of the shared log. The caller passes each event to Step, queues frames
// with QueueFrame, and then calls SendDue.
type Log struct {
	config   Config `snap:"share"`
	conns    [2]logConn
	lastCorr effects.Corr

	nextEntry    uint64 // number of the next entry
	queuedFrames []byte // frames that wait to be appended
	frameDropped bool   // a frame was dropped since the last entry was sealed; the next entry skips a number
	// sealedEntry is an entry that was sent, or is to be sent, and that the log has not confirmed; empty: none.
	sealedEntry []byte

	readUntil   sharedlog.Position // everything up to this position was read
	logEnd      sharedlog.Position // end of the log, from the latest reply
	replyUnused bool               // CaughtUp has not used this reply yet
	unread      []byte             // entries that were read and not completely returned
	entryOffset int                // offset in unread of the next entry
	// frameOffset is the offset in unread of the next frame of the current entry, and frameEnd the end of the last
	// frame.
	frameOffset     int
	frameEnd        int
	firstOfEntry    bool   // no frame of the current entry was returned yet
	author          author // author of the current entry
	truncationMarks truncationMarks
	authors         table.Slab[author]
	authorOrder     table.List // authors of followed entries, the one read longest ago first
	gapCount        uint64     // number of gaps so far, of all authors
	// missedCount counts the gaps among them in which entries of a followed author were missing, because the log was
	// trimmed before they were read or because the author skipped a number.
	missedCount uint64
	// otherVersions counts entries that were passed over because directories of other releases wrote them.
	otherVersions uint64
	// aliveAt is when the log last replied to a read, or when frames last waited to be returned.
	aliveAt effects.Time
	started bool
	down    bool

	answer sharedlog.Reply `snap:"scratch"`
}

// An author is an incarnation of another directory.
type author struct {
	incarnation uint64
	nextEntry   uint64 // number of the next entry
	gaps        uint64
}

// The indexes in Log.conns.
const (
	appendConn = iota
	readConn
)

// A logConn is a connection to the log.
type logConn struct {
	conn effects.Conn
	corr effects.Corr // request in flight; 0: none
	// dueAt is the deadline of the request in flight. Without a request it is the earliest instant for the next
	// request.
	dueAt effects.Time
}

// New returns a client that has read nothing. The configuration must pass its Check.
func New(c Config) Log {
	return Log{config: c, authors: table.NewSlab[author](c.Authors), truncationMarks: newTruncationMarks(c.LogBytes)}
}

// IsEnabled reports whether a log is configured.
func (l *Log) IsEnabled() bool { return l.config.IsEnabled() }

// IsDown reports whether the log has not replied to a read for 3 x RequestTimeout, so that the reports of the remaining
// directories may be outdated.
func (l *Log) IsDown() bool { return l.down }

// WantDelays returns the configured times after which the same worker is wanted again: the shortest and the longest.
func (l *Log) WantDelays() (shortest, longest effects.Duration) {
	return l.config.WantMin, l.config.WantMax
}

// CountMissed returns how often entries of a followed directory were missing so far: entries that the log trimmed
// before they were read, and entries that their author skipped because it had dropped a frame.
func (l *Log) CountMissed() uint64 { return l.missedCount }

// CountOtherVersions returns how many entries were passed over so far because their encoding has another version.
func (l *Log) CountOtherVersions() uint64 { return l.otherVersions }

// Incarnation returns the number of this incarnation of the directory.
func (l *Log) Incarnation() uint64 { return l.config.Incarnation }

// PendingBytes returns the number of bytes that wait to be appended.
func (l *Log) PendingBytes() int { return len(l.queuedFrames) + len(l.sealedEntry) }

// QueueFrame queues a frame for the directories that read the log. A frame that is too large, or does not fit into the
// buffer, is dropped, and the readers see a gap.
func (l *Log) QueueFrame(k sharedlog.FrameKind, body []byte) {
	if !l.IsEnabled() {
		return
	}
	if len(body) > l.config.FrameBytes || len(l.queuedFrames)+sharedlog.FrameBytes(len(body)) > l.config.BufferBytes {
		l.frameDropped = true
		return
	}
	l.queuedFrames = sharedlog.AppendFrame(l.queuedFrames, k, body)
}

// Deadline returns the instant at which SendDue has work to do.
func (l *Log) Deadline() (at effects.Time, ok bool) {
	if !l.IsEnabled() {
		return 0, false
	}
	if at = l.conns[readConn].dueAt; len(l.unread) > 0 {
		at = l.aliveAt // This instant is over: frames are waiting to be returned.
	}
	if a := &l.conns[appendConn]; a.corr != 0 || a.conn == 0 || l.hasPending() {
		at = min(at, a.dueAt)
	}
	if !l.down && l.started {
		at = min(at, l.downAt())
	}
	return at, true
}

func (l *Log) downAt() effects.Time { return l.aliveAt.Add(3 * l.config.RequestTimeout) }

func (l *Log) hasPending() bool { return len(l.queuedFrames) > 0 || len(l.sealedEntry) > 0 }

// Step handles an event. Next returns the frames that were read.
func (l *Log) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	if !l.IsEnabled() {
		return
	}
	switch x := ev.(type) { // Only events of these two connections have a Corr in this machine.
	case *effects.Opened:
		k, ours := l.connOf(x.Corr)
		switch {
		case !ours && x.Code == effects.OK:
			out.Close(x.Conn) // The request to open was abandoned.
		case !ours:
		case x.Code != effects.OK:
			l.closeConn(now, k, out)
		default:
			l.conns[k] = logConn{conn: x.Conn, dueAt: now}
		}
	case *effects.Replied:
		if k, ours := l.connOf(x.Corr); ours {
			l.handleReply(now, k, x.Body, out)
		}
	case *effects.Unanswered:
		if k, ours := l.connOf(x.Corr); ours {
			l.closeConn(now, k, out)
		}
	case *effects.ConnLost:
		for k := range l.conns {
			if l.conns[k].conn == x.Conn {
				l.closeConn(now, k, out)
			}
		}
	default: // Events that do not concern the log.
	}
}

func (l *Log) connOf(c effects.Corr) (int, bool) {
	for k := range l.conns {
		if c != 0 && l.conns[k].corr == c {
			return k, true
		}
	}
	return 0, false
}

// closeConn closes a connection and schedules the next attempt after [Config.ReconnectDelay].
func (l *Log) closeConn(now effects.Time, k int, out *effects.Effects) {
	if l.conns[k].conn != 0 {
		out.Close(l.conns[k].conn)
	}
	l.conns[k] = logConn{dueAt: now.Add(l.config.ReconnectDelay)}
}

// handleReply handles a reply. A malformed reply is treated like a lost reply: the connection is closed and the request
// is repeated.
func (l *Log) handleReply(now effects.Time, k int, body []byte, out *effects.Effects) {
	a := &l.answer
	if a.Decode(body) != nil {
		l.closeConn(now, k, out)
		return
	}
	x := &l.conns[k]
	x.corr, x.dueAt = 0, now
	if k == appendConn {
		l.sealedEntry = l.sealedEntry[:0] // Any well-formed reply says that the entry is stored.
		return
	}
	l.aliveAt, l.logEnd, l.replyUnused, l.down = now, a.Last, true, false
	switch n := len(a.Entries); {
	case a.Last.Less(l.readUntil):
		// This log is not the log that was read before. Entries that are in both are recognized by their numbers.
		l.readUntil = sharedlog.Position{}
		l.truncationMarks.clearMarks()
	case n > 0:
		l.readUntil = a.Entries[n-1].At
		for i := range a.Entries {
			l.truncationMarks.recordRead(a.Entries[i].At, len(a.Entries[i].Entry))
		}
		l.unread = append(l.unread, sharedlog.StoredEntries(body)...)
	}
	if !l.readUntil.Less(a.Last) {
		x.dueAt = now.Add(l.config.PollInterval)
	}
}

// CaughtUp reports, once for each reply, that all entries up to the end of the log at the time of the reply were read
// and returned.
func (l *Log) CaughtUp() bool {
	all := l.replyUnused && len(l.unread) == 0
	if all {
		l.replyUnused = false
	}
	return all && !l.readUntil.Less(l.logEnd)
}

// SendDue opens connections and sends the requests that are due: an append if frames wait, and a read if all frames
// were returned.
func (l *Log) SendDue(now effects.Time, out *effects.Effects) {
	if !l.IsEnabled() {
		return
	}
	if !l.started {
		l.started, l.aliveAt = true, now
	}
	if len(l.unread) > 0 {
		// The log has replied. The next read is delayed only because frames wait to be returned.
		l.aliveAt = now
	}
	l.down = l.down || now >= l.downAt()
	for k := range l.conns {
		x := &l.conns[k]
		if x.corr != 0 && now >= x.dueAt {
			l.closeConn(now, k, out)
		}
		switch {
		case x.corr != 0 || now < x.dueAt:
		case x.conn == 0:
			l.lastCorr++
			*x = logConn{corr: l.lastCorr, dueAt: now.Add(l.config.RequestTimeout)}
			out.Open(effects.Open{Corr: x.corr, Channel: effects.ChannelLog, Addr: l.config.Addr})
		case k == readConn && len(l.unread) > 0:
		case k == readConn:
			l.sendRequest(now, x, &sharedlog.Request{After: l.readUntil, Limit: l.config.ReadEntries}, out)
		case l.hasPending():
			l.sealEntry()
			l.sendRequest(now, x, &sharedlog.Request{Entry: l.sealedEntry, Keep: l.config.KeepEntries,
				Before: l.truncationMarks.truncateBefore()}, out)
		}
	}
}

func (l *Log) sendRequest(now effects.Time, x *logConn, r *sharedlog.Request, out *effects.Effects) {
	l.lastCorr++
	x.corr, x.dueAt = l.lastCorr, now.Add(l.config.RequestTimeout)
	out.Send(effects.Send{Corr: x.corr, Conn: x.conn, Body: out.Cut(r.Append(out.Arena()))})
}
