// Package exposed measures the exposed part of a transfer: the time that the transfer still takes after the prefill has
// computed its last layer. The package runs two real ranks, with the compute time of a model and the transfer time of a
// link in virtual time and without faults. MeasureGrid returns the measurements that docs/benchmarks.md shows.
//
// Example: Measure(m, l, ByLayer) computes a request of 8,292 tokens layer by layer. The sender pushes each layer while
// the next layer is computed. The result is the time from the end of the last layer to the outcome of the push.
package exposed

import (
	"container/heap"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/protocol"
)

// A Model describes a request to a model, at a single rank.
type Model struct {
	Name       string
	Layers     int
	TokenBytes uint64           // bytes of one token in one layer
	LayerTime  effects.Duration // time to compute one layer for all tokens of the request
}

// A Link describes a network link that transfers batches in sequence.
type Link struct {
	Name           string
	BytesPerSecond uint64           // bytes per second
	BatchTime      effects.Duration // fixed time per batch, in addition to the time for its bytes
	MessageTime    effects.Duration // one-way latency of a message
}

// A Mode selects how a request is transferred.
type Mode int

// The request is pushed layer by layer, as whole chunks, or as the policy of the rank decides.
const (
	ByLayer Mode = iota
	AsWhole
	ByPolicy
)

const (
	chunkTokens   = 256
	chunks        = 32 // whole chunks per request
	partialTokens = 100
	mergeBytes    = 8 << 20
)

// LayerBytes returns the size in bytes of one layer of a request.
func (m *Model) LayerBytes() uint64 { return m.TokenBytes * (chunks*chunkTokens + partialTokens) }

// batchTime returns the time that one batch of the given number of bytes takes on the link.
func (l *Link) batchTime(bytes uint64) effects.Duration {
	return l.BatchTime + effects.Duration(float64(bytes)/float64(l.BytesPerSecond)*float64(effects.Second))
}

// ExposedBound returns an upper bound of the exposed time of a request that is pushed layer by layer over a link that
// keeps up (see KeepsUp). The bound covers the batches of the last layer, the partial chunks of all layers, and the
// messages for both.
func (m *Model) ExposedBound(l *Link) effects.Duration {
	layer := m.TokenBytes * chunks * chunkTokens
	batches := effects.Duration(layer/mergeBytes + 1)
	messages := 4 * l.MessageTime
	return batches*l.BatchTime + l.batchTime(layer) + messages +
		l.batchTime(uint64(m.Layers)*m.TokenBytes*partialTokens) + 2*messages + l.batchTime(mergeBytes)
}

// KeepsUp reports whether a link transfers one layer in the time in which the next layer is computed.
func (m *Model) KeepsUp(l *Link) bool {
	batches := effects.Duration(m.TokenBytes*chunks*chunkTokens/mergeBytes + 1)
	return batches*(l.BatchTime+4*l.MessageTime)+l.batchTime(m.TokenBytes*chunks*chunkTokens) <= m.LayerTime
}

// Measure returns the exposed time of a request, and an error if the request does not arrive complete.
func Measure(m Model, l Link, mode Mode) (effects.Duration, error) {
	w := world{link: l}
	if err := w.openRanks(m, mode); err != nil {
		return 0, err
	}
	pages := make([]effects.Page, m.Layers*(chunks+1))
	w.giveCommand(0, &engine.Reserve{Count: uint32(len(pages))})
	if w.runAll(); len(w.reserved) != len(pages) {
		return 0, fmt.Errorf("%d pages were reserved instead of %d", len(w.reserved), len(pages))
	}
	copy(pages, w.reserved)
	for request := range 2 { // The first request is not measured, because it includes the handshake of the ranks.
		computed, err := w.runRequest(m, mode, fmt.Sprint(request), pages)
		if err != nil || request == 1 {
			return w.finishedAt.Sub(computed), err
		}
	}
	return 0, nil
}

