package directory

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/fsm/directory/replica"
	"github.com/kvferry/kvferry/protocol/sharedlog"
	"github.com/kvferry/kvferry/sim/oracle"
)

var (
	checkLogReconnects = oracle.NewCheck("L5", "connections of directories to the log")
	checkLogTimeouts   = oracle.NewCheck("L5", "requests to the log that are given up")
	checkLogPolls      = oracle.NewCheck("L5", "reads of the log")
	checkLogAppends    = oracle.NewCheck("L5", "reports that are appended to the log")
	checkLogStated     = oracle.NewCheck("S17", "limits that directories state to the log")
	checkLogTruncation = oracle.NewCheck("S17", "bytes that directories let the log keep")
	checkLogEntries    = oracle.NewCheck("S17", "sizes of entries in the log")
	checkLogBuffer     = oracle.NewCheck("S17", "reports that wait for the log, or are dropped")
	checkLogDown       = oracle.NewCheck("L9", "notes that the log is down or up")
	checkLogGaps       = oracle.NewCheck("L9", "notes that entries of the log are missing")
	checkWantDelays    = oracle.NewCheck("S18", "times between requests for a full sync at another directory")
)

// logClientOracle judges each step of a directory of Replicas as a client of the log, by the effects, and by the number
// of bytes that wait to be appended.
var logClientOracle = oracle.New("log clients", "a directory reads and appends to the log in time, and keeps the limits of the log",
	func(l *oracle.Subscriptions[logClients]) {
		oracle.On(l, func(b *logClients, c *oracle.Call, e oracle.StepEnded) {
			if slices.Contains(replicaNames, c.NodeName()) {
				b.clientOf(c).judgeStep(c, &e)
			}
		})
		oracle.On(l, func(b *logClients, c *oracle.Call, _ oracle.IncarnationEnded) { delete(b.byNode, c.NodeName()) })
	})

type logClients struct{ byNode map[string]*logClient }

func (b *logClients) clientOf(c *oracle.Call) *logClient {
	if b.byNode == nil {
		b.byNode = map[string]*logClient{}
	}
	x := b.byNode[c.NodeName()]
	if x == nil {
		x = &logClient{limits: logLimitsOf(planOf(c)), frozen: c.FrozenTime(), startsLeft: 2, silence: silenceOf(planOf(c))}
		b.byNode[c.NodeName()] = x
	}
	return x
}

// A logClient is what was seen of a directory and the log. All times are of the directory's clock.
type logClient struct {
	limits     replica.Config
	now        effects.Time
	frozen     effects.Duration
	startsLeft int                // connections that were not opened for the first time yet
	closedAt   []effects.Time     // when connections ended that were not opened again yet, in order
	opening    []logOpening       //
	conns      []*logConnState    //
	readUntil  sharedlog.Position // of the entries that were read
	readBytes  int                // since the log began, with the log's overhead
	read       []readEntry        // the last entries that were read
	nextReadAt effects.Time
	frames     []readFrame        // that were read and are not handled
	unread     bool               // the directory may not know yet that it has handled all frames
	logEnd     sharedlog.Position // according to the last reply to a read
	largest    int                // largest entry that was read
	aliveAt    effects.Time
	down       bool
	authors    []logAuthor // latest last
	missed     bool        // entries are missing before a frame that this step handles

	author     uint64 // of this directory; 0: it has appended nothing
	number     uint64 // of the last entry
	sealed     []byte // the last entry, until the log has confirmed it
	waiting    int    // bytes that waited to be appended after the previous step, without the sealed entry
	cutShort   bool   // frames waited after the last entry was sealed
	lastFrames int    // bytes of the frames of the last entry
	peak       int    // most bytes that may have waited since the last entry was sealed
	largestMsg int    // largest message since then

	wants  map[workerID]wantState
	told   toldWorkers
	owners knownOwners
	// silence is after which time without a message the directory drops a worker.
	silence effects.Duration
}

type logOpening struct {
	corr effects.Corr
	at   effects.Time
}

type logConnState struct {
	conn   effects.Conn
	corr   effects.Corr // of the request in flight; 0: none
	sentAt effects.Time
	kind   logConnKind
	broken bool // in this step a reply was malformed, or the connection or the request was lost
}

type logConnKind uint8

