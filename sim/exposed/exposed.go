// Package exposed measures the exposed part of a transfer: the time that the transfer still takes after the prefill has
// computed its last layer. The package runs two real ranks, with the compute time of a model and the transfer time of a
// link in virtual time and without faults. Grid returns the measurements that docs/benchmarks.md shows.
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
	Name    string
	Layers  int
	Token   uint64           // bytes of one token in one layer
	Compute effects.Duration // time to compute one layer for all tokens of the request
}

// A Link describes a network link that transfers batches in sequence.
type Link struct {
	Name    string
	Second  uint64           // bytes per second
	Batch   effects.Duration // fixed time per batch, in addition to the time for its bytes
	Message effects.Duration // one-way latency of a message
}

// A Mode selects how a request is transferred.
type How int

// The request is pushed layer by layer, as whole chunks, or as the policy of the rank decides.
const (
	ByLayer How = iota
	AsWhole
	Policy
)

const (
	chunkTokens = 256
	chunks      = 32 // whole chunks per request
	rest        = 100
	merge       = 8 << 20
)

// Bytes returns the size in bytes of one layer of a request.
func (m *Model) Bytes() uint64 { return m.Token * (chunks*chunkTokens + rest) }

// cost returns the time that one batch of the given number of bytes takes on the link.
func (l *Link) cost(bytes uint64) effects.Duration {
	return l.Batch + effects.Duration(float64(bytes)/float64(l.Second)*float64(effects.Second))
}

// Bound returns an upper bound of the exposed time of a request that is pushed layer by layer over a link that keeps up
// (see KeepsUp). The bound covers the batches of the last layer, the partial chunks of all layers, and the messages for
// both.
func (m *Model) Bound(l *Link) effects.Duration {
	layer := m.Token * chunks * chunkTokens
	batches := effects.Duration(layer/merge + 1)
	said := 4 * l.Message
	return batches*l.Batch + l.cost(layer) + said + l.cost(uint64(m.Layers)*m.Token*rest) + 2*said + l.cost(merge)
}

// KeepsUp reports whether a link transfers one layer in the time in which the next layer is computed.
func (m *Model) KeepsUp(l *Link) bool {
	batches := effects.Duration(m.Token*chunks*chunkTokens/merge + 1)
	return batches*(l.Batch+4*l.Message)+l.cost(m.Token*chunks*chunkTokens) <= m.Compute
}

// Measure returns the exposed time of a request, and an error if the request does not arrive complete.
func Measure(m Model, l Link, how How) (effects.Duration, error) {
	w := world{link: l}
	if err := w.open(m, how); err != nil {
		return 0, err
	}
	pages := make([]effects.Page, m.Layers*(chunks+1))
	w.command(0, &engine.Reserve{Count: uint32(len(pages))})
	if w.run(); len(w.reserved) != len(pages) {
		return 0, fmt.Errorf("%d pages for %d", len(w.reserved), len(pages))
	}
	copy(pages, w.reserved)
	for request := range 2 { // The first request is not measured, because it includes the handshake of the ranks.
		from, err := w.request(m, how, fmt.Sprint(request), pages)
		if err != nil || request == 1 {
			return w.ended.Sub(from), err
		}
	}
	return 0, nil
}

// request computes and transfers a request, and returns the time at which the last layer was computed. The error is not
// nil if the request does not arrive complete.
func (w *world) request(m Model, how How, name string, pages []effects.Page) (effects.Time, error) {
	keys := make([][]byte, chunks+1)
	for i := range keys {
		keys[i] = []byte((&protocol.Key{
			Model: "m", WorldSize: 1, Hash: fmt.Sprintf("%s%x", name, i+1), Dtype: protocol.DtypeBFloat16,
		}).String())
	}
	begin := layerwise.Begin{Peer: engine.Peer{Host: "1", InitPort: 1, AllocPort: 2}, Request: []byte(name)}
	if how == Policy {
		begin.Figures = layerwise.Figures{
			Chunks: chunks, ComputeNS: uint64(m.Compute), LinkBytes: w.link.Second,
			BatchNS: uint64(w.link.Batch + 4*w.link.Message),
		}
	}
	w.code, w.over = effects.OK, false
	w.command(0, &begin)
	for layer := range m.Layers {
		w.until(w.now.Add(m.Compute))
		w.command(0, &layerwise.Save{
			Request: []byte(name), Layer: uint32(layer), Tokens: chunks * chunkTokens, Keys: keys[:chunks],
			Pages: pages[layer*(chunks+1):][:chunks],
		})
	}
	from := w.now
	var tail []effects.Page
	for layer := range m.Layers {
		p := pages[layer*(chunks+1)+chunks]
		p.Length = uint32(m.Token * rest)
		tail = append(tail, p)
	}
	w.finish = w.tickets + 1
	w.command(0, &layerwise.Finish{
		Request: []byte(name), Tokens: chunks*chunkTokens + rest, Key: keys[chunks], Pages: tail,
		Patience: 1000 * effects.Second,
	})
	w.run()
	if !w.over || w.code != effects.OK {
		return 0, fmt.Errorf("%s over %s: %s ends as %s (%v)", m.Name, w.link.Name, name, w.code, w.over)
	}
	if s := w.ranks[1].Stats(); s.Bundles != 0 || s.Entries < chunks+1 {
		return 0, fmt.Errorf("%d chunks and %d half ones are there", s.Entries, s.Bundles)
	}
	w.command(1, &engine.Abandon{Request: []byte(name)})
	w.run()
	return from, nil
}

