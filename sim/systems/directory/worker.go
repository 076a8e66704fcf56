package directory

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/own"
)

// What workers do in time.
const (
	beatEvery = 250 * effects.Millisecond
	patience  = 300 * effects.Millisecond // with an answer; then the worker asks anew, on another connection
)

// cpu is the one location that workers have.
var cpu = []byte("cpu")

// A worker reports what it has to a directory, as one of LMCache's workers does: it registers, numbers what it does,
// sends heartbeats, tells all that it has when it is asked to, and connects anew when it hears nothing.
type worker struct {
	who       who                     `snap:"share"`
	is        uint64                  `snap:"share"` // what names its syncs
	url       []byte                  `snap:"share"`
	old       bool                    `snap:"share"` // of a release whose operations have no numbers
	mute      bool                    `snap:"share"` // it sends no heartbeats
	directory [lineKinds]effects.Addr `snap:"share"` // by line
	beatsAt   effects.Addr
	healed    effects.Duration `snap:"share"` // when the plan's faults end: it is no machine's to know, and told to judges

	has  []uint64 // in order
	next uint64   // the number of the next operation

	known bool // the directory said so
	lines [lineKinds]line
	corrs effects.Corr

	news     []protocol.KVOperation // that were not told yet
	nextBeat effects.Time

	syncs     uint64 // so far
	sync      stage
	all       []uint64 // what the worker had as it began
	batch     uint32   // that is told next
	sent      uint64   // chunks
	nextBatch effects.Time

	asked  effects.Ticket // of the lookup under way; 0: none is
	wanted []protocol.ChunkHash
}

// A stage is how far a full sync is.
type stage uint8

const (
	noSync stage = iota
	syncWanted
	syncAccepted
)

// A question is what an answer is awaited of.
type question uint8

const (
	noQuestion question = iota
	questionRegister
	questionSync
	questionLookup
	questionBeat
)

// A line is a connection to the directory.
type line struct {
	conn    effects.Conn
	corr    effects.Corr // outstanding: of its Open, or its question; 0: nothing is
	opening bool
	of      question
	until   effects.Time
}

const (
	asking = iota
	feeding
	beating
	lineKinds
)

var lineChannels = [lineKinds]effects.Channel{effects.ChannelDirectory, effects.ChannelFeed, effects.ChannelHeartbeat}

func newWorker(w who, b own.Boot) *worker {
	x := &worker{
		who: w, is: b.Seed, url: w.url(b), old: draw.Hash(b.Plan.Seed, draw.Plan, 8, 5).Permille(500),
		healed: effects.Duration(b.Plan.FaultsEnd), mute: draw.Hash(b.Plan.Seed, draw.Plan, 8, 9).Permille(500),
	}
	for i, ch := range lineChannels {
		x.directory[i] = b.Addr(directoryName, ch)
	}
	return x
}

const never = effects.Time(1<<63 - 1)

// Deadline is the next heartbeat, or the end of somebody's patience. A worker begins by itself.
func (w *worker) Deadline() (effects.Time, bool) {
	at := never
	switch {
	case w.known && !w.mute:
		at = w.nextBeat
	case !w.known && w.lines[asking].corr == 0:
		return 0, true
	}
	if w.sync == syncAccepted && w.lines[feeding].corr == 0 && w.nextBatch < at {
		at = w.nextBatch
	}
	for i := range w.lines {
		if l := &w.lines[i]; l.corr != 0 && l.until < at {
			at = l.until
		}
	}
	return at, at != never
}

// Step consumes one event.
func (w *worker) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	switch e := ev.(type) {
	case *effects.Command:
		w.command(e, out)
	case *effects.Opened:
		w.opened(e, out)
	case *effects.Replied:
		if l := w.lineOf(e.Corr); l != nil {
			of := l.of
			l.corr, l.of = 0, noQuestion
			w.answered(now, of, e.Body, out)
		}
	case *effects.Unanswered:
		if l := w.lineOf(e.Corr); l != nil {
			w.end(l, out)
		}
	case *effects.SendDone:
		if l := &w.lines[feeding]; e.Code != effects.OK && l.conn != 0 {
			w.end(l, out)
		}
	case *effects.ConnLost:
		for i := range w.lines {
			if l := &w.lines[i]; l.conn == e.Conn {
				w.end(l, out)
			}
		}
	default: // A tick, or nothing that a worker waits for.
	}
	for i := range w.lines {
		if l := &w.lines[i]; l.corr != 0 && now >= l.until {
			w.end(l, out)
		}
	}
	w.goOn(now, out)
}

// lineOf is whose outstanding effect that is.
func (w *worker) lineOf(c effects.Corr) *line {
	for i := range w.lines {
		if w.lines[i].corr == c {
			return &w.lines[i]
		}
	}
	return nil
}

// end gives a connection up. What was asked is asked again on the next, but for a lookup.
func (w *worker) end(l *line, out *effects.Effects) {
	if l.of == questionLookup {
		w.tell(effects.Expired, out)
	}
	if l == &w.lines[feeding] && w.sync == syncAccepted {
		w.sync = noSync // What was told of it may come behind what is told now. The directory gives it up.
	}
	if l.conn != 0 {
		out.Close(l.conn)
	}
	*l = line{}
}

func (w *worker) opened(e *effects.Opened, out *effects.Effects) {
	l := w.lineOf(e.Corr)
	if l == nil || !l.opening {
		if e.Code == effects.OK {
			out.Close(e.Conn) // It came too late.
		}
		return
	}
	l.corr, l.opening = 0, false
	if e.Code == effects.OK {
		l.conn = e.Conn
	} else {
		l.corr = w.corr() // It is left alone until its time is over.
	}
}

func (w *worker) corr() effects.Corr {
	w.corrs++
	return w.corrs
}

// tell ends the lookup under way.
func (w *worker) tell(code effects.Code, out *effects.Effects) {
	if w.asked != 0 {
		out.Deliver(effects.Deliver{Ticket: w.asked, Code: code})
	}
	w.asked = 0
}

func (w *worker) command(e *effects.Command, out *effects.Effects) {
	switch x := e.Body.(type) {
	case *admit:
		for _, c := range x.chunks {
			w.does(c, false)
		}
	case *evict:
		for _, c := range x.chunks {
			w.does(c, true)
		}
	case *lookup:
		w.looks(e.Ticket, x, out)
		return
	case *settled:
		out.Observe(effects.Observe{Fact: factSettled, ID: uint64(w.healed)})
		w.looks(e.Ticket, &x.lookup, out)
		return
	}
	out.Deliver(effects.Deliver{Ticket: e.Ticket, Code: effects.OK})
}

func (w *worker) looks(t effects.Ticket, x *lookup, out *effects.Effects) {
	w.tell(effects.Cancelled, out)
	w.asked, w.wanted = t, hashes(x.chunks)
}

// does has a chunk come or go, if it is not so already.
func (w *worker) does(chunk uint64, evict bool) {
	at, has := slices.BinarySearch(w.has, chunk)
	switch {
	case has != evict:
		return
	case evict:
		w.has = slices.Delete(w.has, at, at+1)
	default:
		w.has = slices.Insert(w.has, at, chunk)
	}
	w.news = append(w.news, operation(chunk, evict))
}

func operation(chunk uint64, evict bool) protocol.KVOperation {
	op := protocol.KVOperation{Key: protocol.ChunkHash{Bits: chunk}}
	if evict {
		op.Type = protocol.OpEvict
	}
	return op
}
