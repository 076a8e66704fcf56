package directory

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// sendDue sends all messages that are due: operations and the batches of a sync on the feed connection, a heartbeat on
// the heartbeat connection, and one request on the request connection.
func (w *vanillaWorker) sendDue(now effects.Time, out *effects.Effects) {
	if w.registered && len(w.unreported) > 0 && w.ensureOpen(now, feedConn, out) {
		w.reportOperations(out)
	}
	if w.stage == syncAccepted && now >= w.nextBatchAt && w.ensureOpen(now, feedConn, out) {
		w.sendNextBatch(now, out)
	}
	if w.registered && !w.sendsNoHeartbeats && now >= w.nextHeartbeat {
		w.nextHeartbeat = now.Add(heartbeatInterval)
		if w.ensureOpen(now, heartbeatConn, out) {
			m := protocol.HeartbeatMsg{
				Worker: w.id.wireWorker(), Listener: w.id.listener(), PeerInitURL: w.url,
			}
			w.sendRequest(now, heartbeatConn, requestHeartbeat, m.Append(out.Arena()), out)
		}
	}
	switch {
	case w.registered && w.stage != syncWanted && w.lookupTicket == 0: // No request is due.
	case !w.ensureOpen(now, requestConn, out):
	case !w.registered:
		m := protocol.RegisterMsg{
			Worker: w.id.wireWorker(), Listener: w.id.listener(), PeerInitURL: w.url,
		}
		w.sendRequest(now, requestConn, requestRegister, m.Append(out.Arena()), out)
	case w.stage == syncWanted:
		w.syncCount++
		w.syncChunks = append(w.syncChunks[:0], w.chunks...)
		m := protocol.FullSyncStartMsg{
			Worker: w.id.wireWorker(), Location: cpuLocation, SyncID: w.syncID(), TotalKeys: uint64(len(w.syncChunks)), BatchCount: w.countBatches(),
		}
		w.sendRequest(now, requestConn, requestSync, m.Append(out.Arena()), out)
	default:
		m := protocol.BatchedP2PLookupMsg{Worker: w.id.wireWorker(), Hashes: w.lookupHashes}
		w.sendRequest(now, requestConn, requestLookup, m.Append(out.Arena()), out)
	}
}

// ensureOpen reports whether a message can be sent on a connection now: the connection is open, and no request is in
// flight on it. If the connection is closed, ensureOpen begins to open it and returns false.
func (w *vanillaWorker) ensureOpen(now effects.Time, kind int, out *effects.Effects) bool {
	l := &w.conns[kind]
	if l.conn == 0 && l.corr == 0 {
		*l = directoryConn{corr: w.newCorr(), opening: true, deadline: now.Add(requestTimeout)}
		to := w.directoryAddrs[kind]
		if kind == heartbeatConn {
			to = w.heartbeatAddr
		}
		out.Open(effects.Open{Corr: l.corr, Channel: connChannels[kind], Addr: to})
	}
	return l.conn != 0 && l.corr == 0
}

// sendRequest sends a request, whose reply must arrive within requestTimeout.
func (w *vanillaWorker) sendRequest(now effects.Time, kind int, request requestKind, body []byte, out *effects.Effects) {
	l := &w.conns[kind]
	l.corr, l.request, l.deadline = w.newCorr(), request, now.Add(requestTimeout)
	out.Send(effects.Send{Corr: l.corr, Conn: l.conn, Body: out.Cut(body)})
}

// postFeed sends a message without a reply on the feed connection.
func (w *vanillaWorker) postFeed(body []byte, out *effects.Effects) {
	out.Post(effects.Post{Corr: w.newCorr(), Conn: w.conns[feedConn].conn, Body: out.Cut(body)})
}

// reportOperations numbers the operations that were not reported yet and sends them in one message.
func (w *vanillaWorker) reportOperations(out *effects.Effects) {
	for i := range w.unreported {
		w.unreported[i].Seq = w.nextSequence
		w.nextSequence++
	}
	if w.unnumbered {
		w.reportUnnumbered(out)
		return
	}
	m := protocol.BatchedKVOperationMsg{Worker: w.id.wireWorker(), Location: cpuLocation, Operations: w.unreported}
	w.postFeed(m.Append(out.Arena()), out)
	w.unreported = w.unreported[:0]
}

// chunksPerBatch is the number of chunks in a batch of a sync, and batchInterval is the time between two batches.
const (
	chunksPerBatch = 2
	batchInterval  = 20 * effects.Millisecond
)