const (
	unknownConn logConnKind = iota
	readingConn
	appendingConn
)

type readEntry struct {
	at         sharedlog.Position
	totalBytes int
}

type logAuthor struct{ id, next uint64 }

// A readFrame is a frame of an entry that was read.
type readFrame struct {
	author  uint64
	kind    sharedlog.FrameKind
	body    []byte
	size    int               // of the frame as it was written
	owner   effects.Principal // that the frame states
	missing bool              // entries before it are missing
}

// wantState is when a directory requested a sync of a worker, and after which time it may do so again.
type wantState struct {
	at    effects.Time
	delay effects.Duration
}

const (
	// logOverhead is the overhead of an entry by which directories estimate the size of the log.
	logOverhead = 128
	// frameMargin is the greatest difference between a message and its frame.
	frameMargin = 64
	// framesPerStep and frameBytesPerStep are the limits of a step of a directory, each of which ends its work on frames.
	framesPerStep, frameBytesPerStep = 256, 64 << 10
	// lateBy is how much later than due a step may come, beside the time for which the process was frozen.
	lateBy = 20 * effects.Millisecond
)

// judgeStep judges a step: first the event, then the effects in order, and then whether something is overdue.
func (x *logClient) judgeStep(c *oracle.Call, e *oracle.StepEnded) {
	frozen := c.FrozenTime() - x.frozen
	late := lateBy + frozen + frozen/20 // The clock may run fast.
	x.now, x.frozen, x.missed = c.LocalTime(), c.FrozenTime(), false
	if x.aliveAt == 0 {
		x.aliveAt = x.now
	}
	wasDown, heard := x.down, 0
	x.owners.beginStep(e.Effects)
	x.judgeSilent(c, e.Effects) // The step drops silent workers before it handles its event.
	switch ev := e.Event.(type) {
	case *effects.Received:
		heard = len(ev.Body)
		x.told.recordMessage(0, ev.Principal, ev.Body, x.now)
	case *effects.Opened:
		x.handleOpened(ev)
	case *effects.Replied:
		x.handleReplied(ev)
	case *effects.Unanswered:
		x.handleUnanswered(ev)
	case *effects.ConnLost:
		if k := x.findConn(ev.Conn); k != nil {
			k.broken = true
		}
	default: // Events that do not concern the log.
	}
	if x.handleFrames() {
		x.owners.endFrames()
	}
	x.judgeOwners(c, e)
	x.owners.endStep()
	x.peak, x.largestMsg = max(x.peak, x.waiting+heard+8*frameMargin), max(x.largestMsg, heard)
	sealedAny := false
	x.giveUpOpening()
	var logDown, logUp, truncated bool
	for i := range e.Effects.Len() {
		switch f := e.Effects.At(i).(type) {
		case *effects.Open:
			x.judgeOpen(c, f, late)
		case *effects.Close:
			x.judgeClose(c, f, late)
		case *effects.Send:
			sealedAny = x.judgeSend(c, f, late) || sealedAny
		case *effects.Observe:
			if f.Fact == effects.FactDirectory {
				k := core.NoteKind(f.ID)
				logDown, logUp, truncated = logDown || k == core.LogDown, logUp || k == core.LogUp, truncated || k == core.LogTruncated
				x.judgeWant(c, k, f)
			}
		default: // Effects that do not concern the log.
		}
	}
	x.down = x.down || x.now >= x.aliveAt.Add(3*x.limits.RequestTimeout)
	x.judgeNotes(c, wasDown, logDown, logUp, truncated)
	x.judgeOverdue(c)
	x.judgeWaiting(c, sealedAny)
}

func (x *logClient) findConn(conn effects.Conn) *logConnState {
	for _, k := range x.conns {
		if k.conn == conn {
			return k
		}
	}
	return nil
}

func (x *logClient) takeOpening(corr effects.Corr) bool {
	at := slices.IndexFunc(x.opening, func(o logOpening) bool { return o.corr == corr })
	if at >= 0 {
		x.opening = slices.Delete(x.opening, at, at+1)
	}
	return at >= 0
}