// world is the state of a measurement: the pushing rank (index 0) and the receiving rank (index 1) with their link.
type world struct {
	link     Link
	now      effects.Time
	ranks    [2]*rank.Rank
	queue    queue
	ids      uint64
	free     effects.Time // when the link becomes free
	asked    map[effects.Request]effects.Corr
	told     map[effects.Landing]effects.Corr
	us       effects.Incarnation
	reserved []effects.Page
	tickets  effects.Ticket
	finish   effects.Ticket
	code     effects.Code
	over     bool
	ended    effects.Time
	out      effects.Effects
}

func (w *world) open(m Model, how How) (err error) {
	w.asked, w.told = map[effects.Request]effects.Corr{}, map[effects.Landing]effects.Corr{}
	for i, role := range []rank.Role{rank.RoleSender, rank.RoleReceiver} {
		cfg := rank.Config{
			Role: role, Planes: []rank.Plane{{Name: "shm", Blob: []byte(fmt.Sprint(i))}},
			Common: rank.Common{Layout: protocol.Layout{
				Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeBFloat16,
				Shape: protocol.Shape{Dims: [4]uint32{2, 1, chunkTokens, uint32(m.Token / 4)}, N: 4},
			}, BatchMax: uint32(m.Layers * (chunks + 1)), Lease: 1000 * effects.Second},
			Memory: rank.Memory{Pages: uint32(m.Layers * (chunks + 1))},
		}
		cfg.LocalID, cfg.MergeBytes = fmt.Sprint(i), merge
		cfg.Layers, cfg.BundleTTL, cfg.BundleMost = uint32(m.Layers), 1000*effects.Second, 2000*effects.Second
		cfg.WholeChunks = how == AsWhole && role == rank.RoleReceiver
		if w.ranks[i], err = rank.New(cfg, uint64(i+1), 0); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) id() uint64 { w.ids++; return w.ids }

func (w *world) command(to int, body effects.CommandBody) {
	w.tickets++
	w.step(to, &effects.Command{Ticket: w.tickets, Body: body})
}

func (w *world) step(who int, ev effects.Event) {
	w.out.Reset()
	w.ranks[who].Step(w.now, ev, &w.out)
	for i := range w.out.Len() {
		w.carry(who, w.out.At(i))
	}
}

func (w *world) after(d effects.Duration, to int, ev effects.Event) { w.at(w.now.Add(d), to, ev) }

func (w *world) at(t effects.Time, to int, ev effects.Event) {
	heap.Push(&w.queue, &item{at: t, seq: w.id(), to: to, ev: ev})
}

// carry carries out one effect.
func (w *world) carry(who int, e effects.Effect) {
	l := &w.link
	switch e := e.(type) {
	case *effects.Open:
		w.after(2*l.Message, who, &effects.Opened{Corr: e.Corr, Conn: effects.Conn(w.id())})
	case *effects.Send:
		request := effects.Request(w.id())
		w.asked[request] = e.Corr
		channel := effects.ChannelAlloc
		if tag, err := protocol.PeekTag(e.Body, nil); err == nil && tag != protocol.TagAllocRequest {
			channel = effects.ChannelInit
		}
		w.after(l.Message, 1-who, &effects.Received{
			Conn: e.Conn + 1<<32, Channel: channel, Request: request, Body: slices.Clone(e.Body),
		})
	case *effects.Reply:
		w.after(l.Message, 1-who, &effects.Replied{Corr: w.asked[e.Request], Body: slices.Clone(e.Body)})
	case *effects.Import:
		w.us = e.Us
		w.after(l.Message, who, &effects.Imported{Corr: e.Corr, Link: effects.Link(w.id())})
	case *effects.Transfer:
		bytes, pages := uint64(0), []effects.Page(nil)
		for _, p := range e.Pairs {
			bytes += uint64(p.Local.Length)
			pages = append(pages, effects.Page{
				Index: p.Remote.Index, Generation: p.Remote.Generation, Length: p.Local.Length,
			})
		}
		landing := effects.Landing(w.id())
		w.told[landing] = e.Corr
		w.free = max(w.free, w.now).Add(l.cost(bytes))
		w.at(w.free.Add(l.Message), 1-who, &effects.Landed{
			Landing: landing, Grant: e.Grant, Peer: w.us, Pages: pages, Complete: true,
		})
	case *effects.Confirm:
		w.after(l.Message, 1-who, &effects.TransferDone{
			Corr: w.told[e.Landing], Code: e.Code, Settled: true, At: w.now,
		})
	case *effects.Revoke:
		w.after(0, who, &effects.Revoked{Grant: e.Grant})
	case *effects.Deliver:
		switch {
		case who == 0 && e.Ticket == w.finish:
			w.over, w.code, w.ended = true, e.Code, w.now
		case who == 0 && len(w.reserved) == 0:
			w.reserved = slices.Clone(e.Pages)
		}
	default: // The remaining effects need no action here.
	}
}

// until delivers all events up to the given time.
func (w *world) until(end effects.Time) {
	for len(w.queue) > 0 && w.queue[0].at <= end {
		w.next()
	}
	w.now = end
}

// run delivers events until the queue is empty and no rank has a deadline that is due.
func (w *world) run() {
	for len(w.queue) > 0 {
		w.next()
	}
	for who, r := range w.ranks { // Deliver the deadlines that are due now.
		for t, ok := r.Deadline(); ok && t <= w.now; t, ok = r.Deadline() {
			w.step(who, &effects.Tick{})
		}
	}
	if len(w.queue) > 0 {
		w.run()
	}
}

func (w *world) next() {
	x := heap.Pop(&w.queue).(*item)
	w.now = x.at
	w.step(x.to, x.ev)
}

// An item is a scheduled event.
type item struct {
	at  effects.Time
	seq uint64
	to  int
	ev  effects.Event
}

type queue []*item

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(*item)) }
func (q *queue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
