package directory

import (
	"slices"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/own"
)

// A crowd is a process that floods a directory until the end of the run. On a few connections, the process registers
// more workers than the directory has room for, under instances that do not exist, begins full syncs of these workers
// without sending a batch, and reports more chunks than the index can hold. The directory must still serve the workers
// at all remaining addresses. Oracle "converges" checks that, as in every run.

const (
	crowdName  = "crowd"
	crowdItem  = "crowd"
	crowdLines = 3   // request connections
	crowdOf    = 4   // workers per connection
	crowdRank  = 7   // lowest rank of the crowd's workers: no lookup is about this rank
	crowdOps   = 20  // chunks per message
	crowdHas   = 120 // chunks of each worker
	crowdBurst = 8   // turns in quick succession on a new connection
	crowdTurn  = 80 * effects.Millisecond
	crowdHurry = 2 * effects.Millisecond
)

// isCrowded reports whether the world of a plan has a process that may flood the directory. The process does so only if
// the plan has an item for this: plans that are older than the item have none.
func isCrowded(p *plan.Plan) bool {
	return p.System == systemName && !isLong(p) && draw.Hash(p.Seed, draw.Plan, 8, 30).Permille(250)
}

// floods reports whether the process of a plan floods the directory.
func floods(p *plan.Plan) bool {
	return isCrowded(p) && slices.ContainsFunc(p.Items, func(x plan.Item) bool { return x.Do == crowdItem })
}

// begins is the command of the item that makes the process flood the directory. The process floods from its start on.
type begins struct{}

func (*begins) IsCommand() {}

func crowds(plan.Item) effects.CommandBody { return &begins{} }

type crowd struct {
	floods    bool                    `snap:"share"`
	ranks     bool                    `snap:"share"` // the workers are ranks of a few instances
	is        protocol.UUID           `snap:"share"`
	directory [lineKinds]effects.Addr `snap:"share"`
	lines     [crowdLines + 1]line    // the last connection is the feed
	turns     [crowdLines + 1]int
	fresh     [crowdLines + 1]int          // turns since the connection was opened
	next      [crowdLines + 1]effects.Time // when the connection is used again
	told      [crowdLines * crowdOf]uint64 // operations reported for each worker
	corrs     effects.Corr
}

func newCrowd(b own.Boot) *crowd {
	x := &crowd{
		floods: floods(b.Plan), ranks: draw.Hash(b.Plan.Seed, draw.Plan, 8, 31).Permille(500),
		is: protocol.UUID{0xC0, byte(b.Seed), byte(b.Seed >> 8), 1},
	}
	for i, ch := range lineChannels {
		x.directory[i] = b.Addr(directoryName, ch)
	}
	return x
}

// Deadline returns the time at which a connection is used next, or at which a reply is overdue.
func (w *crowd) Deadline() (effects.Time, bool) {
	if !w.floods {
		return 0, false
	}
	at := never
	for i := range w.lines {
		if l := &w.lines[i]; l.corr != 0 {
			at = min(at, l.until)
		} else {
			at = min(at, w.next[i])
		}
	}
	return at, true
}

// Step consumes one event.
func (w *crowd) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	switch e := ev.(type) {
	case *effects.Command:
		out.Deliver(effects.Deliver{Ticket: e.Ticket})
	case *effects.Opened:
		w.opened(e, out)
	case *effects.Replied:
		if l := w.lineOf(e.Corr); l != nil {
			l.corr = 0
		}
	case *effects.Unanswered:
		w.end(w.lineOf(e.Corr), out)
	case *effects.SendDone:
		if l := &w.lines[crowdLines]; e.Code != effects.OK && l.conn != 0 && !l.opening {
			w.end(l, out)
		}
	case *effects.ConnLost:
		for i := range w.lines {
			if w.lines[i].conn == e.Conn {
				w.end(&w.lines[i], out)
			}
		}
	default: // A tick.
	}
	if !w.floods {
		return
	}
	for i := range w.lines {
		if l := &w.lines[i]; l.corr != 0 && now >= l.until {
			w.end(l, out)
		}
		if w.lines[i].corr == 0 && now >= w.next[i] {
			w.next[i] = now.Add(crowdTurn)
			if l := &w.lines[i]; l.conn == 0 || w.fresh[i] < crowdBurst {
				w.next[i] = now.Add(crowdHurry)
			}
			w.fresh[i]++
			w.goOn(now, i, out)
		}
	}
}

func (w *crowd) lineOf(c effects.Corr) *line {
	for i := range w.lines {
		if w.lines[i].corr == c {
			return &w.lines[i]
		}
	}
	return nil
}

func (w *crowd) corr() effects.Corr {
	w.corrs++
	return w.corrs
}

func (w *crowd) opened(e *effects.Opened, out *effects.Effects) {
	l := w.lineOf(e.Corr)
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

func (w *crowd) end(l *line, out *effects.Effects) {
	if l == nil {
		return
	}
	if l.conn != 0 {
		out.Close(l.conn)
	}
	*l = line{}
}

// goOn uses a connection: it opens the connection, or sends the next message.
func (w *crowd) goOn(now effects.Time, i int, out *effects.Effects) {
	l := &w.lines[i]
	kind := asking
	if i == crowdLines {
		kind = feeding
	}
	if l.conn == 0 {
		w.fresh[i] = 0
		*l = line{corr: w.corr(), opening: true, until: now.Add(patience)}
		out.Open(effects.Open{Corr: l.corr, Channel: lineChannels[kind], Addr: w.directory[kind]})
		return
	}
	turn := w.turns[i]
	w.turns[i]++
	if kind == feeding {
		w.tells(l, turn%(crowdLines*crowdOf), out)
		return
	}
	who := w.worker(i*crowdOf + turn/2%crowdOf)
	l.corr, l.until = w.corr(), now.Add(patience)
	var body []byte
	if turn%2 == 0 {
		m := protocol.RegisterMsg{Worker: who, Incarnation: w.is,
			Listener: protocol.Listener{IP: []byte(crowdName), Port: uint16(9000 + turn%100)}, PeerInitURL: []byte("crowd:1")}
		body = m.Append(out.Arena())
	} else {
		m := protocol.FullSyncStartMsg{Worker: who, Location: cpu, SyncID: []byte("crowd"), TotalKeys: 6, BatchCount: 3}
		body = m.Append(out.Arena())
	}
	out.Send(effects.Send{Corr: l.corr, Conn: l.conn, Body: out.Cut(body)})
}

// tells reports chunks for a worker that does not exist.
func (w *crowd) tells(l *line, worker int, out *effects.Effects) {
	m := protocol.BatchedKVOperationMsg{Worker: w.worker(worker), Location: cpu}
	for range crowdOps {
		n := w.told[worker]
		w.told[worker]++
		op := operation(1<<40|uint64(worker)<<16|n%crowdHas, false)
		op.Seq = n
		m.Operations = append(m.Operations, op)
	}
	out.Post(effects.Post{Corr: w.corr(), Conn: l.conn, Body: out.Cut(m.Append(out.Arena()))})
}

// worker returns the name of a worker of the crowd. Each worker has its own instance, or the workers of a connection
// are ranks of the same instance.
func (w *crowd) worker(i int) protocol.Worker {
	if w.ranks {
		return protocol.Worker{InstanceID: strconv.AppendInt([]byte("x"), int64(i/crowdOf), 10),
			WorkerID: crowdRank + uint32(i%crowdOf)}
	}
	return protocol.Worker{InstanceID: strconv.AppendInt([]byte("x"), int64(i), 10), WorkerID: crowdRank}
}
