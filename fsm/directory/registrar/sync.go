package registrar

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A syncStage is the state of a full sync.
type syncStage uint8

const (
	noSync        syncStage = iota
	syncWanted              // to be begun at sync.earliestNext
	syncRequested           // the request to begin is in flight
	syncSending             // batches are being sent, and then the end
	syncSent                // everything was sent; the status is polled
)

// A sync is the full sync of a directory. Batch n contains the chunks that are ready at the slots from n·SyncBatchSlots
// on at the time when the batch is sent. Therefore a sync needs no memory for chunks, and each batch can be sent again.
type sync struct {
	stage        syncStage
	nextAt       effects.Time // time of the next batch or status request
	beganAt      effects.Time
	earliestNext effects.Time // earliest begin of the next sync
	count        uint64       // syncs so far
	id           uint64
	failures     uint32 // consecutive failures
	// coveredChange is the change count of the store when the sync began: all changes up to here are covered by the
	// sync.
	coveredChange uint64
	// nextBefore is the number of the next operation before the sync began.
	nextBefore uint64
	batches    uint32
	nextBatch  uint32 // next batch to send
	// resend lists the batches that the directory misses.
	resend     []uint32
	sentKeys   uint64 // chunks in the batches that were sent
	postedKeys uint64 // chunks in the posted batch
	pollCount  uint32
}

// idText returns the id of the sync.
func (y *sync) idText() []byte { return strconv.AppendUint(nil, y.id, 36) }

// requestSync sends the request to begin a sync, or a status request, if it is due.
func (r *Registrar) requestSync(v *env.Env, s *store.Store, i int) {
	d := &r.directories[i]
	y := &d.sync
	switch {
	case y.stage == syncSent && v.Now >= y.nextAt && y.pollCount >= r.cfg.SyncPollsMax:
		if d.request != requestNone {
			return // The reply to the last status request may say that the sync is complete.
		}
		y.stage = syncWanted
	case y.stage == syncSent && v.Now >= y.nextAt:
		if d.request == requestNone && r.useConn(v, i, requestConn) {
			r.requestSyncStatus(v, i)
		}
		return
	}
	if y.stage != syncWanted || v.Now < y.earliestNext || d.request != requestNone || d.posting != postingNone || !r.useConn(v, i,
		requestConn) {
		return
	}
	y.count++
	y.stage, y.id, y.coveredChange = syncRequested, r.pace.source.Next(), s.LastChange()
	y.beganAt = v.Now
	y.earliestNext = v.Now.Add(doubleTimes(r.cfg.SyncEvery, y.failures, r.cfg.SyncEveryMax))
	y.failures++
	slots, of := uint32(s.Slots()), uint32(r.cfg.SyncBatchSlots)
	y.batches, y.nextBatch, y.sentKeys, y.pollCount, y.resend = (slots+of-1)/of, 0, 0, 0, table.TrimSlice(y.resend)
	y.nextBefore, d.nextOperation = d.nextOperation, r.numberAfterSync(i)
	m := protocol.FullSyncStartMsg{
		Worker: r.cfg.Worker.wireWorker(), Location: []byte(r.cfg.Worker.Location), SyncID: y.idText(),
		TotalKeys:  uint64(s.CountEntries()),
		BatchCount: y.batches, Incarnation: r.incarnationFor(i), Next: d.nextOperation, Numbered: !r.cfg.Directories[i].Plain,
	}
	d.request = requestSyncBegin
	d.conns[requestConn].sendRequest(v, r.connRef(i, requestConn), m.Append(v.Out.Arena()), r.cfg.RequestTimeout)
}

// numberAfterSync returns the number of the first operation after a sync that begins now. The sync takes a number
// itself, because the sync has a place in the order of operations: a directory that did not receive the sync must
// find a gap at that place. Example: operation 0 is reported, then a sync is sent, and then the directory restarts
// empty. A late copy of operation 0 arrives, and then the next operation. If the number of that operation were 1, the
// directory would take the two operations for the complete history, and never request the chunks that the sync
// reported.
//
// A plain directory is not told a number with a sync, and would find a gap after every sync. For a plain directory
// only number 0 is skipped.
func (r *Registrar) numberAfterSync(i int) uint64 {
	if r.cfg.Directories[i].Plain {
		return max(r.directories[i].nextOperation, 1)
	}
	return r.directories[i].nextOperation + 1
}