func (x *logClient) handleOpened(e *effects.Opened) {
	switch ours := x.takeOpening(e.Corr); {
	case ours && e.Code == effects.OK:
		x.conns = append(x.conns, &logConnState{conn: e.Conn})
	case ours:
		x.closedAt = append(x.closedAt, x.now)
	case e.Code == effects.OK: // The attempt was given up: the connection is closed at once.
		x.conns = append(x.conns, &logConnState{conn: e.Conn, broken: true})
		x.startsLeft-- // Closing it makes no room for another one.
	}
}

func (x *logClient) handleUnanswered(e *effects.Unanswered) {
	if x.takeOpening(e.Corr) {
		x.closedAt = append(x.closedAt, x.now)
	}
	for _, k := range x.conns {
		if k.corr == e.Corr {
			k.broken = true
		}
	}
}

// giveUpOpening gives up attempts to open a connection that have lasted for the timeout.
func (x *logClient) giveUpOpening() {
	for len(x.opening) > 0 && x.now.Sub(x.opening[0].at) >= x.limits.RequestTimeout {
		x.opening = x.opening[1:]
		x.closedAt = append(x.closedAt, x.now)
	}
}

// handleReplied handles a reply of the log.
func (x *logClient) handleReplied(e *effects.Replied) {
	at := slices.IndexFunc(x.conns, func(k *logConnState) bool { return k.corr == e.Corr })
	if at < 0 {
		return
	}
	k := x.conns[at]
	k.corr = 0
	var a sharedlog.Reply
	switch {
	case a.Decode(e.Body) != nil:
		k.broken = true
		return
	case k.kind == appendingConn:
		x.sealed = nil
		return
	}
	x.aliveAt, x.nextReadAt, x.down, x.logEnd, x.told.replyUnused = x.now, x.now, false, a.Last, true
	switch n := len(a.Entries); {
	case a.Last.Less(x.readUntil):
		x.readUntil, x.readBytes, x.read = sharedlog.Position{}, 0, x.read[:0]
	case n > 0:
		x.readUntil, x.unread = a.Entries[n-1].At, true
		for i := range a.Entries {
			x.readBytes += len(a.Entries[i].Entry) + logOverhead
			x.largest = max(x.largest, len(a.Entries[i].Entry))
			x.read = append(x.read, readEntry{a.Entries[i].At, x.readBytes})
			x.followEntry(a.Entries[i].Entry)
		}
	}
	if !x.readUntil.Less(a.Last) {
		x.nextReadAt = x.now.Add(x.limits.PollInterval)
	}
}

// handleFrames follows how many frames a step handles. It stops at the first limit, and the directory notices only after
// that whether any frame is left. It reports whether the step has handled any frame.
func (x *logClient) handleFrames() (handled bool) {
	for n, size := 0, 0; x.unread && n < framesPerStep && size < frameBytesPerStep; n++ {
		if len(x.frames) == 0 {
			x.unread, x.nextReadAt = false, max(x.nextReadAt, x.now)
			break
		}
		f := &x.frames[0]
		handled, size, x.missed = true, size+f.size, x.missed || f.missing
		x.told.follow(f, x.now)
		x.owners.follow(f)
		x.frames = x.frames[1:]
	}
	if x.unread {
		x.aliveAt = x.now // The log has replied, and the next read is late for the sake of the frames.
	} else if x.told.replyUnused {
		if x.told.replyUnused = false; !x.readUntil.Less(x.logEnd) {
			x.told.caughtUpAt = x.now
		}
	}
	return handled
}

// followEntry follows the numbers of the entries of another directory, and keeps the frames of new entries. The authors
// that were read last are followed.
func (x *logClient) followEntry(stored []byte) {
	var e sharedlog.Entry
	if len(stored) > max(x.limits.EntryBytes, x.limits.FrameBytes+5)+frameMargin || e.Decode(stored) != nil || e.Author == x.author {
		return
	}
	at, missing := slices.IndexFunc(x.authors, func(a logAuthor) bool { return a.id == e.Author }), false
	switch {
	case at >= 0 && e.Number < x.authors[at].next:
		return
	case at >= 0:
		missing = e.Number > x.authors[at].next
		x.authors = slices.Delete(x.authors, at, at+1)
	case len(x.authors) == x.limits.Authors:
		x.authors = slices.Delete(x.authors, 0, 1)
	}
	x.authors = append(x.authors, logAuthor{e.Author, e.Number + 1})
	for rest := e.Frames; len(rest) > 0; missing = false {
		f := readFrame{author: e.Author, missing: missing}
		f.kind, f.body, rest, _ = sharedlog.CutFrame(rest)
		f.size = len(f.body)
		f.kind, f.body, f.owner = unwrapFrame(f.kind, f.body)
		x.frames = append(x.frames, f)
	}
}

