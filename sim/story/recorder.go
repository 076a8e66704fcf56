package story

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// A Recorder writes the trace of a run. A recorder reads the journal, which records all events anyway, and inspects the
// world after each delivery; the simulated models do not know the recorder. A campaign runs without a recorder and pays
// one comparison with nil per line.
type Recorder struct {
	refTable
	pending *pendingLine // the last line, whose effect is visible only after the line was carried out
	touched []bool       // by node: set if the node was touched since the last look

	transfers  map[corrKey]int  // indexes in t.Transfers, by the correlation of the initiator
	sends      map[corrKey]int  // indexes of requests in t.Messages
	replies    map[replyKey]int // indexes of replies in t.Messages
	conns      []*world.Conn    // the connection of each message; nil for noise
	posts      []int            // indexes in t.Messages of notifications in flight
	grants     map[grantKey]int
	openGrants []int // indexes in t.Grants of grants that have not ended
	commands   map[effects.Ticket]int
	pages      map[pageKey]*pageTimeline
	phases     int
	// by node: the number of events, including dropped ones, when the machine received its last event
	stepStarts  []int
	counts      map[countKey]*countHistory
	probesStart int              // index of the event that began the probes; 0 before the probes begin
	halfStored  map[pageKey]bool // on fenced planes: half of the page was copied
}

type (
	corrKey struct {
		node int32
		life uint32
		corr uint64
	}
	replyKey struct {
		conn uint64
		corr uint64
	}
	grantKey struct {
		node int32
		life uint32
		id   effects.GrantID
	}
	pageKey struct {
		node  int32
		index uint32
	}
)

// pendingLine is a line of the journal with the description of its message, if the line has a message.
type pendingLine struct {
	world.Entry
	message *describedMessage
	reason  string // the details of a failure, or ""
	event   int    // index in t.Events
}

// eventsMax limits the events in a trace. The last events of a run are kept.
const eventsMax = 100_000

// New returns a recorder for a run. The nodes of the run must exist.
func New(describer Describer) *Recorder {
	w := describer.BaseWorld()
	r := &Recorder{refTable: refTable{w: w, describer: describer, t: &trace.Trace{Seed: w.Seed}, refs: map[string]int{}},
		transfers: map[corrKey]int{}, sends: map[corrKey]int{}, replies: map[replyKey]int{}, grants: map[grantKey]int{},
		commands: map[effects.Ticket]int{}, pages: map[pageKey]*pageTimeline{}, halfStored: map[pageKey]bool{},
		counts: map[countKey]*countHistory{}}
	for _, n := range r.w.Nodes {
		r.t.Nodes = append(r.t.Nodes, trace.Node{Name: world.NodeName(n.ID), Role: describer.RoleName(n), Pages: n.PageCount(),
			States: []trace.Span{{From: 0, To: trace.Never, State: "up"}}})
		r.touched = append(r.touched, true)
		r.stepStarts = append(r.stepStarts, -1)
	}
	return r
}

// RecordLine records a line of the journal.
func (r *Recorder) RecordLine(e world.Entry) {
	r.flushLine()
	if len(r.t.Events) >= eventsMax+eventsMax/4 {
		r.dropOldest()
	}
	r.t.Events = append(r.t.Events, trace.Event{At: e.At, Node: int(e.Node), Group: r.groupOfLine(e), Text: r.w.Journal.LineText(e),
		Cause: r.causeDistance(e)})
	r.pending = &pendingLine{Entry: e, event: len(r.t.Events) - 1}
	if e.Node >= 0 {
		r.touched[e.Node] = true
	}
}

// RecordReason adds the details of a failure to the last line.
func (r *Recorder) RecordReason(why *effects.Why) {
	if r.pending != nil {
		r.pending.reason = why.Facts()
	}
}

// RecordMark adds a mark to the event that began the present step of a node.
func (r *Recorder) RecordMark(node int32, name string) {
	if i := r.stepStarts[node] - r.t.Dropped; i >= 0 && name != "" {
		e := &r.t.Events[i]
		e.Marks = append(e.Marks, strings.TrimPrefix(name, "mark "))
	}
}