// handleSyncBeginReply handles the reply to a request to begin a sync. If the sync is refused, the request is repeated
// later.
func (r *Registrar) handleSyncBeginReply(v *env.Env, d *directoryState, body []byte) {
	var m protocol.FullSyncStartRetMsg
	if d.sync.stage != syncRequested {
		return
	}
	d.sync.stage = syncWanted
	switch {
	case m.Decode(body, &r.cfg.Wire) != nil:
		r.handleRefusal(v, d, requestConn, body)
	case string(m.SyncID) != string(d.sync.idText()):
		d.conns[requestConn].closeConn(v, &r.pace)
		d.recordFailure(effects.Malformed, "")
	case !m.Accepted:
		// Nothing was sent after a refused sync, so the number of the sync is free again: as a gap it would make the
		// directory doubt its records. If the reply is lost, the number stays taken, because the sync may have begun.
		d.nextOperation = max(d.sync.nextBefore, 1)
		d.recordFailure(effects.Refused, effects.SanitizeText(m.ErrorMsg))
	default:
		d.sync.stage, d.sync.nextAt, d.conns[requestConn].failures = syncSending, v.Now, 0
		d.reportedChange, d.reportAt = max(d.reportedChange, d.sync.coveredChange), 0
	}
}

// postSync posts the next batch of a sync, or its end.
func (r *Registrar) postSync(v *env.Env, s *store.Store, i int) {
	d := &r.directories[i]
	y := &d.sync
	if y.stage != syncSending || d.posting != postingNone || v.Now < y.nextAt || !r.useConn(v, i, feedConn) {
		return
	}
	batch := y.nextBatch
	if len(y.resend) > 0 {
		batch = y.resend[0]
	} else if batch == y.batches {
		d.posting = postingSyncEnd
		m := protocol.FullSyncEndMsg{
			Worker: r.cfg.Worker.wireWorker(), Location: []byte(r.cfg.Worker.Location), SyncID: y.idText(), ActualTotalKeys: y.sentKeys,
			Incarnation: r.incarnationFor(i),
		}
		d.conns[feedConn].postMessage(v, r.connRef(i, feedConn), m.Append(v.Out.Arena()))
		return
	}
	d.posting = postingSyncBatch
	r.collectReady(s, int32(batch)*int32(r.cfg.SyncBatchSlots))
	y.postedKeys = uint64(len(r.keys))
	m := protocol.FullSyncBatchMsg{
		Worker: r.cfg.Worker.wireWorker(), Location: []byte(r.cfg.Worker.Location), SyncID: y.idText(), BatchID: batch, Keys: r.keys,
		Incarnation: r.incarnationFor(i),
	}
	d.conns[feedConn].postMessage(v, r.connRef(i, feedConn), m.Append(v.Out.Arena()))
}

// collectReady collects the hashes of the chunks that are ready at the slots of a batch.
func (r *Registrar) collectReady(s *store.Store, from int32) {
	r.keys = r.keys[:0]
	for slot := from; slot < min(from+int32(r.cfg.SyncBatchSlots), s.Slots()); slot++ {
		if key, ok := s.ReadyAt(slot); ok {
			if hash, ok := protocol.ChunkHashOfKey(key); ok {
				r.keys = append(r.keys, hash)
			}
		}
	}
}

func (r *Registrar) onBatchPosted(v *env.Env, d *directoryState) {
	y := &d.sync
	if d.reportSent = true; len(y.resend) > 0 {
		y.resend = append(y.resend[:0], y.resend[1:]...)
	} else {
		y.nextBatch++
		y.sentKeys += y.postedKeys
	}
	y.nextAt = v.Now.Add(r.cfg.SyncPause)
}

// requestSyncStatus sends a status request for a sync that was sent completely.
func (r *Registrar) requestSyncStatus(v *env.Env, i int) {
	d := &r.directories[i]
	d.request = requestStatus
	d.sync.pollCount++
	d.sync.nextAt = v.Now.Add(r.cfg.SyncPoll)
	m := protocol.FullSyncStatusMsg{Worker: r.cfg.Worker.wireWorker(), SyncID: d.sync.idText()}
	d.conns[requestConn].sendRequest(v, r.connRef(i, requestConn), m.Append(v.Out.Arena()), r.cfg.RequestTimeout)
}

// handleSyncStatusReply handles the reply to a status request: the sync is complete, or missing batches or the end are
// sent again, or the directory does not know the sync and a new sync is begun.
func (r *Registrar) handleSyncStatusReply(v *env.Env, d *directoryState, body []byte) {
	var m protocol.FullSyncStatusRetMsg
	y := &d.sync
	if y.stage != syncSent {
		return
	}
	switch {
	case m.Decode(body, &r.cfg.Wire) != nil:
		r.handleRefusal(v, d, requestConn, body)
	case string(m.SyncID) != string(y.idText()):
		d.conns[requestConn].closeConn(v, &r.pace)
		d.recordFailure(effects.Malformed, "")
	case m.IsComplete:
		y.stage, y.failures = noSync, 0
		d.recordFailure(effects.OK, "")
		return
	// The directory does not know the sync.
	case m.CanExitFreeze && len(m.MissingBatches) == 0:
		y.stage = syncWanted
		return
	default:
		for _, n := range m.MissingBatches[:min(len(m.MissingBatches), r.cfg.SyncResendMax)] {
			if n >= 0 && n < int64(y.batches) {
				y.resend = append(y.resend, uint32(n))
			}
		}
		y.stage, y.nextAt = syncSending, v.Now
	}
}