// reportUnnumbered sends each operation that was not reported yet in a message of its own, without a sequence number.
func (w *vanillaWorker) reportUnnumbered(out *effects.Effects) {
	for i := range w.unreported {
		m := protocol.KVAdmitMsg{Worker: w.id.wireWorker(), Key: w.unreported[i].Key, Location: cpuLocation}
		if w.unreported[i].Type == protocol.OpEvict {
			w.postFeed((*protocol.KVEvictMsg)(&m).Append(out.Arena()), out)
		} else {
			w.postFeed(m.Append(out.Arena()), out)
		}
	}
	w.unreported = w.unreported[:0]
}

// countBatches returns the number of batches of the sync in progress.
func (w *vanillaWorker) countBatches() uint32 {
	return uint32((len(w.syncChunks) + chunksPerBatch - 1) / chunksPerBatch)
}

// syncID returns the name of the sync in progress, which no other sync of any incarnation has.
func (w *vanillaWorker) syncID() []byte { return fmt.Appendf(nil, "%x-%d", w.syncSeed, w.syncCount) }

// sendNextBatch sends the next batch of a full sync, and the end of the sync after the last batch. A batch contains the
// chunks that the worker had when the sync began and still has. A chunk that was evicted since then is left out: its
// eviction was already reported, and the batch would add the chunk again.
func (w *vanillaWorker) sendNextBatch(now effects.Time, out *effects.Effects) {
	id := w.syncID()
	if from := int(w.batchIndex) * chunksPerBatch; from < len(w.syncChunks) {
		m := protocol.FullSyncBatchMsg{Worker: w.id.wireWorker(), Location: cpuLocation, SyncID: id, BatchID: w.batchIndex}
		for _, c := range w.syncChunks[from:min(from+chunksPerBatch, len(w.syncChunks))] {
			if _, has := slices.BinarySearch(w.chunks, c); has {
				m.Keys = append(m.Keys, protocol.ChunkHash{Bits: c})
			}
		}
		w.syncSent += uint64(len(m.Keys))
		w.postFeed(m.Append(out.Arena()), out)
		w.batchIndex, w.nextBatchAt = w.batchIndex+1, now.Add(batchInterval)
		return
	}
	m := protocol.FullSyncEndMsg{
		Worker: w.id.wireWorker(), Location: cpuLocation, SyncID: id, ActualTotalKeys: w.syncSent,
	}
	w.postFeed(m.Append(out.Arena()), out)
	w.stage = noSync
}

func chunkHashes(chunks []uint64) (all []protocol.ChunkHash) {
	for _, c := range chunks {
		all = append(all, protocol.ChunkHash{Bits: c})
	}
	return all
}

// handleReply handles the reply to a request. A malformed reply to a registration or a heartbeat ends the connection; a
// malformed reply to a sync ends the sync.
func (w *vanillaWorker) handleReply(now effects.Time, request requestKind, body []byte, out *effects.Effects) {
	switch request {
	case noRequest:
	case requestRegister:
		var m protocol.RegisterRetMsg
		if m.Decode(body, nil) != nil {
			w.closeConn(&w.conns[requestConn], out)
			return
		}
		at, err := protocol.ParseEndpoint(string(m.HeartbeatURL))
		if err != nil {
			panic("BUG: the directory's reply has no heartbeat address")
		}
		w.heartbeatAddr = effects.Addr{Host: at.Host, Port: at.Port}
		w.handleRegistered(now)
	case requestHeartbeat:
		var m protocol.HeartbeatRetMsg
		if m.Decode(body, nil) != nil {
			w.closeConn(&w.conns[heartbeatConn], out)
			w.registered = false // Refused: another process has or had this worker's name.
			return
		}
		if len(m.Commands) > 0 && w.stage == noSync {
			w.stage = syncWanted
		}
	case requestSync:
		var m protocol.FullSyncStartRetMsg
		if w.stage = noSync; m.Decode(body, nil) == nil && m.Accepted {
			w.stage, w.batchIndex, w.syncSent, w.nextBatchAt = syncAccepted, 0, 0, now
		}
	case requestLookup:
		var m protocol.BatchedP2PLookupRetMsg
		code := effects.OK
		if m.Decode(body, nil) != nil {
			code = effects.Malformed
		}
		w.endLookup(code, out)
	}
}

// handleRegistered runs when the directory has accepted the registration. Operations from before the registration are
// reported afterwards, and numbered on from the last reported operation.
func (w *vanillaWorker) handleRegistered(now effects.Time) {
	w.registered, w.nextHeartbeat, w.stage = true, now.Add(heartbeatInterval), noSync
}
