package sim

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/trace"
)

// A recorder writes the trace of a run. It listens to the journal, where everything that happens is
// noted anyway, and looks at the world after each delivery; no model tells it anything. A campaign
// has none, and pays one comparison with nil for each line.
type recorder struct {
	w       *world
	t       *trace.Trace
	refs    map[string]int
	keys    map[string]uint32 // by text
	pending *noted            // the last line: what it did shows only after it was carried out
	dirty   []bool            // by node: it was touched since the last look

	transfers map[corrOf]int // in t.Transfers, by what its initiator calls it
	sends     map[corrOf]int // in t.Messages: requests
	replies   map[askOf]int  // in t.Messages: replies
	over      []*conn        // by message: what it travels on; nil for noise
	posts     []int          // in t.Messages: notifications under way
	grants    map[grantOf]int
	open      []int // in t.Grants: those that nobody saw end yet
	commands  map[effects.Ticket]int
	pages     map[pageOf]*pageTrack
	phases    int
	stepped   []int           // by node: how many events there were, dropped ones included, when its machine was given its last
	storing   map[pageOf]bool // fenced: half of it was copied
}

type (
	corrOf struct {
		node int32
		life uint32
		corr uint64
	}
	askOf struct {
		conn uint64
		corr uint64
	}
	grantOf struct {
		node int32
		life uint32
		id   effects.GrantID
	}
	pageOf struct {
		node  int32
		index uint32
	}
)

// noted is a line of the journal with what its message says, if it has one.
type noted struct {
	entry
	message *described
	event   int // in t.Events
}

// eventsMax bounds what a trace keeps: the last of a run's events.
const eventsMax = 100_000

func newRecorder(w *world) *recorder {
	return &recorder{w: w, t: &trace.Trace{Seed: w.seed}, refs: map[string]int{}, keys: map[string]uint32{},
		transfers: map[corrOf]int{}, sends: map[corrOf]int{}, replies: map[askOf]int{}, grants: map[grantOf]int{},
		commands: map[effects.Ticket]int{}, pages: map[pageOf]*pageTrack{}, storing: map[pageOf]bool{}}
}

// begin names the lanes, once the nodes are there.
func (r *recorder) begin() {
	if r == nil {
		return
	}
	for _, n := range r.w.nodes {
		r.t.Nodes = append(r.t.Nodes, trace.Node{Name: laneName(n.id), Role: roleOf(n), Pages: n.pagesShown(),
			Lives: []trace.Span{{From: 0, To: trace.Never, State: "up"}}})
		r.dirty = append(r.dirty, true)
		r.stepped = append(r.stepped, -1)
	}
}

func laneName(id int32) string {
	if id < 0 {
		return "world"
	}
	return fmt.Sprintf("n%d", id)
}

// note takes a line of the journal.
func (r *recorder) note(e entry) {
	r.flush()
	if len(r.t.Events) >= eventsMax+eventsMax/4 {
		r.forget()
	}
	r.t.Events = append(r.t.Events, trace.Event{At: e.at, Node: int(e.node), Group: r.groupIn(e), Text: e.told(),
		Cause: r.cause(e)})
	r.pending = &noted{entry: e, event: len(r.t.Events) - 1}
	if e.node >= 0 {
		r.dirty[e.node] = true
	}
}

// cause finds what a machine was given when it wanted an effect. Between its event and the effects of
// that step only they are noted for the node, at the same instant.
func (r *recorder) cause(e entry) int {
	if e.node < 0 {
		return 0
	}
	now := r.t.Dropped + len(r.t.Events)
	if e.kind <= kindDropped {
		r.stepped[e.node] = now
		return 0
	}
	if before := r.stepped[e.node] - r.t.Dropped; e.kind > kindOpen-1 && before >= 0 && r.t.Events[before].At == e.at {
		return now - r.stepped[e.node]
	}
	return 0
}

// bytes takes the message that the last line is about.
func (r *recorder) bytes(b []byte) {
	if r.pending != nil {
		r.pending.message = r.describe(r.pending.node, b)
	}
}

// forget drops the oldest events.
func (r *recorder) forget() {
	n := len(r.t.Events) - eventsMax
	r.t.Dropped += n
	r.t.Events = append(r.t.Events[:0], r.t.Events[n:]...)
}

// flush understands the pending line, now that it was carried out.
func (r *recorder) flush() {
	p := r.pending
	if p == nil {
		return
	}
	r.pending = nil
	r.newTransfers()
	r.follow(p)
	e := &r.t.Events[p.event]
	e.Refs = r.refsOf(p)
	e.Words = r.words(p)
}

// look is called after each delivery.
func (r *recorder) look() {
	if r == nil {
		return
	}
	r.flush()
	for i, n := range r.w.nodes {
		if r.dirty[i] {
			r.dirty[i] = false
			r.lookAt(n)
			r.endGrants(n)
		}
	}
}

// end closes what is open and gives the trace.
func (r *recorder) end() *trace.Trace {
	r.look()
	t := r.t
	t.End = r.w.now
	f := Failure{Seed: r.w.seed, Profile: r.w.result.Profile}
	t.Title = f.Replay()
	t.Hash = fmt.Sprintf("%016x", r.w.journal.hash)
	for k := range t.Messages {
		if m := &t.Messages[k]; m.Arrived == trace.Never && r.w.failure == nil {
			m.Lost = true
		}
	}
	r.lostMessages()
	for _, n := range r.w.nodes {
		for i := range n.pagesShown() {
			if p := r.pages[pageOf{n.id, uint32(i)}]; p != nil && len(p.page.Spans) > 0 {
				t.Pages = append(t.Pages, p.page)
			}
		}
	}
	return t
}

// life ends what a node was and lets it be something else from an instant on.
func (r *recorder) life(node int32, at int64, state string) {
	spans := r.t.Nodes[node].Lives
	for len(spans) > 1 && spans[len(spans)-1].From >= at {
		spans = spans[:len(spans)-1]
	}
	spans[len(spans)-1].To = at
	r.t.Nodes[node].Lives = append(spans, trace.Span{From: at, To: trace.Never, State: state})
}

// groupOf sorts kinds; their order in the journal is by what they are about.
func groupOf(k kind) trace.Group {
	switch k {
	case kindCommand, kindStart, kindFilled, kindFetch, kindLetGo, kindAbort, kindDeliver, kindReturn:
		return trace.Engine
	case kindGrant, kindRevoke, kindRevoked, kindUnmap, kindPublish:
		return trace.Memory
	case kindTransfer, kindCancel, kindConfirm, kindTransferDone, kindSettled, kindLanded, kindSubmit, kindAsk, kindCopy, kindStore, kindLoad:
		return trace.Data
	case kindObserve, kindTick:
		return trace.Fact
	case kindPhase:
		return trace.Phase
	}
	if k >= kindCrash && k < kindOpen {
		return trace.Fault
	}
	return trace.Control
}
