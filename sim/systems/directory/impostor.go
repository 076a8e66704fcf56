package directory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// An impostor is a process that knows the names of all workers, their addresses, and mostly their incarnations. It sends
// messages in their names to all directories: it registers as they do, reports chunks, begins full syncs, goes on with
// theirs, and deregisters them. It adds ranks to their instances, and has an instance of its own.
type impostor struct {
	seed       uint64     `snap:"share"`
	plan       *plan.Plan `snap:"share"`
	makesNames bool       `snap:"share"`
	firstNode  int        `snap:"share"` // node of the first worker
	addrs      []effects.Addr
	conns      []directoryConn // of each directory one of each kind
	nextUse    []effects.Time
	turns      []int
	lastCorr   effects.Corr
	active     bool
	until      effects.Time
}

const impostorName = "impostor"

// impostorBody is the command of the item by which the impostor begins.
type impostorBody struct{ span effects.Duration }

func (*impostorBody) IsCommand() {}

func newImpersonation(x plan.Item) effects.CommandBody {
	return &impostorBody{effects.Duration(x.Span)}
}

// impostorProcess returns the process of the impostor. Faults do not strike it, so that the faults of the other processes
// are those of the same plan without it.
func impostorProcess(directories []string, firstNode int) custom.Process {
	return custom.Process{Name: impostorName, Proves: impostorIdentity, Spared: true, New: func(b custom.Boot) (effects.Machine, error) {
		x := &impostor{seed: b.Seed, plan: b.Plan, makesNames: makesNames(b.Plan), firstNode: firstNode}
		for _, name := range directories {
			for _, ch := range connChannels {
				x.addrs = append(x.addrs, b.Addr(name, ch))
			}
		}
		n := len(x.addrs)
		x.conns, x.nextUse, x.turns = make([]directoryConn, n), make([]effects.Time, n), make([]int, n)
		return x, nil
	}}
}

