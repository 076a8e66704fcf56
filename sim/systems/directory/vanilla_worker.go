package directory

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// The times of workers.
const (
	heartbeatInterval = 250 * effects.Millisecond
	requestTimeout    = 300 * effects.Millisecond // for a reply; then the worker repeats the request on a new connection
)

// cpuLocation is the only location of the workers' chunks.
var cpuLocation = []byte("cpu")

// vanillaWorker reports its chunks to a directory as an LMCache worker does: it registers, numbers its operations,
// sends heartbeats, sends a full sync when the directory requests one, and connects again when replies are missing.
type vanillaWorker struct {
	id                workerID                `snap:"share"`
	syncSeed          uint64                  `snap:"share"` // part of the names of the worker's syncs
	url               []byte                  `snap:"share"`
	unnumbered        bool                    `snap:"share"` // the worker's release sends operations without sequence numbers
	sendsNoHeartbeats bool                    `snap:"share"` // the worker sends no heartbeats
	directoryAddrs    [connKinds]effects.Addr `snap:"share"` // by kind of connection
	heartbeatAddr     effects.Addr
	faultsEnd         effects.Duration `snap:"share"` // when the plan's faults end; only reported to the oracles

	chunks       []uint64 // sorted
	nextSequence uint64   // the number of the next operation

	registered bool // the directory has accepted the registration
	conns      [connKinds]directoryConn
	lastCorr   effects.Corr

	unreported    []protocol.KVOperation // operations that were not reported yet
	nextHeartbeat effects.Time

	syncCount   uint64 // number of syncs so far
	stage       syncStage
	syncChunks  []uint64 // the worker's chunks when the sync began
	batchIndex  uint32   // next batch to send
	syncSent    uint64   // chunks sent in this sync
	nextBatchAt effects.Time

	lookupTicket effects.Ticket // ticket of the lookup in progress; 0 if there is none
	lookupHashes []protocol.ChunkHash
}

// A syncStage is the progress of a full sync.
type syncStage uint8

const (
	noSync syncStage = iota
	syncWanted
	syncAccepted
)

// A requestKind is the kind of a pending request.
type requestKind uint8

const (
	noRequest requestKind = iota
	requestRegister
	requestSync
	requestLookup
	requestHeartbeat
)

// directoryConn is a connection to the directory.
type directoryConn struct {
	conn     effects.Conn
	corr     effects.Corr // correlation number of the pending Open or request; 0 if there is none
	opening  bool
	request  requestKind
	deadline effects.Time
}

const (
	requestConn = iota
	feedConn
	heartbeatConn
	connKinds
)

var connChannels = [connKinds]effects.Channel{effects.ChannelDirectory, effects.ChannelFeed, effects.ChannelHeartbeat}

func newVanillaWorker(w workerID, b custom.Boot) *vanillaWorker {
	x := &vanillaWorker{
		id: w, syncSeed: b.Seed, url: w.peerURL(b), unnumbered: draw.Hash(b.Plan.Seed, draw.Plan, 8, 8).ChancePermille(500),
		faultsEnd: effects.Duration(b.Plan.FaultsEnd), sendsNoHeartbeats: draw.Hash(b.Plan.Seed, draw.Plan, 8, 9).ChancePermille(500),
	}
	for i, ch := range connChannels {
		x.directoryAddrs[i] = b.Addr(directoryName, ch)
	}
	return x
}

const noDeadline = effects.Time(1<<63 - 1)

// Deadline returns the time of the next heartbeat, batch or timeout. A worker starts without a command.
func (w *vanillaWorker) Deadline() (effects.Time, bool) {
	at := noDeadline
	switch {
	case w.registered && !w.sendsNoHeartbeats:
		at = w.nextHeartbeat
	case !w.registered && w.conns[requestConn].corr == 0:
		return 0, true
	}
	if w.stage == syncAccepted && w.conns[feedConn].corr == 0 && w.nextBatchAt < at {
		at = w.nextBatchAt
	}
	for i := range w.conns {
		if l := &w.conns[i]; l.corr != 0 && l.deadline < at {
			at = l.deadline
		}
	}
	return at, at != noDeadline
}