// judgeOpen judges that a connection is opened when the time since the end of the former one is over.
func (x *logClient) judgeOpen(c *oracle.Call, e *effects.Open, late effects.Duration) {
	if e.Channel != effects.ChannelLog {
		return
	}
	x.opening = append(x.opening, logOpening{e.Corr, x.now})
	if x.startsLeft > 0 {
		x.startsLeft--
		return
	}
	c.CountJudged(checkLogReconnects)
	switch {
	case len(x.closedAt) == 0:
		c.FailCheck(checkLogReconnects, "%s opens a third connection to the log", c.NodeName())
		return
	case x.now.Sub(x.closedAt[0]) < x.limits.ReconnectDelay:
		c.FailCheck(checkLogReconnects, "%s connects to the log %v after the end of a connection, and the delay is %v", c.NodeName(),
			x.now.Sub(x.closedAt[0]), x.limits.ReconnectDelay)
	case x.now.Sub(x.closedAt[0]) > x.limits.ReconnectDelay+late:
		c.FailCheck(checkLogReconnects, "%s connects to the log only %v after the end of a connection, and the delay is %v",
			c.NodeName(), x.now.Sub(x.closedAt[0]), x.limits.ReconnectDelay)
	}
	x.closedAt = x.closedAt[1:]
}

// judgeClose judges that a connection is closed because it is broken, or because a request on it has timed out.
func (x *logClient) judgeClose(c *oracle.Call, e *effects.Close, late effects.Duration) {
	at := slices.IndexFunc(x.conns, func(k *logConnState) bool { return k.conn == e.Conn })
	if at < 0 {
		return
	}
	k := x.conns[at]
	x.conns = slices.Delete(x.conns, at, at+1)
	if x.startsLeft < 0 {
		x.startsLeft++
		return
	}
	x.closedAt = append(x.closedAt, x.now)
	if k.broken {
		return
	}
	c.CountJudged(checkLogTimeouts)
	switch span := x.now.Sub(k.sentAt); {
	case k.corr == 0:
		c.FailCheck(checkLogTimeouts, "%s closes a connection to the log without a reason", c.NodeName())
	case span < x.limits.RequestTimeout:
		c.FailCheck(checkLogTimeouts, "%s gives up a request to the log after %v, and the timeout is %v", c.NodeName(), span,
			x.limits.RequestTimeout)
	case span > x.limits.RequestTimeout+late:
		c.FailCheck(checkLogTimeouts, "%s gives up a request to the log only after %v, and the timeout is %v", c.NodeName(), span,
			x.limits.RequestTimeout)
	}
}

// judgeSend judges a request to the log, and reports whether it appends a new entry.
func (x *logClient) judgeSend(c *oracle.Call, e *effects.Send, late effects.Duration) (sealed bool) {
	k := x.findConn(e.Conn)
	var r sharedlog.Request
	if k == nil || r.Decode(e.Body) != nil {
		return false
	}
	first := k.kind == unknownConn
	k.corr, k.sentAt = e.Corr, x.now
	if len(r.Entry) > 0 {
		k.kind = appendingConn
		return x.judgeAppend(c, &r)
	}
	k.kind = readingConn
	c.CountJudged(checkLogPolls, checkLogStated)
	switch {
	case r.Limit != x.limits.ReadEntries:
		c.FailCheck(checkLogStated, "%s reads %d entries, and the limit is %d", c.NodeName(), r.Limit, x.limits.ReadEntries)
	case r.After != x.readUntil:
		c.FailCheck(checkLogPolls, "%s reads the log after %v, and has read until %v", c.NodeName(), r.After, x.readUntil)
	case x.unread:
		c.FailCheck(checkLogPolls, "%s reads the log although %d frames may wait, and a step handles at most %d frames and %d bytes",
			c.NodeName(), len(x.frames), framesPerStep, frameBytesPerStep)
	case first:
	case x.now < x.nextReadAt:
		c.FailCheck(checkLogPolls, "%s reads the log %v too early", c.NodeName(), x.nextReadAt.Sub(x.now))
	case x.now.Sub(x.nextReadAt) > late:
		c.FailCheck(checkLogPolls, "%s reads the log %v too late", c.NodeName(), x.now.Sub(x.nextReadAt))
	}
	return false
}

