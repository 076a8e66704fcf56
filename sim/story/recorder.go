package story

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// A Recorder writes the trace of a run. A recorder reads the journal, which records all events anyway, and inspects the
// world after each delivery; the simulated models do not know the recorder. A campaign runs without a recorder and pays
// one comparison with nil per line.
type Recorder struct {
	names
	pending *noted // the last line, whose effect is visible only after the line was carried out
	dirty   []bool // by node: set if the node was touched since the last look

	transfers map[corrOf]int // indexes in t.Transfers, by the correlation of the initiator
	sends     map[corrOf]int // indexes of requests in t.Messages
	replies   map[askOf]int  // indexes of replies in t.Messages
	over      []*world.Conn  // the connection of each message; nil for noise
	posts     []int          // indexes in t.Messages of notifications in flight
	grants    map[grantOf]int
	open      []int // indexes in t.Grants of grants that have not ended
	commands  map[effects.Ticket]int
	pages     map[pageOf]*pageTrack
	phases    int
	// by node: the number of events, including dropped ones, when the machine received its last event
	stepped []int
	held    map[heldOf]*heldSince
	probes  int             // index of the event that began the probes; 0 before the probes begin
	storing map[pageOf]bool // on fenced planes: half of the page was copied
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

// pendingLine is a line of the journal with the description of its message, if the line has a message.
type noted struct {
	world.Entry
	message *described
	event   int // index in t.Events
}

// eventsMax limits the events in a trace. The last events of a run are kept.
const eventsMax = 100_000

// New returns a recorder for a run. The nodes of the run must exist.
func New(of Teller) *Recorder {
	w := of.Whole()
	r := &Recorder{names: names{w: w, of: of, t: &trace.Trace{Seed: w.Seed}, refs: map[string]int{}},
		transfers: map[corrOf]int{}, sends: map[corrOf]int{}, replies: map[askOf]int{}, grants: map[grantOf]int{},
		commands: map[effects.Ticket]int{}, pages: map[pageOf]*pageTrack{}, storing: map[pageOf]bool{}, held: map[heldOf]*heldSince{}}
	for _, n := range r.w.Nodes {
		r.t.Nodes = append(r.t.Nodes, trace.Node{Name: world.LaneName(n.ID), Role: of.Role(n), Pages: n.PagesShown(),
			Lives: []trace.Span{{From: 0, To: trace.Never, State: "up"}}})
		r.dirty = append(r.dirty, true)
		r.stepped = append(r.stepped, -1)
	}
	return r
}

// Note records a line of the journal.
func (r *Recorder) Note(e world.Entry) {
	r.flush()
	if len(r.t.Events) >= eventsMax+eventsMax/4 {
		r.forget()
	}
	r.t.Events = append(r.t.Events, trace.Event{At: e.At, Node: int(e.Node), Group: r.groupIn(e), Text: r.w.Journal.Told(e),
		Cause: r.cause(e)})
	r.pending = &noted{Entry: e, event: len(r.t.Events) - 1}
	if e.Node >= 0 {
		r.dirty[e.Node] = true
	}
}

// cause returns the distance to the event that made a machine return an effect. Between the event and the effects of
// its step, the journal contains no other line for the node, and all lines have the same time.
func (r *Recorder) cause(e world.Entry) int {
	if e.Node < 0 {
		return 0
	}
	now := r.t.Dropped + len(r.t.Events)
	if e.Kind <= world.KindDropped {
		r.stepped[e.Node] = now
		return 0
	}
	if before := r.stepped[e.Node] - r.t.Dropped; e.Kind > world.KindOpen-1 && before >= 0 &&
		r.t.Events[before].At == e.At {
		return now - r.stepped[e.Node]
	}
	return 0
}

// Bytes records the message of the last line.
func (r *Recorder) Bytes(b []byte) {
	if r.pending != nil {
		r.pending.message = r.describe(r.pending.Node, b)
	}
}

// forget drops the oldest events.
func (r *Recorder) forget() {
	n := len(r.t.Events) - eventsMax
	r.t.Dropped += n
	r.t.Events = append(r.t.Events[:0], r.t.Events[n:]...)
}

// flushLine interprets the pending line after its delivery was carried out.
func (r *Recorder) flush() {
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

// AfterDelivery updates the trace. The simulator calls this method after each delivery.
func (r *Recorder) Look() {
	r.flush()
	for i, n := range r.w.Nodes {
		if r.dirty[i] {
			r.dirty[i] = false
			r.lookAt(n)
			r.endGrants(n)
			r.lookWhatIsHeld(n)
		}
	}
}

// End closes all open spans and returns the trace.
func (r *Recorder) End() *trace.Trace {
	r.Look()
	t := r.t
	t.End = r.w.Now
	f := world.Failure{Seed: r.w.Seed, Profile: r.w.Result.Profile}
	t.Title = f.Replay()
	t.Hash = fmt.Sprintf("%016x", r.w.Journal.Hash)
	for k := range t.Messages {
		if m := &t.Messages[k]; m.Arrived == trace.Never && r.w.Failure == nil {
			m.Lost = true
		}
	}
	r.lostMessages()
	for _, n := range r.w.Nodes {
		for i := range n.PagesShown() {
			if p := r.pages[pageOf{n.ID, uint32(i)}]; p != nil && len(p.page.Spans) > 0 {
				t.Pages = append(t.Pages, p.page)
			}
		}
	}
	return t
}

// life ends the current span of a node and begins a span with a new state.
func (r *Recorder) life(node int32, at int64, state string) {
	spans := r.t.Nodes[node].Lives
	for len(spans) > 1 && spans[len(spans)-1].From >= at {
		spans = spans[:len(spans)-1]
	}
	spans[len(spans)-1].To = at
	r.t.Nodes[node].Lives = append(spans, trace.Span{From: at, To: trace.Never, State: state})
}

// groupIn returns the group of a line. Observations of a user's machine belong to group Engine.
func (r *Recorder) groupIn(e world.Entry) trace.Group {
	if e.Kind == world.KindObserve && e.Node >= 0 && r.w.Nodes[e.Node].User {
		return trace.Engine
	}
	return groupOf(e.Kind)
}

// groupOf returns the group of a kind of line.
func groupOf(k world.Kind) trace.Group {
	switch k {
	case world.KindCommand, world.KindStart, world.KindFilled, world.KindFetch, world.KindLetGo, world.KindAbort,
		world.KindDeliver, world.KindReturn:
		return trace.Engine
	case world.KindGrant, world.KindRevoke, world.KindRevoked, world.KindUnmap, world.KindPublish,
		world.KindStoreIn:
		return trace.Memory
	case world.KindTransfer, world.KindCancel, world.KindConfirm, world.KindTransferDone, world.KindSettled,
		world.KindLanded, world.KindSubmit, world.KindAsk, world.KindCopy, world.KindStore, world.KindLoad:
		return trace.Data
	case world.KindObserve, world.KindTick:
		return trace.Fact
	case world.KindPhase:
		return trace.Phase
	}
	if k >= world.KindCrash && k < world.KindOpen {
		return trace.Fault
	}
	return trace.Control
}