// Step consumes one event.
func (w *vanillaWorker) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	switch e := ev.(type) {
	case *effects.Command:
		w.handleCommand(e, out)
	case *effects.Opened:
		w.handleOpened(e, out)
	case *effects.Replied:
		if l := w.connOf(e.Corr); l != nil {
			request := l.request
			l.corr, l.request = 0, noRequest
			w.handleReply(now, request, e.Body, out)
		}
	case *effects.Unanswered:
		if l := w.connOf(e.Corr); l != nil {
			w.closeConn(l, out)
		}
	case *effects.SendDone:
		if l := &w.conns[feedConn]; e.Code != effects.OK && l.conn != 0 {
			w.closeConn(l, out)
		}
	case *effects.ConnLost:
		for i := range w.conns {
			if l := &w.conns[i]; l.conn == e.Conn {
				w.closeConn(l, out)
			}
		}
	default: // A tick, or an event that does not concern workers.
	}
	for i := range w.conns {
		if l := &w.conns[i]; l.corr != 0 && now >= l.deadline {
			w.closeConn(l, out)
		}
	}
	w.sendDue(now, out)
}

// connOf returns the connection that waits for the result of an effect, or nil.
func (w *vanillaWorker) connOf(c effects.Corr) *directoryConn {
	for i := range w.conns {
		if w.conns[i].corr == c {
			return &w.conns[i]
		}
	}
	return nil
}

// closeConn gives up a connection. A pending request is repeated on the next connection, except for a lookup.
func (w *vanillaWorker) closeConn(l *directoryConn, out *effects.Effects) {
	if l.request == requestLookup {
		w.endLookup(effects.Expired, out)
	}
	if l == &w.conns[feedConn] && w.stage == syncAccepted {
		w.stage = noSync // Batches may arrive after newer reports. The directory gives up the sync.
	}
	if l.conn != 0 {
		out.Close(l.conn)
	}
	*l = directoryConn{}
}

func (w *vanillaWorker) handleOpened(e *effects.Opened, out *effects.Effects) {
	l := w.connOf(e.Corr)
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
		l.corr = w.newCorr() // The connection is opened again after the timeout.
	}
}

func (w *vanillaWorker) newCorr() effects.Corr {
	w.lastCorr++
	return w.lastCorr
}

// endLookup ends the lookup in progress.
func (w *vanillaWorker) endLookup(code effects.Code, out *effects.Effects) {
	if w.lookupTicket != 0 {
		out.Deliver(effects.Deliver{Ticket: w.lookupTicket, Code: code})
	}
	w.lookupTicket = 0
}

func (w *vanillaWorker) handleCommand(e *effects.Command, out *effects.Effects) {
	switch x := e.Body.(type) {
	case *admitBody:
		for _, c := range x.chunks {
			w.changeChunk(c, false)
		}
	case *evictBody:
		for _, c := range x.chunks {
			w.changeChunk(c, true)
		}
	case *lookupBody:
		w.startLookup(e.Ticket, x, out)
		return
	case *finalLookupBody:
		out.Observe(effects.Observe{Fact: factAtRest, ID: uint64(w.faultsEnd)})
		w.startLookup(e.Ticket, &x.lookupBody, out)
		return
	}
	out.Deliver(effects.Deliver{Ticket: e.Ticket, Code: effects.OK})
}

func (w *vanillaWorker) startLookup(t effects.Ticket, x *lookupBody, out *effects.Effects) {
	w.endLookup(effects.Cancelled, out)
	w.lookupTicket, w.lookupHashes = t, chunkHashes(x.chunks)
}

// changeChunk adds or evicts a chunk, unless that is already done.
func (w *vanillaWorker) changeChunk(chunk uint64, evict bool) {
	at, has := slices.BinarySearch(w.chunks, chunk)
	switch {
	case has != evict:
		return
	case evict:
		w.chunks = slices.Delete(w.chunks, at, at+1)
	default:
		w.chunks = slices.Insert(w.chunks, at, chunk)
	}
	w.unreported = append(w.unreported, newOperation(chunk, evict))
}

func newOperation(chunk uint64, evict bool) protocol.KVOperation {
	op := protocol.KVOperation{Key: protocol.ChunkHash{Bits: chunk}}
	if evict {
		op.Type = protocol.OpEvict
	}
	return op
}