// judgeAppend judges a request to append an entry, and reports whether the entry is a new one.
func (x *logClient) judgeAppend(c *oracle.Call, r *sharedlog.Request) bool {
	c.CountJudged(checkLogStated)
	if r.Keep != x.limits.KeepEntries {
		c.FailCheck(checkLogStated, "%s lets the log keep %d entries, and the limit is %d", c.NodeName(), r.Keep, x.limits.KeepEntries)
	}
	x.judgeTruncation(c, r.Before)
	var e sharedlog.Entry
	if e.Decode(r.Entry) != nil || len(x.sealed) > 0 && bytes.Equal(r.Entry, x.sealed) {
		return false // The entry is appended again, because a reply was lost.
	}
	c.CountJudged(checkLogEntries, checkLogBuffer)
	first, _, largest := x.frameSizes(e.Frames)
	skipped := x.author != 0 && e.Number != x.number+1 || x.author == 0 && e.Number != 0
	switch {
	case len(x.sealed) > 0:
		c.FailCheck(checkLogEntries, "%s appends another entry although the log has not confirmed the last one", c.NodeName())
	case first < len(e.Frames) && len(e.Frames) > x.limits.EntryBytes:
		c.FailCheck(checkLogEntries, "%s appends an entry of %d bytes, and the limit is %d", c.NodeName(), len(e.Frames), x.limits.EntryBytes)
	case x.cutShort && x.lastFrames+first <= x.limits.EntryBytes:
		c.FailCheck(checkLogEntries, "%s appended an entry of %d bytes although a frame of %d bytes waited, and the limit is %d",
			c.NodeName(), x.lastFrames, first, x.limits.EntryBytes)
	case largest > x.limits.FrameBytes:
		c.FailCheck(checkLogBuffer, "%s appends a frame of %d bytes, and the limit is %d", c.NodeName(), largest, x.limits.FrameBytes)
	case skipped && x.peak <= x.limits.BufferBytes && x.largestMsg+frameMargin <= x.limits.FrameBytes:
		c.FailCheck(checkLogBuffer, "%s has dropped a report although no more than %d of %d bytes waited", c.NodeName(), x.peak,
			x.limits.BufferBytes)
	}
	x.author, x.number, x.lastFrames = e.Author, e.Number, len(e.Frames)
	x.sealed = append([]byte(nil), r.Entry...)
	return true
}

// frameSizes returns the sizes of the first frame, the number of frames, and the size of the largest body.
func (x *logClient) frameSizes(frames []byte) (first, count, largest int) {
	for rest := frames; len(rest) > 0; count++ {
		_, body, after, ok := sharedlog.CutFrame(rest)
		if !ok {
			return first, count, largest
		}
		if count == 0 {
			first = len(rest) - len(after)
		}
		largest, rest = max(largest, len(body)), after
	}
	return first, count, largest
}

// judgeTruncation judges the position before which the log may drop entries: about as many bytes as configured stay.
func (x *logClient) judgeTruncation(c *oracle.Call, before sharedlog.Position) {
	c.CountJudged(checkLogTruncation)
	kept := x.readBytes
	if before != (sharedlog.Position{}) {
		at := slices.IndexFunc(x.read, func(r readEntry) bool { return r.at == before })
		if at < 0 {
			c.FailCheck(checkLogTruncation, "%s lets the log drop what is before %v, which it has not read", c.NodeName(), before)
			return
		}
		kept -= x.read[at].totalBytes
		x.read = append(x.read[:0], x.read[at:]...) // Earlier positions are not named any more.
	}
	// A directory remembers a position for each 64th of the bytes, at the end of an entry.
	least := x.limits.LogBytes - x.limits.LogBytes/64 - x.largest - logOverhead
	if kept > x.limits.LogBytes || before != (sharedlog.Position{}) && kept < least {
		c.FailCheck(checkLogTruncation, "%s lets the log keep %d bytes, and the limit is %d", c.NodeName(), kept, x.limits.LogBytes)
	}
}

