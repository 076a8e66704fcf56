package directory

import (
	"slices"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// A crowd is a process that floods a directory until the end of the run. On a few connections, the process registers
// more workers than the directory has room for, under instances that do not exist, begins full syncs of these workers
// without sending a batch, and reports more chunks than the index can hold. The directory must still serve the workers
// at all remaining addresses. Oracle "converges" checks that, as in every run.

const (
	crowdName            = "crowd"
	crowdItem            = "crowd"
	silenceItem          = "silence"
	crowdConns           = 3   // request connections
	crowdWorkersPerConn  = 4   // workers per connection
	crowdMinRank         = 7   // lowest rank of the crowd's workers: no lookup is about this rank
	crowdOpsPerMessage   = 20  // chunks per message
	crowdChunksPerWorker = 120 // chunks of each worker
	crowdBurstTurns      = 8   // turns in quick succession on a new connection
	crowdInterval        = 80 * effects.Millisecond
	crowdBurstInterval   = 2 * effects.Millisecond
	crowdRestPer         = 12 // one of so many turns of a resting connection begins a rest
	crowdRestTime        = 1200 * effects.Millisecond
	crowdRestInterval    = 20 * effects.Millisecond // between messages on the feed during a rest
)

// mayFlood reports whether the world of a plan has a process that may flood the directory. The process does so only if
// the plan has an item for this: plans that are older than the item have none.
func mayFlood(p *plan.Plan) bool {
	return p.System == systemName && !hasLongPrompt(p) && draw.Hash(p.Seed, draw.Plan, 8, 30).ChancePermille(250)
}

// isFlooded reports whether the process of a plan floods the directory.
func isFlooded(p *plan.Plan) bool {
	return mayFlood(p) && slices.ContainsFunc(p.Items, func(x plan.Item) bool { return x.Do == crowdItem })
}

// floodBody is the command of the item that makes the process flood the directory. The process floods from its start
// on.
type floodBody struct{}

func (*floodBody) IsCommand() {}

func newFlood(plan.Item) effects.CommandBody { return &floodBody{} }

// silenceBody is the command of the item that makes the process fall silent: after the final lookups, which are answered
// during the flood, and before the end, when no sync may be left.
type silenceBody struct{}

func (*silenceBody) IsCommand() {}

func newSilence(plan.Item) effects.CommandBody { return &silenceBody{} }

type crowd struct {
	active          bool
	unruly          *unruliness                   `snap:"share"` // nil: every message is within the limits
	sharesInstances bool                          `snap:"share"` // the workers are ranks of a few instances
	rests           bool                          `snap:"share"` // the workers of some connections are heard on the full feed alone at times
	incarnation     protocol.UUID                 `snap:"share"`
	directoryAddrs  [connKinds]effects.Addr       `snap:"share"`
	conns           [crowdConns + 1]directoryConn // the last connection is the feed
	turns           [crowdConns + 1]int
	turnsSinceOpen  [crowdConns + 1]int                      // turns since the connection was opened
	nextUse         [crowdConns + 1]effects.Time             // when the connection is used again
	opCounts        [crowdConns * crowdWorkersPerConn]uint64 // operations reported for each worker
	lastCorr        effects.Corr
	lastSync        syncName // of an unruly crowd
}

func newCrowd(b custom.Boot) *crowd {
	x := &crowd{
		active: isFlooded(b.Plan), sharesInstances: draw.Hash(b.Plan.Seed, draw.Plan, 8, 31).ChancePermille(500),
		rests:       draw.Hash(b.Plan.Seed, draw.Plan, 8, 33).ChancePermille(700),
		incarnation: protocol.UUID{0xC0, byte(b.Seed), byte(b.Seed >> 8), 1},
	}
	if isUnruly(b.Plan) {
		x.unruly = &unruliness{seed: b.Seed, limits: limitsOf(b.Plan)}
	}
	for i, ch := range connChannels {
		x.directoryAddrs[i] = b.Addr(directoryName, ch)
	}
	return x
}

// Deadline returns the time at which a connection is used next, or at which a reply is overdue.
func (w *crowd) Deadline() (effects.Time, bool) {
	if !w.active {
		return 0, false
	}
	at := noDeadline
	for i := range w.conns {
		if l := &w.conns[i]; l.corr != 0 {
			at = min(at, l.deadline)
		} else {
			at = min(at, w.nextUse[i])
		}
	}
	return at, true
}

// Step consumes one event.
func (w *crowd) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	switch e := ev.(type) {
	case *effects.Command:
		if _, stop := e.Body.(*silenceBody); stop {
			w.active = false
		}
		out.Deliver(effects.Deliver{Ticket: e.Ticket})
	case *effects.Opened:
		w.handleOpened(e, out)
	case *effects.Replied:
		if l := w.connOf(e.Corr); l != nil {
			l.corr = 0
		}
	case *effects.Unanswered:
		w.closeConn(w.connOf(e.Corr), out)
	case *effects.SendDone:
		if l := &w.conns[crowdConns]; e.Code != effects.OK && l.conn != 0 && !l.opening {
			w.closeConn(l, out)
		}
	case *effects.ConnLost:
		for i := range w.conns {
			if w.conns[i].conn == e.Conn {
				w.closeConn(&w.conns[i], out)
			}
		}
	default: // A tick.
	}
	if !w.active {
		return
	}
	for i := range w.conns {
		if l := &w.conns[i]; l.corr != 0 && now >= l.deadline {
			w.closeConn(l, out)
		}
		if w.conns[i].corr == 0 && now >= w.nextUse[i] {
			w.nextUse[i] = now.Add(crowdInterval)
			if l := &w.conns[i]; l.conn == 0 || w.turnsSinceOpen[i] < crowdBurstTurns {
				w.nextUse[i] = now.Add(crowdBurstInterval)
			}
			if w.isResting(now) && i == crowdConns {
				w.nextUse[i] = min(w.nextUse[i], now.Add(crowdRestInterval))
			}
			w.turnsSinceOpen[i]++
			if w.mayRest(i) && w.turns[i]%crowdRestPer == crowdRestPer-1 {
				w.turns[i]++
				w.closeConn(&w.conns[i], out)
				w.nextUse[i] = now.Add(crowdRestTime)
				continue
			}
			w.useConn(now, i, out)
		}
	}
}