// causeDistance returns the distance to the event that made a machine return an effect. Between the event and the
// effects of its step, the journal contains no other line for the node, and all lines have the same time.
func (r *Recorder) causeDistance(e world.Entry) int {
	if e.Node < 0 {
		return 0
	}
	index := r.t.Dropped + len(r.t.Events)
	if e.Kind.IsEvent() {
		r.stepStarts[e.Node] = index
		return 0
	}
	if before := r.stepStarts[e.Node] - r.t.Dropped; e.Kind > world.KindOpen-1 && before >= 0 &&
		r.t.Events[before].At == e.At {
		return index - r.stepStarts[e.Node]
	}
	return 0
}

// RecordBytes records the message of the last line.
func (r *Recorder) RecordBytes(b []byte) {
	if r.pending != nil {
		r.pending.message = r.describeMessage(r.pending.Node, b)
	}
}

// dropOldest drops the oldest events.
func (r *Recorder) dropOldest() {
	n := len(r.t.Events) - eventsMax
	r.t.Dropped += n
	r.t.Events = append(r.t.Events[:0], r.t.Events[n:]...)
}

// flushLine interprets the pending line after its delivery was carried out.
func (r *Recorder) flushLine() {
	p := r.pending
	if p == nil {
		return
	}
	r.pending = nil
	r.addTransfers()
	r.updateRecords(p)
	e := &r.t.Events[p.event]
	e.Refs = r.refsOf(p)
	e.Explanation = r.explainLine(p)
	if e.Explanation != "" && p.reason != "" {
		e.Explanation += " (" + p.reason + ")"
	}
}

// AfterDelivery updates the trace. The simulator calls this method after each delivery.
func (r *Recorder) AfterDelivery() {
	r.flushLine()
	for i, n := range r.w.Nodes {
		if r.touched[i] {
			r.touched[i] = false
			r.updatePages(n)
			r.endGrants(n)
			r.updateCounts(n)
		}
	}
}

// Finish closes all open spans and returns the trace.
func (r *Recorder) Finish() *trace.Trace {
	r.AfterDelivery()
	t := r.t
	t.End = r.w.Now
	f := world.Failure{Seed: r.w.Seed, Profile: r.w.Result.Profile}
	t.Title = f.ReplayCommand()
	t.Hash = fmt.Sprintf("%016x", r.w.Journal.Hash)
	for k := range t.Messages {
		if m := &t.Messages[k]; m.Arrived == trace.Never && r.w.Failure == nil {
			m.Lost = true
		}
	}
	r.markLostMessages()
	for _, n := range r.w.Nodes {
		for i := range n.PageCount() {
			if p := r.pages[pageKey{n.ID, uint32(i)}]; p != nil && len(p.page.Spans) > 0 {
				t.Pages = append(t.Pages, p.page)
			}
		}
	}
	return t
}

// setNodeState ends the current span of a node and begins a span with a new state.
func (r *Recorder) setNodeState(node int32, at int64, state string) {
	spans := r.t.Nodes[node].States
	for len(spans) > 1 && spans[len(spans)-1].From >= at {
		spans = spans[:len(spans)-1]
	}
	spans[len(spans)-1].To = at
	r.t.Nodes[node].States = append(spans, trace.Span{From: at, To: trace.Never, State: state})
}

// groupOfLine returns the group of a line. Observations of a user's machine belong to group Engine.
func (r *Recorder) groupOfLine(e world.Entry) trace.Group {
	if e.Kind == world.KindObserve && e.Node >= 0 && r.w.Nodes[e.Node].Custom {
		return trace.Engine
	}
	return groupOfKind(e.Kind)
}

// groupOfKind returns the group of a kind of line.
func groupOfKind(k world.Kind) trace.Group {
	switch k {
	case world.KindCommand, world.KindStartJob, world.KindPagesFilled, world.KindFetchJob, world.KindReleasePages, world.KindAbortCommand,
		world.KindDeliver, world.KindReturn:
		return trace.Engine
	case world.KindGrant, world.KindRevoke, world.KindRevoked, world.KindUnmap, world.KindPublish,
		world.KindStoreCarried:
		return trace.Memory
	case world.KindTransfer, world.KindCancel, world.KindConfirm, world.KindTransferDone, world.KindSettled,
		world.KindLanded, world.KindSubmit, world.KindTransferRequest, world.KindCopy, world.KindStore, world.KindLoad:
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