// judgeNotes judges the notes about the log.
func (x *logClient) judgeNotes(c *oracle.Call, wasDown, logDown, logUp, truncated bool) {
	c.CountJudged(checkLogDown)
	switch {
	case logDown != (!wasDown && x.down), logUp != (wasDown && !x.down):
		c.FailCheck(checkLogDown, "%s reports down %v and up %v, and the log, which was down: %v, is down: %v", c.NodeName(), logDown, logUp,
			wasDown, x.down)
	default:
		if x.missed || truncated {
			c.CountJudged(checkLogGaps)
		}
		if x.missed != truncated {
			c.FailCheck(checkLogGaps, "%s reports that entries are missing: %v; they are: %v", c.NodeName(), truncated, x.missed)
		}
	}
}

// judgeOverdue judges that everything that was due has been done in this step.
func (x *logClient) judgeOverdue(c *oracle.Call) {
	if len(x.closedAt) > 0 && x.now.Sub(x.closedAt[0]) >= x.limits.ReconnectDelay {
		c.FailCheck(checkLogReconnects, "%s does not connect to the log %v after the end of a connection", c.NodeName(),
			x.now.Sub(x.closedAt[0]))
	}
	for _, k := range x.conns {
		switch {
		case k.broken:
			c.FailCheck(checkLogTimeouts, "%s keeps a broken connection to the log", c.NodeName())
		case k.corr != 0 && x.now.Sub(k.sentAt) >= x.limits.RequestTimeout:
			c.FailCheck(checkLogTimeouts, "%s still waits for a reply of the log after %v", c.NodeName(), x.now.Sub(k.sentAt))
		case k.kind == readingConn && k.corr == 0 && x.now >= x.nextReadAt && !x.unread:
			c.FailCheck(checkLogPolls, "%s does not read the log %v after a read was due", c.NodeName(), x.now.Sub(x.nextReadAt))
		}
	}
}

// judgeWaiting judges the bytes that wait to be appended.
func (x *logClient) judgeWaiting(c *oracle.Call, sealedAny bool) {
	x.waiting = -len(x.sealed)
	tablesOf(c).VisitKeptTables(func(name string, n, _ int) {
		if name == "bytes to append" {
			x.waiting += n
		}
	})
	c.CountJudged(checkLogBuffer)
	if x.waiting > x.limits.BufferBytes {
		c.FailCheck(checkLogBuffer, "%s keeps %d bytes for the log, and the limit is %d", c.NodeName(), x.waiting, x.limits.BufferBytes)
	}
	if sealedAny {
		x.cutShort, x.peak, x.largestMsg = x.waiting > 0, x.waiting, 0
	}
	for _, k := range x.conns {
		if k.kind != appendingConn || k.corr != 0 {
			continue
		}
		c.CountJudged(checkLogAppends)
		if x.waiting+len(x.sealed) > 0 {
			c.FailCheck(checkLogAppends, "%s does not append %d bytes that wait", c.NodeName(), x.waiting+len(x.sealed))
		}
	}
}

// judgeWant judges the time between two requests for a sync of the same worker, which doubles from the shortest to the
// longest one. The directory's time awake is never more than the time of its clock.
func (x *logClient) judgeWant(c *oracle.Call, k core.NoteKind, e *effects.Observe) {
	id := workerID{instance: string(e.Why.Name), rank: e.Count}
	switch k {
	case core.WorkerLeft, core.WorkerSilent, core.WorkerDisconnected, core.WorkerDisplaced:
		delete(x.wants, id)
	case core.WorkerWanted:
		if x.wants == nil {
			x.wants = map[workerID]wantState{}
		}
		c.CountJudged(checkWantDelays)
		last, again := x.wants[id]
		if again && x.now.Sub(last.at) < last.delay {
			c.FailCheck(checkWantDelays, "%s requests a sync of %s again after %v, and the delay is %v", c.NodeName(), id.instance,
				x.now.Sub(last.at), last.delay)
		}
		delay := min(2*last.delay, x.limits.WantMax)
		if !again || x.now.Sub(last.at) >= 2*x.limits.WantMax {
			delay = x.limits.WantMin
		}
		x.wants[id] = wantState{x.now, delay}
	default:
	}
}