// mayRest reports whether a connection is closed for some time now and then. Meanwhile its workers report on the feed,
// which counts for a few of them only, so that the others are heard without a connection.
func (w *crowd) mayRest(i int) bool { return w.rests && i > 0 && i < crowdConns }

// isResting reports whether a connection rests.
func (w *crowd) isResting(now effects.Time) bool {
	for i := range w.conns {
		if w.mayRest(i) && w.conns[i].corr == 0 && w.nextUse[i] > now.Add(crowdInterval) {
			return true
		}
	}
	return false
}

func (w *crowd) connOf(c effects.Corr) *directoryConn {
	for i := range w.conns {
		if w.conns[i].corr == c {
			return &w.conns[i]
		}
	}
	return nil
}

func (w *crowd) newCorr() effects.Corr {
	w.lastCorr++
	return w.lastCorr
}

func (w *crowd) handleOpened(e *effects.Opened, out *effects.Effects) {
	l := w.connOf(e.Corr)
	switch {
	case l != nil && l.opening:
		l.corr, l.opening = 0, false
		if e.Code == effects.OK {
			l.conn = e.Conn
		}
	case e.Code == effects.OK:
		out.Close(e.Conn) // The connection was given up in the meantime.
	}
}

func (w *crowd) closeConn(l *directoryConn, out *effects.Effects) {
	if l == nil {
		return
	}
	if l.conn != 0 {
		out.Close(l.conn)
	}
	*l = directoryConn{}
}

// useConn uses a connection: it opens the connection, or sends the next message.
func (w *crowd) useConn(now effects.Time, i int, out *effects.Effects) {
	l := &w.conns[i]
	kind := requestConn
	if i == crowdConns {
		kind = feedConn
	}
	if l.conn == 0 {
		w.turnsSinceOpen[i] = 0
		*l = directoryConn{corr: w.newCorr(), opening: true, deadline: now.Add(requestTimeout)}
		out.Open(effects.Open{Corr: l.corr, Channel: connChannels[kind], Addr: w.directoryAddrs[kind]})
		return
	}
	turn := w.turns[i]
	w.turns[i]++
	if w.unruly != nil && w.misbehave(now, i, turn, out) {
		return
	}
	if kind == feedConn {
		w.sendOperations(l, turn%(crowdConns*crowdWorkersPerConn), out)
		return
	}
	sender := w.workerFor(i*crowdWorkersPerConn + turn/2%crowdWorkersPerConn)
	l.corr, l.deadline = w.newCorr(), now.Add(requestTimeout)
	var body []byte
	if turn%2 == 0 {
		m := protocol.RegisterMsg{Worker: sender, Incarnation: w.incarnation,
			Listener: protocol.Listener{IP: []byte(crowdName), Port: uint16(9000 + turn%100)}, PeerInitURL: []byte("crowd:1")}
		body = m.Append(out.Arena())
	} else {
		m := protocol.FullSyncStartMsg{Worker: sender, Incarnation: w.incarnation, Location: cpuLocation, SyncID: []byte("crowd"),
			TotalKeys: 6, BatchCount: 3}
		body = m.Append(out.Arena())
	}
	out.Send(effects.Send{Corr: l.corr, Conn: l.conn, Body: out.Cut(body)})
}

// sendOperations reports chunks for a worker that does not exist.
func (w *crowd) sendOperations(l *directoryConn, worker int, out *effects.Effects) {
	m := protocol.BatchedKVOperationMsg{Worker: w.workerFor(worker), Incarnation: w.incarnation, Location: cpuLocation}
	for range crowdOpsPerMessage {
		n := w.opCounts[worker]
		w.opCounts[worker]++
		op := newOperation(1<<40|uint64(worker)<<16|n%crowdChunksPerWorker, false)
		op.Seq = n
		m.Operations = append(m.Operations, op)
	}
	out.Post(effects.Post{Corr: w.newCorr(), Conn: l.conn, Body: out.Cut(m.Append(out.Arena()))})
}

// workerFor returns the name of a worker of the crowd. Each worker has its own instance, or the workers of a connection
// are ranks of the same instance.
func (w *crowd) workerFor(i int) protocol.Worker {
	if w.sharesInstances {
		return protocol.Worker{InstanceID: strconv.AppendInt([]byte("x"), int64(i/crowdWorkersPerConn), 10),
			WorkerID: crowdMinRank + uint32(i%crowdWorkersPerConn)}
	}
	return protocol.Worker{InstanceID: strconv.AppendInt([]byte("x"), int64(i), 10), WorkerID: crowdMinRank}
}