// runRequest computes and transfers a request, and returns the time at which the last layer was computed. The error is
// not nil if the request does not arrive complete.
func (w *world) runRequest(m Model, mode Mode, name string, pages []effects.Page) (effects.Time, error) {
	keys := make([][]byte, chunks+1)
	for i := range keys {
		keys[i] = []byte((&protocol.Key{
			Model: "m", WorldSize: 1, Hash: fmt.Sprintf("%s%x", name, i+1), Dtype: protocol.DtypeBFloat16,
		}).String())
	}
	command := layerwise.Begin{Peer: engine.Peer{Host: "1", InitPort: 1, AllocPort: 2}, Request: []byte(name)}
	if mode == ByPolicy {
		command.Figures = layerwise.Figures{
			Chunks: chunks, ComputeNS: uint64(m.LayerTime), LinkBytes: w.link.BytesPerSecond,
			BatchNS: uint64(w.link.BatchTime + 4*w.link.MessageTime),
		}
	}
	w.finishCode, w.finished = effects.OK, false
	w.giveCommand(0, &command)
	for layer := range m.Layers {
		w.runUntil(w.now.Add(m.LayerTime))
		w.giveCommand(0, &layerwise.Save{
			Request: []byte(name), Layer: uint32(layer), Tokens: chunks * chunkTokens, Keys: keys[:chunks],
			Pages: pages[layer*(chunks+1):][:chunks],
		})
	}
	computed := w.now
	var tail []effects.Page
	for layer := range m.Layers {
		page := pages[layer*(chunks+1)+chunks]
		page.Length = uint32(m.TokenBytes * partialTokens)
		tail = append(tail, page)
	}
	w.finishTicket = w.lastTicket + 1
	w.giveCommand(0, &layerwise.Finish{
		Request: []byte(name), Tokens: chunks*chunkTokens + partialTokens, Key: keys[chunks], Pages: tail,
		Timeout: 1000 * effects.Second,
	})
	w.runAll()
	if !w.finished || w.finishCode != effects.OK {
		return 0, fmt.Errorf("%s over %s: %s ends as %s (%v)", m.Name, w.link.Name, name, w.finishCode, w.finished)
	}
	if s := w.ranks[1].Stats(); s.Bundles != 0 || s.Entries < chunks+1 {
		return 0, fmt.Errorf("%d chunks and %d incomplete chunks are stored", s.Entries, s.Bundles)
	}
	w.giveCommand(1, &engine.Abandon{Request: []byte(name)})
	w.runAll()
	return computed, nil
}

// world is the state of a measurement: the pushing rank (index 0) and the receiving rank (index 1) with their link.
type world struct {
	link         Link
	now          effects.Time
	ranks        [2]*rank.Rank
	queue        eventQueue
	lastID       uint64
	linkFreeAt   effects.Time // when the link becomes free
	sentRequests map[effects.Request]effects.Corr
	transfers    map[effects.Landing]effects.Corr
	importer     effects.Incarnation
	reserved     []effects.Page
	lastTicket   effects.Ticket
	finishTicket effects.Ticket
	finishCode   effects.Code
	finished     bool
	finishedAt   effects.Time
	out          effects.Effects
}

