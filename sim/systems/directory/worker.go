package directory

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/own"
)

// The times of workers.
const (
	beatEvery = 250 * effects.Millisecond
	patience  = 300 * effects.Millisecond // for a reply; then the worker repeats the request on a new connection
)

// cpu is the only location of the workers' chunks.
var cpu = []byte("cpu")

// worker reports its chunks to a directory as an LMCache worker does: it registers, numbers its operations, sends
// heartbeats, sends a full sync when the directory requests one, and connects again when replies are missing.
type worker struct {
	who       who                     `snap:"share"`
	is        uint64                  `snap:"share"` // part of the names of the worker's syncs
	url       []byte                  `snap:"share"`
	old       bool                    `snap:"share"` // the worker's release sends operations without sequence numbers
	mute      bool                    `snap:"share"` // the worker sends no heartbeats
	directory [lineKinds]effects.Addr `snap:"share"` // by kind of connection
	beatsAt   effects.Addr
	healed    effects.Duration `snap:"share"` // when the plan's faults end; only reported to the oracles

	has  []uint64 // sorted
	next uint64   // the number of the next operation

	known bool // the directory has accepted the registration
	lines [lineKinds]line
	corrs effects.Corr

	news     []protocol.KVOperation // operations that were not reported yet
	nextBeat effects.Time

	syncs     uint64 // number of syncs so far
	sync      stage
	all       []uint64 // the worker's chunks when the sync began
	batch     uint32   // next batch to send
	sent      uint64   // chunks sent in this sync
	nextBatch effects.Time

	asked  effects.Ticket // ticket of the lookup in progress; 0 if there is none
	wanted []protocol.ChunkHash
}

// A stage is the progress of a full sync.
type stage uint8

const (
	noSync stage = iota
	syncWanted
	syncAccepted
)

// A question is the kind of a pending request.
type question uint8

const (
	noQuestion question = iota
	questionRegister
	questionSync
	questionLookup
	questionBeat
)

// line is a connection to the directory.
type line struct {
	conn    effects.Conn
	corr    effects.Corr // correlation number of the pending Open or request; 0 if there is none
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

// Deadline returns the time of the next heartbeat, batch or timeout. A worker starts without a command.
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
	default: // A tick, or an event that does not concern workers.
	}
	for i := range w.lines {
		if l := &w.lines[i]; l.corr != 0 && now >= l.until {
			w.end(l, out)
		}
	}
	w.goOn(now, out)
}

// lineOf returns the connection that waits for the result of an effect, or nil.
func (w *worker) lineOf(c effects.Corr) *line {
	for i := range w.lines {
		if w.lines[i].corr == c {
			return &w.lines[i]
		}
	}
	return nil
}

// end gives up a connection. A pending request is repeated on the next connection, except for a lookup.
func (w *worker) end(l *line, out *effects.Effects) {
	if l.of == questionLookup {
		w.tell(effects.Expired, out)
	}
	if l == &w.lines[feeding] && w.sync == syncAccepted {
		w.sync = noSync // Batches may arrive after newer reports. The directory gives up the sync.
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
			out.Close(e.Conn) // The connection was given up in the meantime.
		}
		return
	}
	l.corr, l.opening = 0, false
	if e.Code == effects.OK {
		l.conn = e.Conn
	} else {
		l.corr = w.corr() // The connection is opened again after the timeout.
	}
}

func (w *worker) corr() effects.Corr {
	w.corrs++
	return w.corrs
}

// tell ends the lookup in progress.
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

// does adds or evicts a chunk, unless that is already done.
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
