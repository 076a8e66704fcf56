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

// A crowd is a process that floods a directory: on a few connections it registers more workers than there is room for,
// under instances that do not exist, begins full syncs of them and never goes on, and tells of more chunks than the
// index takes. It does so to the end of a run. The directory has to serve the workers of other addresses all the same:
// that they are known, with what they have, is judged as in each world (converges).

const (
	crowdName  = "crowd"
	crowdItem  = "crowd"
	crowdLines = 3   // connections on which it asks
	crowdOf    = 4   // workers on each
	crowdRank  = 7   // the lowest of its workers: nobody asks who has what of it
	crowdOps   = 20  // chunks in one message
	crowdHas   = 120 // chunks of each worker
	crowdBurst = 8   // turns that it takes at once on a new connection
	crowdTurn  = 80 * effects.Millisecond
	crowdHurry = 2 * effects.Millisecond
)

// isCrowded reports whether a seed's world has a process that may flood the directory. It does so where the plan has an
// item that says so: plans from before there was one have none.
func isCrowded(p *plan.Plan) bool {
	return p.System == systemName && !isLong(p) && draw.Hash(p.Seed, draw.Plan, 8, 30).Permille(250)
}

// floods reports whether it does.
func floods(p *plan.Plan) bool {
	return isCrowded(p) && slices.ContainsFunc(p.Items, func(x plan.Item) bool { return x.Do == crowdItem })
}

// begins is the body of an item that says that there is a crowd. The process floods from its first instant.
type begins struct{}

func (*begins) IsCommand() {}

func crowds(plan.Item) effects.CommandBody { return &begins{} }

type crowd struct {
	floods    bool                    `snap:"share"`
	ranks     bool                    `snap:"share"` // its workers are ranks of a few instances
	is        protocol.UUID           `snap:"share"`
	directory [lineKinds]effects.Addr `snap:"share"`
	lines     [crowdLines + 1]line    // the last one is the feed
	turns     [crowdLines + 1]int
	fresh     [crowdLines + 1]int          // turns since it was opened
	next      [crowdLines + 1]effects.Time // when the line is used again
	told      [crowdLines * crowdOf]uint64 // operations of each worker
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

// Deadline is when a line is to be used, or its answer is overdue.
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
		out.Close(e.Conn) // It came too late.
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

// goOn uses a line: it is opened, or the next thing is said on it.
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

// tells tells of chunks that a worker does not have.
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

// worker is one of those whose instances do not exist. Each is of another one, or those of a connection are of one.
func (w *crowd) worker(i int) protocol.Worker {
	if w.ranks {
		return protocol.Worker{InstanceID: strconv.AppendInt([]byte("x"), int64(i/crowdOf), 10),
			WorkerID: crowdRank + uint32(i%crowdOf)}
	}
	return protocol.Worker{InstanceID: strconv.AppendInt([]byte("x"), int64(i), 10), WorkerID: crowdRank}
}