// Deadline returns the time at which a connection is used next, or at which a reply is overdue.
func (w *impostor) Deadline() (effects.Time, bool) {
	if !w.active {
		return 0, false
	}
	at := w.until
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
func (w *impostor) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	switch e := ev.(type) {
	case *effects.Command:
		if x, ok := e.Body.(*impostorBody); ok {
			w.active, w.until = true, now.Add(x.span)
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
	case *effects.ConnLost:
		for i := range w.conns {
			if w.conns[i].conn == e.Conn {
				w.closeConn(&w.conns[i], out)
			}
		}
	default: // A tick, or the end of a post.
	}
	if w.active && now >= w.until {
		w.active = false
		for i := range w.conns {
			w.closeConn(&w.conns[i], out)
		}
	}
	if !w.active {
		return
	}
	for i := range w.conns {
		l := &w.conns[i]
		if l.corr != 0 && now >= l.deadline {
			w.closeConn(l, out)
		}
		if l.corr == 0 && now >= w.nextUse[i] {
			w.turns[i]++
			d := draw.Hash(w.seed, draw.Plan, uint64(i), uint64(w.turns[i]))
			w.nextUse[i] = now.Add(d.Duration(5*effects.Millisecond, 60*effects.Millisecond))
			w.useConn(now, i, picker{d}, out)
		}
	}
}

func (w *impostor) connOf(c effects.Corr) *directoryConn {
	for i := range w.conns {
		if w.conns[i].corr == c {
			return &w.conns[i]
		}
	}
	return nil
}

func (w *impostor) newCorr() effects.Corr {
	w.lastCorr++
	return w.lastCorr
}

func (w *impostor) handleOpened(e *effects.Opened, out *effects.Effects) {
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

func (w *impostor) closeConn(l *directoryConn, out *effects.Effects) {
	if l == nil {
		return
	}
	if l.conn != 0 {
		out.Close(l.conn)
	}
	*l = directoryConn{}
}

// A picker draws the parts of a message.
type picker struct{ d draw.Value }

// below returns a number below n.
func (p *picker) below(n int) int {
	p.d = p.d.Rehash()
	return p.d.Between(0, n-1)
}

// useConn opens a connection, or sends the next message on it.
func (w *impostor) useConn(now effects.Time, i int, p picker, out *effects.Effects) {
	l, kind := &w.conns[i], i%connKinds
	if l.conn == 0 {
		*l = directoryConn{corr: w.newCorr(), opening: true, deadline: now.Add(requestTimeout)}
		out.Open(effects.Open{Corr: l.corr, Channel: connChannels[kind], Addr: w.addrs[i]})
		return
	}
	x := w.pickTarget(&p)
	var m protocol.Message
	if kind == feedConn {
		if m = w.feedMessage(&x, &p); m != nil {
			out.Post(effects.Post{Corr: w.newCorr(), Conn: l.conn, Body: out.Cut(m.Append(out.Arena()))})
		}
		return
	}
	m = w.requestMessage(&x, kind, w.turns[i], &p)
	if m == nil {
		return
	}
	l.corr, l.deadline = w.newCorr(), now.Add(requestTimeout)
	out.Send(effects.Send{Corr: l.corr, Conn: l.conn, Body: out.Cut(m.Append(out.Arena()))})
}

// A claim is the worker that the impostor claims to be in a message.
type claim struct {
	id          workerID
	worker      protocol.Worker
	incarnation protocol.UUID
	syncID      []byte
}

// pickTarget picks a worker: one that exists, a further rank of an instance that exists, or one of the impostor.
func (w *impostor) pickTarget(p *picker) claim {
	n := p.below(len(workers))
	x := claim{id: workers[n].id, incarnation: protocol.UUID{0xEE, byte(w.seed), byte(p.below(2)), 1}, syncID: []byte("impostor")}
	nth := p.below(3)
	switch k := p.below(100); {
	case k < 70 && !x.id.lacksExtensions:
		if p.below(2) == 0 {
			x.incarnation = guessedIncarnation(w.plan, w.firstNode+n, x.id, nth)
		}
	case k < 70:
		if p.below(5) > 0 {
			x.incarnation = protocol.UUID{}
		}
		if workers[n].node == vanillaName && p.below(2) == 0 {
			x.syncID = fmt.Appendf(nil, "%x-%d", processSeed(w.plan, w.firstNode+n, nth), 1+p.below(3))
		}
	case k < 85:
		x.id.rank = 2
	default:
		x.id = workerID{instance: "z"}
	}
	x.worker = x.id.wireWorker()
	return x
}

// requestMessage returns a message that has a reply, or nil. Each states another address for peers.
func (w *impostor) requestMessage(x *claim, conn, turn int, p *picker) protocol.Message {
	at := x.id.listener()
	if p.below(2) == 0 {
		at.IP = []byte(impostorName)
	}
	r := protocol.RegisterMsg{Worker: x.worker, Incarnation: x.incarnation, Listener: at, PeerInitURL: fmt.Appendf(nil, "evil:%d", turn)}
	switch k := p.below(10); {
	case k < 4 && conn == requestConn && w.makesNames:
		return &r
	case (k < 7 || conn == heartbeatConn) && w.makesNames:
		return (*protocol.HeartbeatMsg)(&r)
	case conn == heartbeatConn:
		return nil
	case k < 8:
		return &protocol.FullSyncStartMsg{Worker: x.worker, Incarnation: x.incarnation, Location: cpuLocation, SyncID: x.syncID,
			BatchCount: uint32(p.below(2))}
	case k < 9:
		return &protocol.FullSyncStatusMsg{Worker: x.worker, SyncID: x.syncID}
	}
	q := &protocol.BatchedP2PLookupMsg{Worker: x.worker, Hashes: chunkHashes(promptChunks(uint32(p.below(promptCount)), chunksPerPrompt))}
	return q
}

// feedMessage returns a message without a reply.
func (w *impostor) feedMessage(x *claim, p *picker) protocol.Message {
	chunks := promptChunks(uint32(p.below(promptCount)), 1+p.below(chunksPerPrompt))
	evict := p.below(3) == 0
	switch p.below(8) {
	case 0:
		return &protocol.FullSyncBatchMsg{Worker: x.worker, Incarnation: x.incarnation, Location: cpuLocation, SyncID: x.syncID,
			BatchID: uint32(p.below(2)), Keys: chunkHashes(chunks)}
	case 1:
		return &protocol.FullSyncEndMsg{Worker: x.worker, Incarnation: x.incarnation, Location: cpuLocation, SyncID: x.syncID,
			ActualTotalKeys: uint64(len(chunks))}
	case 2, 3:
		return &protocol.DeRegisterMsg{Worker: x.worker, Incarnation: x.incarnation, Listener: x.id.listener()}
	case 4:
		m := &protocol.KVAdmitMsg{Worker: x.worker, Location: cpuLocation, Key: protocol.ChunkHash{Bits: chunks[0]}}
		if evict {
			return (*protocol.KVEvictMsg)(m)
		}
		return m
	}
	m := &protocol.BatchedKVOperationMsg{Worker: x.worker, Incarnation: x.incarnation, Location: cpuLocation}
	first := p.below(12)
	for i, k := range chunks {
		op := newOperation(k, evict)
		op.Seq = uint64(first + i)
		m.Operations = append(m.Operations, op)
	}
	return m
}