func (w *world) openRanks(m Model, mode Mode) (err error) {
	w.sentRequests, w.transfers = map[effects.Request]effects.Corr{}, map[effects.Landing]effects.Corr{}
	for i, role := range []rank.Role{rank.RoleSender, rank.RoleReceiver} {
		cfg := rank.Config{
			Role: role, Planes: []rank.Plane{{Name: "shm", Blob: []byte(fmt.Sprint(i))}},
			Common: rank.Common{Layout: protocol.Layout{
				Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeBFloat16,
				Shape: protocol.Shape{Dims: [4]uint32{2, 1, chunkTokens, uint32(m.TokenBytes / 4)}, N: 4},
			}, BatchMax: uint32(m.Layers * (chunks + 1)), Lease: 1000 * effects.Second},
			Memory: rank.Memory{Pages: uint32(m.Layers * (chunks + 1))},
		}
		cfg.LocalID, cfg.MergeBytes = fmt.Sprint(i), mergeBytes
		cfg.Layers, cfg.BundleTTL, cfg.BundleMaxTTL = uint32(m.Layers), 1000*effects.Second, 2000*effects.Second
		cfg.WholeChunks = mode == AsWhole && role == rank.RoleReceiver
		if w.ranks[i], err = rank.New(cfg, uint64(i+1), 0); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) newID() uint64 { w.lastID++; return w.lastID }

func (w *world) giveCommand(to int, body effects.CommandBody) {
	w.lastTicket++
	w.stepRank(to, &effects.Command{Ticket: w.lastTicket, Body: body})
}

func (w *world) stepRank(node int, ev effects.Event) {
	w.out.Reset()
	w.ranks[node].Step(w.now, ev, &w.out)
	for i := range w.out.Len() {
		w.carryOut(node, w.out.At(i))
	}
}

func (w *world) queueAfter(d effects.Duration, to int, ev effects.Event) {
	w.queueAt(w.now.Add(d), to, ev)
}

func (w *world) queueAt(t effects.Time, to int, ev effects.Event) {
	heap.Push(&w.queue, &queuedEvent{at: t, seq: w.newID(), to: to, ev: ev})
}

// carryOut carries out one effect.
func (w *world) carryOut(node int, e effects.Effect) {
	l := &w.link
	switch e := e.(type) {
	case *effects.Open:
		w.queueAfter(2*l.MessageTime, node, &effects.Opened{Corr: e.Corr, Conn: effects.Conn(w.newID())})
	case *effects.Send:
		request := effects.Request(w.newID())
		w.sentRequests[request] = e.Corr
		channel := effects.ChannelAlloc
		if tag, err := protocol.PeekTag(e.Body, nil); err == nil && tag != protocol.TagAllocRequest {
			channel = effects.ChannelInit
		}
		w.queueAfter(l.MessageTime, 1-node, &effects.Received{
			Conn: e.Conn + 1<<32, Channel: channel, Request: request, Body: slices.Clone(e.Body),
		})
	case *effects.Reply:
		w.queueAfter(l.MessageTime, 1-node, &effects.Replied{Corr: w.sentRequests[e.Request],
			Body: slices.Clone(e.Body)})
	case *effects.Import:
		w.importer = e.Us
		w.queueAfter(l.MessageTime, node, &effects.Imported{Corr: e.Corr, Link: effects.Link(w.newID())})
	case *effects.Transfer:
		bytes, pages := uint64(0), []effects.Page(nil)
		for _, p := range e.Pairs {
			bytes += uint64(p.Local.Length)
			pages = append(pages, effects.Page{
				Index: p.Remote.Index, Generation: p.Remote.Generation, Length: p.Local.Length,
			})
		}
		landing := effects.Landing(w.newID())
		w.transfers[landing] = e.Corr
		w.linkFreeAt = max(w.linkFreeAt, w.now).Add(l.batchTime(bytes))
		w.queueAt(w.linkFreeAt.Add(l.MessageTime), 1-node, &effects.Landed{
			Landing: landing, Grant: e.Grant, Peer: w.importer, Pages: pages, Complete: true,
		})
	case *effects.Confirm:
		w.queueAfter(l.MessageTime, 1-node, &effects.TransferDone{
			Corr: w.transfers[e.Landing], Code: e.Code, Settled: true, At: w.now,
		})
	case *effects.Revoke:
		w.queueAfter(0, node, &effects.Revoked{Grant: e.Grant})
	case *effects.Deliver:
		switch {
		case node == 0 && e.Ticket == w.finishTicket:
			w.finished, w.finishCode, w.finishedAt = true, e.Code, w.now
		case node == 0 && len(w.reserved) == 0:
			w.reserved = slices.Clone(e.Pages)
		}
	default: // The remaining effects need no action here.
	}
}

// runUntil delivers all events up to the given time.
func (w *world) runUntil(end effects.Time) {
	for len(w.queue) > 0 && w.queue[0].at <= end {
		w.handleNext()
	}
	w.now = end
}

// runAll delivers events until the queue is empty and no rank has a deadline that is due.
func (w *world) runAll() {
	for len(w.queue) > 0 {
		w.handleNext()
	}
	for node, r := range w.ranks { // Deliver the deadlines that are due now.
		for t, ok := r.Deadline(); ok && t <= w.now; t, ok = r.Deadline() {
			w.stepRank(node, &effects.Tick{})
		}
	}
	if len(w.queue) > 0 {
		w.runAll()
	}
}

func (w *world) handleNext() {
	x := heap.Pop(&w.queue).(*queuedEvent)
	w.now = x.at
	w.stepRank(x.to, x.ev)
}

// An queuedEvent is a scheduled event.
type queuedEvent struct {
	at  effects.Time
	seq uint64
	to  int
	ev  effects.Event
}

type eventQueue []*queuedEvent

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(*queuedEvent)) }
func (q *eventQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
