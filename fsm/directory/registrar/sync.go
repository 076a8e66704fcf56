package registrar

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A stage is the state of a full sync.
type stage uint8

const (
	noSync      stage = iota
	syncWanted        // to be begun at sync.next
	syncAsked         // the request to begin is in flight
	syncTelling       // batches are being sent, and then the end
	syncEnded         // everything was sent; the status is polled
)

// A sync is the full sync of a directory. Batch n contains the chunks that are ready at the slots from n·SyncBatch on
// at the time when the batch is sent. Therefore a sync needs no memory for chunks, and each batch can be sent again.
type sync struct {
	stage stage
	at    effects.Time // time of the next batch or status request
	began effects.Time
	next  effects.Time // earliest begin of the next sync
	count uint64       // syncs so far
	id    uint64
	fails uint32 // consecutive failures
	// from is the change count of the store when the sync began: all changes up to here are covered by the sync.
	from uint64
	// before is the number of the next operation before the sync began.
	before  uint64
	batches uint32
	batch   uint32 // next batch to send
	// again lists the batches that the directory misses.
	again  []uint32
	keys   uint64 // chunks in the batches that were sent
	posted uint64 // chunks in the posted batch
	polls  uint32
}

// name returns the id of the sync.
func (y *sync) name() []byte { return strconv.AppendUint(nil, y.id, 36) }

// askSync sends the request to begin a sync, or a status request, if it is due.
func (r *Registrar) askSync(v *env.Env, s *store.Store, i int) {
	d := &r.rows[i]
	y := &d.sync
	switch {
	case y.stage == syncEnded && v.Now >= y.at && y.polls >= r.cfg.SyncPolls:
		y.stage = syncWanted
	case y.stage == syncEnded && v.Now >= y.at:
		if d.asked == nothing && r.use(v, i, questions) {
			r.poll(v, i)
		}
		return
	}
	if y.stage != syncWanted || v.Now < y.next || d.asked != nothing || d.posted != noPosting || !r.use(v, i, questions) {
		return
	}
	y.count++
	y.stage, y.id, y.from = syncAsked, r.pace.from.Next(), s.Changed()
	y.began = v.Now
	y.next = v.Now.Add(doubled(r.cfg.SyncEvery, y.fails, r.cfg.SyncMost))
	y.fails++
	slots, of := uint32(s.Slots()), uint32(r.cfg.SyncBatch)
	y.batches, y.batch, y.keys, y.polls, y.again = (slots+of-1)/of, 0, 0, 0, table.Shed(y.again)
	y.before, d.next = d.next, r.numberBehindSync(i)
	m := protocol.FullSyncStartMsg{
		Worker: r.cfg.Worker.name(), Location: []byte(r.cfg.Worker.Location), SyncID: y.name(),
		TotalKeys:  uint64(s.Entries()),
		BatchCount: y.batches, Incarnation: r.incarnation(i), Next: d.next, Numbered: !r.cfg.Directories[i].Plain,
	}
	d.asked = syncBegin
	d.line[questions].send(v, r.ref(i, questions), m.Append(v.Out.Arena()), r.cfg.Patience)
}

// numberBehindSync returns the number of the first operation after a sync that begins now. The sync takes a number
// itself, because the sync has a place in the order of operations: a directory that did not receive the sync must
// find a gap at that place. Example: operation 0 is reported, then a sync is sent, and then the directory restarts
// empty. A late copy of operation 0 arrives, and then the next operation. If the number of that operation were 1, the
// directory would take the two operations for the complete history, and never request the chunks that the sync
// reported.
//
// A plain directory is not told a number with a sync, and would find a gap after every sync. For a plain directory
// only number 0 is skipped.
func (r *Registrar) numberBehindSync(i int) uint64 {
	if r.cfg.Directories[i].Plain {
		return max(r.rows[i].next, 1)
	}
	return r.rows[i].next + 1
}

// syncBegun handles the reply to a request to begin a sync. If the sync is refused, the request is repeated later.
func (r *Registrar) syncBegun(v *env.Env, d *row, body []byte) {
	var m protocol.FullSyncStartRetMsg
	if d.sync.stage != syncAsked {
		return
	}
	d.sync.stage = syncWanted
	switch {
	case m.Decode(body, &r.cfg.Wire) != nil:
		r.refused(v, d, questions, body)
	case string(m.SyncID) != string(d.sync.name()):
		d.line[questions].close(v, &r.pace)
		d.failed(effects.Malformed, "")
	case !m.Accepted:
		// Nothing was sent after a refused sync, so the number of the sync is free again: as a gap it would make the
		// directory doubt its records. If the reply is lost, the number stays taken, because the sync may have begun.
		d.next = max(d.sync.before, 1)
		d.failed(effects.Refused, effects.Words(m.ErrorMsg))
	default:
		d.sync.stage, d.sync.at, d.line[questions].fails = syncTelling, v.Now, 0
		d.read, d.reportAt = max(d.read, d.sync.from), 0
	}
}

