package registrar

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A stage is how far a full sync is.
type stage uint8

const (
	noSync      stage = iota
	syncWanted        // at sync.at
	syncAsked         // whether it may begin
	syncTelling       // batches, and then its end
	syncEnded         // the directory is asked how far it is
)

// A sync is one directory's account of all that the store has. Batch n tells of the slots from n·SyncBatch on what is
// ready there as it is sent: so it needs no memory, and can be told again.
type sync struct {
	stage   stage
	at      effects.Time // of the next batch or question
	began   effects.Time
	next    effects.Time // no other one begins before
	count   uint64       // syncs so far
	id      uint64
	fails   uint32 // in a row
	from    uint64 // changes up to here it tells of
	before  uint64 // the number of the next operation before it began
	batches uint32
	batch   uint32 // that is told next
	again   []uint32
	keys    uint64 // that were told
	posted  uint64 // of the batch that is posted
	polls   uint32
}

// name is the sync's id.
func (y *sync) name() []byte { return strconv.AppendUint(nil, y.id, 36) }

// askSync asks what there is to ask of a sync: whether it may begin, and how far it is.
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

// numberBehindSync returns the number of the first operation behind a sync that begins now. The sync takes a number of
// its own, because what it tells comes in the order of operations too: a directory that did not hear the sync finds a
// gap where it was. Example: operation 0 is told, then a sync, and the directory starts again and knows nothing. A copy
// of operation 0 comes late, and then the next operation. Were the number of that 1, the directory would take the two
// for all that ever happened, and never ask for what the sync told.
//
// A plain directory hears no number with a sync, and would find a gap behind each one. Only number 0 is passed over.
func (r *Registrar) numberBehindSync(i int) uint64 {
	if r.cfg.Directories[i].Plain {
		return max(r.rows[i].next, 1)
	}
	return r.rows[i].next + 1
}

// syncBegun takes the answer to that. Where it may not begin it is asked for again later.
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
		// Nothing follows a sync that was refused, so its number is free again: as a gap it would have the directory doubt
		// what it knows. If the answer is lost the number stays taken, because the sync may have begun.
		d.next = max(d.sync.before, 1)
		d.failed(effects.Refused, effects.Words(m.ErrorMsg))
	default:
		d.sync.stage, d.sync.at, d.line[questions].fails = syncTelling, v.Now, 0
		d.read, d.reportAt = max(d.read, d.sync.from), 0
	}
}

// tellSync tells the next batch, or the end.
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

// ready collects the hashes of what is ready at the slots of a batch.
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

// poll asks how far a sync is that was told whole.
func (r *Registrar) poll(v *env.Env, i int) {
	d := &r.rows[i]
	d.asked = syncStatus
	d.sync.polls++
	d.sync.at = v.Now.Add(r.cfg.SyncPoll)
	m := protocol.FullSyncStatusMsg{Worker: r.cfg.Worker.name(), SyncID: d.sync.name()}
	d.line[questions].send(v, r.ref(i, questions), m.Append(v.Out.Arena()), r.cfg.Patience)
}

// syncStands takes the answer to that: it has come, or batches of it are told again, or its end. What came to nothing
// is begun anew.
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
	case m.CanExitFreeze && len(m.MissingBatches) == 0: // Nobody knows it.
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
