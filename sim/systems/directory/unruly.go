package directory

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// An unruly crowd also sends messages at the limits of the directory and beyond: more workers on a connection and in an
// instance, long names, more locations, more hashes and batches. It closes connections, so that its workers are without
// one, and completes some full syncs. A plan has an item for this.
const unrulyItem = "unruly"

func isUnruly(p *plan.Plan) bool {
	return isFlooded(p) && slices.ContainsFunc(p.Items, func(x plan.Item) bool { return x.Do == unrulyItem })
}

// unruliness decides what an unruly crowd sends.
type unruliness struct {
	seed   uint64
	limits core.Config
}

// A syncName names a full sync of a worker of the crowd.
type syncName struct {
	worker   protocol.Worker
	location []byte
	id       []byte
}

// The workers of a connection and of an instance, which are more than the directory takes.
const (
	unrulyPerConn     = 7
	unrulyPerInstance = 8
)

// crowdAbsence is the time for which the crowd sometimes leaves a connection closed, longer than most directories keep
// workers without one.
const crowdAbsence = 1500 * effects.Millisecond

// misbehave sends a message of an unruly crowd on a connection, or closes the connection. It reports false if the crowd
// sends its usual message.
func (w *crowd) misbehave(now effects.Time, i, turn int, out *effects.Effects) bool {
	l, u := &w.conns[i], w.unruly
	d := draw.Hash(u.seed, draw.Plan, uint64(i), uint64(turn))
	pick := func(n int) int {
		d = d.Rehash()
		return d.Between(0, n-1)
	}
	if pick(20) == 0 {
		if w.closeConn(l, out); pick(2) == 0 {
			w.nextUse[i] = now.Add(crowdAbsence)
		}
		return true
	}
	n := pick(crowdConns * unrulyPerConn)
	if i < crowdConns {
		n = i*unrulyPerConn + pick(unrulyPerConn)
	}
	sender := protocol.Worker{InstanceID: strconv.AppendInt([]byte("y"), int64(n), 10), WorkerID: crowdMinRank}
	if w.sharesInstances {
		sender.InstanceID = strconv.AppendInt([]byte("y"), int64(n/unrulyPerInstance), 10)
		sender.WorkerID += uint32(n % unrulyPerInstance)
	}
	// text returns a name that is usually short, and otherwise as long as the limit allows or longer by a byte.
	text := func(name []byte) []byte {
		if k := pick(12); k < 2 {
			return append(name, bytes.Repeat([]byte{'z'}, max(0, u.limits.TextBytes+k-len(name)))...)
		}
		return name
	}
	// near returns a small number, or the limit, or the limit and one more.
	near := func(usual, limit int) int {
		if k := pick(6); k < 2 && limit <= 128 {
			return limit + k
		}
		return usual
	}
	location := [][]byte{cpuLocation, []byte("disk"), []byte("far"), text([]byte("remote"))}[pick(4)]
	syncID := text([]byte("unruly"))
	var body []byte
	if i == crowdConns {
		kind := pick(4)
		if x := w.lastSync; pick(2) == 0 && x.id != nil { // Sometimes the last sync goes on.
			sender, location, syncID, kind = x.worker, x.location, x.id, kind%2
		}
		if kind == 2 && pick(4) > 0 {
			kind = 3 // Few workers leave.
		}
		body = w.unrulyFeed(sender, location, syncID, kind, pick(2), near(crowdOpsPerMessage, u.limits.HashesPerBatch), out)
		out.Post(effects.Post{Corr: w.newCorr(), Conn: l.conn, Body: out.Cut(body)})
		return true
	}
	listener := protocol.Listener{IP: text([]byte(crowdName)), Port: 9000}
	kind := pick(6)
	if kind == 2 && n%2 == 0 {
		kind = 0 // Some workers send no heartbeats.
	}
	switch kind {
	case 0, 1:
		sender.InstanceID = text(sender.InstanceID)
		m := protocol.RegisterMsg{Worker: sender, Incarnation: w.incarnation, Listener: listener, PeerInitURL: text([]byte("crowd:1"))}
		body = m.Append(out.Arena())
	case 2:
		m := protocol.HeartbeatMsg{Worker: sender, Incarnation: w.incarnation, Listener: listener, PeerInitURL: text([]byte("crowd:1"))}
		body = m.Append(out.Arena())
	case 3:
		m := protocol.FullSyncStatusMsg{Worker: sender, SyncID: syncID}
		body = m.Append(out.Arena())
	default:
		m := protocol.FullSyncStartMsg{Worker: sender, Incarnation: w.incarnation, Location: location, SyncID: syncID,
			BatchCount: uint32(near(1, u.limits.BatchesPerSync))}
		w.lastSync = syncName{sender, location, syncID}
		body = m.Append(out.Arena())
	}
	l.corr, l.deadline = w.newCorr(), now.Add(requestTimeout)
	out.Send(effects.Send{Corr: l.corr, Conn: l.conn, Body: out.Cut(body)})
	return true
}

// unrulyFeed returns a message of the feed.
func (w *crowd) unrulyFeed(sender protocol.Worker, location, syncID []byte, kind, batch, hashes int, out *effects.Effects) []byte {
	switch kind {
	case 0:
		m := protocol.FullSyncBatchMsg{Worker: sender, Incarnation: w.incarnation, Location: location, SyncID: syncID,
			BatchID: uint32(batch)}
		for k := range hashes {
			m.Keys = append(m.Keys, protocol.ChunkHash{Bits: 1<<41 | uint64(sender.WorkerID)<<16 | uint64(k)})
		}
		return m.Append(out.Arena())
	case 1:
		m := protocol.FullSyncEndMsg{Worker: sender, Incarnation: w.incarnation, Location: location, SyncID: syncID}
		return m.Append(out.Arena())
	case 2:
		m := protocol.DeRegisterMsg{Worker: sender, Incarnation: w.incarnation,
			Listener: protocol.Listener{IP: []byte(crowdName), Port: 9000}}
		return m.Append(out.Arena())
	}
	m := protocol.BatchedKVOperationMsg{Worker: sender, Incarnation: w.incarnation, Location: location}
	for k := range hashes {
		op := newOperation(1<<41|uint64(sender.WorkerID)<<16|uint64(k), false)
		op.Seq = uint64(k)
		m.Operations = append(m.Operations, op)
	}
	return m.Append(out.Arena())
}