// tellSync posts the next batch of a sync, or its end.
func (r *Registrar) tellSync(v *env.Env, s *store.Store, i int) {
	d := &r.rows[i]
	y := &d.sync
	if y.stage != syncTelling || d.posted != noPosting || v.Now < y.at || !r.use(v, i, feed) {
		return
	}
	batch := y.batch
	if len(y.again) > 0 {
		batch = y.again[0]
	} else if batch == y.batches {
		d.posted = syncEnd
		m := protocol.FullSyncEndMsg{
			Worker: r.cfg.Worker.name(), Location: []byte(r.cfg.Worker.Location), SyncID: y.name(), ActualTotalKeys: y.keys,
			Incarnation: r.incarnation(i),
		}
		d.line[feed].post(v, r.ref(i, feed), m.Append(v.Out.Arena()))
		return
	}
	d.posted = syncBatch
	r.ready(s, int32(batch)*int32(r.cfg.SyncBatch))
	y.posted = uint64(len(r.keys))
	m := protocol.FullSyncBatchMsg{
		Worker: r.cfg.Worker.name(), Location: []byte(r.cfg.Worker.Location), SyncID: y.name(), BatchID: batch, Keys: r.keys,
		Incarnation: r.incarnation(i),
	}
	d.line[feed].post(v, r.ref(i, feed), m.Append(v.Out.Arena()))
}

// ready collects the hashes of the chunks that are ready at the slots of a batch.
func (r *Registrar) ready(s *store.Store, from int32) {
	r.keys = r.keys[:0]
	for slot := from; slot < min(from+int32(r.cfg.SyncBatch), s.Slots()); slot++ {
		if key, ok := s.ReadyAt(slot); ok {
			if hash, ok := protocol.ChunkHashOfKey(key); ok {
				r.keys = append(r.keys, hash)
			}
		}
	}
}

func (r *Registrar) batchHanded(v *env.Env, d *row) {
	y := &d.sync
	if d.reminded = true; len(y.again) > 0 {
		y.again = append(y.again[:0], y.again[1:]...)
	} else {
		y.batch++
		y.keys += y.posted
	}
	y.at = v.Now.Add(r.cfg.SyncPause)
}

// poll sends a status request for a sync that was sent completely.
func (r *Registrar) poll(v *env.Env, i int) {
	d := &r.rows[i]
	d.asked = syncStatus
	d.sync.polls++
	d.sync.at = v.Now.Add(r.cfg.SyncPoll)
	m := protocol.FullSyncStatusMsg{Worker: r.cfg.Worker.name(), SyncID: d.sync.name()}
	d.line[questions].send(v, r.ref(i, questions), m.Append(v.Out.Arena()), r.cfg.Patience)
}

// syncStands handles the reply to a status request: the sync is complete, or missing batches or the end are sent
// again, or the directory does not know the sync and a new sync is begun.
func (r *Registrar) syncStands(v *env.Env, d *row, body []byte) {
	var m protocol.FullSyncStatusRetMsg
	y := &d.sync
	if y.stage != syncEnded {
		return
	}
	switch {
	case m.Decode(body, &r.cfg.Wire) != nil:
		r.refused(v, d, questions, body)
	case string(m.SyncID) != string(y.name()):
		d.line[questions].close(v, &r.pace)
		d.failed(effects.Malformed, "")
	case m.IsComplete:
		y.stage, y.fails = noSync, 0
		d.failed(effects.OK, "")
		return
	// The directory does not know the sync.
	case m.CanExitFreeze && len(m.MissingBatches) == 0:
		y.stage = syncWanted
		return
	default:
		for _, n := range m.MissingBatches[:min(len(m.MissingBatches), r.cfg.SyncMissed)] {
			if n >= 0 && n < int64(y.batches) {
				y.again = append(y.again, uint32(n))
			}
		}
		y.stage, y.at = syncTelling, v.Now
	}
}
