package directory

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// goOn sends all messages that are due.
func (w *worker) goOn(now effects.Time, out *effects.Effects) {
	if w.known && len(w.news) > 0 && w.open(now, feeding, out) {
		w.report(out)
	}
	if w.sync == syncAccepted && now >= w.nextBatch && w.open(now, feeding, out) {
		w.tellNext(now, out)
	}
	if w.known && !w.mute && now >= w.nextBeat {
		w.nextBeat = now.Add(beatEvery)
		if w.open(now, beating, out) {
			m := protocol.HeartbeatMsg{
				Worker: w.who.worker(), Listener: w.who.listener(), PeerInitURL: w.url,
			}
			w.ask(now, beating, questionBeat, m.Append(out.Arena()), out)
		}
	}
	switch {
	case w.known && w.sync != syncWanted && w.asked == 0: // No request is due.
	case !w.open(now, asking, out):
	case !w.known:
		m := protocol.RegisterMsg{
			Worker: w.who.worker(), Listener: w.who.listener(), PeerInitURL: w.url,
		}
		w.ask(now, asking, questionRegister, m.Append(out.Arena()), out)
	case w.sync == syncWanted:
		w.syncs++
		w.all = append(w.all[:0], w.has...)
		m := protocol.FullSyncStartMsg{
			Worker: w.who.worker(), Location: cpu, SyncID: w.syncID(), TotalKeys: uint64(len(w.all)), BatchCount: w.batches(),
		}
		w.ask(now, asking, questionSync, m.Append(out.Arena()), out)
	default:
		m := protocol.BatchedP2PLookupMsg{Worker: w.who.worker(), Hashes: w.wanted}
		w.ask(now, asking, questionLookup, m.Append(out.Arena()), out)
	}
}

// open reports whether a connection can be used now. A closed connection is opened.
func (w *worker) open(now effects.Time, kind int, out *effects.Effects) bool {
	l := &w.lines[kind]
	if l.conn == 0 && l.corr == 0 {
		*l = line{corr: w.corr(), opening: true, until: now.Add(patience)}
		to := w.directory[kind]
		if kind == beating {
			to = w.beatsAt
		}
		out.Open(effects.Open{Corr: l.corr, Channel: lineChannels[kind], Addr: to})
	}
	return l.conn != 0 && l.corr == 0
}

func (w *worker) ask(now effects.Time, kind int, of question, body []byte, out *effects.Effects) {
	l := &w.lines[kind]
	l.corr, l.of, l.until = w.corr(), of, now.Add(patience)
	out.Send(effects.Send{Corr: l.corr, Conn: l.conn, Body: out.Cut(body)})
}

func (w *worker) post(body []byte, out *effects.Effects) {
	out.Post(effects.Post{Corr: w.corr(), Conn: w.lines[feeding].conn, Body: out.Cut(body)})
}

// report sends the operations that were not reported yet.
func (w *worker) report(out *effects.Effects) {
	for i := range w.news {
		w.news[i].Seq = w.next
		w.next++
	}
	if w.old {
		w.reportEach(out)
		return
	}
	m := protocol.BatchedKVOperationMsg{Worker: w.who.worker(), Location: cpu, Operations: w.news}
	w.post(m.Append(out.Arena()), out)
	w.news = w.news[:0]
}

// batchOf is the number of chunks in a batch of a sync, and batchEvery is the time between two batches.
const (
	batchOf    = 2
	batchEvery = 20 * effects.Millisecond
)

// reportEach sends each operation in a message of its own, without a sequence number.
func (w *worker) reportEach(out *effects.Effects) {
	for i := range w.news {
		m := protocol.KVAdmitMsg{Worker: w.who.worker(), Key: w.news[i].Key, Location: cpu}
		if w.news[i].Type == protocol.OpEvict {
			w.post((*protocol.KVEvictMsg)(&m).Append(out.Arena()), out)
		} else {
			w.post(m.Append(out.Arena()), out)
		}
	}
	w.news = w.news[:0]
}

func (w *worker) batches() uint32 { return uint32((len(w.all) + batchOf - 1) / batchOf) }

func (w *worker) syncID() []byte { return fmt.Appendf(nil, "%x-%d", w.is, w.syncs) }

// tellNext sends the next batch of a full sync, and the end of the sync after the last batch. A batch contains the
// chunks that the worker had when the sync began and still has. A chunk that was evicted since then was reported
// before; the batch would add it again.
func (w *worker) tellNext(now effects.Time, out *effects.Effects) {
	id := w.syncID()
	if from := int(w.batch) * batchOf; from < len(w.all) {
		m := protocol.FullSyncBatchMsg{Worker: w.who.worker(), Location: cpu, SyncID: id, BatchID: w.batch}
		for _, c := range w.all[from:min(from+batchOf, len(w.all))] {
			if _, has := slices.BinarySearch(w.has, c); has {
				m.Keys = append(m.Keys, protocol.ChunkHash{Bits: c})
			}
		}
		w.sent += uint64(len(m.Keys))
		w.post(m.Append(out.Arena()), out)
		w.batch, w.nextBatch = w.batch+1, now.Add(batchEvery)
		return
	}
	m := protocol.FullSyncEndMsg{
		Worker: w.who.worker(), Location: cpu, SyncID: id, ActualTotalKeys: w.sent,
	}
	w.post(m.Append(out.Arena()), out)
	w.sync = noSync
}

func hashes(chunks []uint64) (all []protocol.ChunkHash) {
	for _, c := range chunks {
		all = append(all, protocol.ChunkHash{Bits: c})
	}
	return all
}

// answered handles a reply. A reply of the wrong kind is treated like a missing reply.
func (w *worker) answered(now effects.Time, of question, body []byte, out *effects.Effects) {
	switch of {
	case noQuestion:
	case questionRegister:
		var m protocol.RegisterRetMsg
		if m.Decode(body, nil) != nil {
			w.end(&w.lines[asking], out)
			return
		}
		at, err := protocol.ParseEndpoint(string(m.HeartbeatURL))
		if err != nil {
			panic("BUG: the directory names no heartbeat channel")
		}
		w.beatsAt = effects.Addr{Host: at.Host, Port: at.Port}
		w.begin(now)
	case questionBeat:
		var m protocol.HeartbeatRetMsg
		if m.Decode(body, nil) != nil {
			w.end(&w.lines[beating], out)
			w.known = false // Refused: another process has or had this worker's name.
			return
		}
		if len(m.Commands) > 0 && w.sync == noSync {
			w.sync = syncWanted
		}
	case questionSync:
		var m protocol.FullSyncStartRetMsg
		if w.sync = noSync; m.Decode(body, nil) == nil && m.Accepted {
			w.sync, w.batch, w.sent, w.nextBatch = syncAccepted, 0, 0, now
		}
	case questionLookup:
		var m protocol.BatchedP2PLookupRetMsg
		if code := effects.OK; m.Decode(body, nil) != nil {
			w.tell(effects.Malformed, out)
		} else {
			w.tell(code, out)
		}
	}
}

// begin runs when the directory has accepted the registration. Earlier operations are reported now, from number 0 on.
func (w *worker) begin(now effects.Time) {
	w.known, w.nextBeat, w.sync = true, now.Add(beatEvery), noSync
}
