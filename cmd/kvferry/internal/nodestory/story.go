// Package nodestory turns the replay of a node's recording into a trace that package sim/report draws as a page: the
// commands of the node's engine, the messages to and from its peers, its transfers and grants, and each event with the
// effects that it caused. If the replay found a failed assertion, or a step with other effects than recorded, the page
// begins with it and with the last steps that concerned the same things.
//
// A recording knows one node, so that the page has two lanes: the node, and its peers.
//
// Example: a put is slow. The page shows the put as a bar, and "ticket 17" as the filter leaves its messages and its
// transfer, of which one bar is as long as the put.
package nodestory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/recording"
	"github.com/kvferry/kvferry/sim/trace"
)

// The lanes of the page.
const (
	laneNode = iota
	lanePeers
)

const (
	// eventsMax is the number of events and effects on a page. Of a longer recording the page has the last ones, which
	// the browser still draws smoothly.
	eventsMax = 20_000
	// stepsMax is the number of steps that are listed before a failure.
	stepsMax = 24
	// messageTextMax bounds the text of a message on the page.
	messageTextMax = 4000
)

// A Story collects what a page shows. AddStep adds the steps in order, and Finish ends the story.
type Story struct {
	refs    []string
	numbers map[string]int // the indexes of refs
	start   effects.Time
	now     int64 // of the latest step, since the start
	events  []trace.Event
	dropped int

	messages  []*trace.Message
	transfers []*trace.Transfer
	grants    []*trace.Grant
	commands  []*trace.Command

	// What is in progress, by the names that events and effects have for it.
	tickets  map[effects.Ticket]*trace.Command
	sent     map[effects.Corr]*trace.Message
	received map[effects.Request]*trace.Message
	moving   map[effects.Corr]*trace.Transfer
	granted  map[effects.GrantID]*trace.Grant
	// The channels of connections that this node opened or opens.
	opening map[effects.Corr]effects.Channel
	conns   map[effects.Conn]effects.Channel
	limits  protocol.Limits
}

// New returns a Story without steps.
func New() *Story {
	return &Story{numbers: map[string]int{}, tickets: map[effects.Ticket]*trace.Command{}, sent: map[effects.Corr]*trace.Message{},
		received: map[effects.Request]*trace.Message{}, moving: map[effects.Corr]*trace.Transfer{},
		granted: map[effects.GrantID]*trace.Grant{}, opening: map[effects.Corr]effects.Channel{},
		conns: map[effects.Conn]effects.Channel{}, limits: protocol.DefaultLimits()}
}

// AddStep adds a step of the machine: the event, and the effects of the replay. Nothing of the arguments is kept.
func (s *Story) AddStep(at effects.Time, event effects.Event, out *effects.Effects) {
	if len(s.events) == 0 && s.dropped == 0 {
		s.start = at
	}
	s.now = int64(at.Sub(s.start))
	cause := len(s.events)
	s.addEvent(event)
	for i := range out.Len() {
		s.addEffect(out.At(i), cause)
	}
	if len(s.events) > 2*eventsMax {
		s.dropOldest()
	}
}

// dropOldest keeps the last eventsMax events, and what had not ended before these.
func (s *Story) dropOldest() {
	cut := len(s.events) - eventsMax
	s.events = slices.Delete(s.events, 0, cut)
	s.dropped += cut
	first := s.events[0].At
	s.messages = slices.DeleteFunc(s.messages, func(m *trace.Message) bool { return m.Arrived != trace.Never && m.Arrived < first })
	s.transfers = slices.DeleteFunc(s.transfers, func(t *trace.Transfer) bool { return t.Settled != trace.Never && t.Settled < first })
	s.grants = slices.DeleteFunc(s.grants, func(g *trace.Grant) bool { return g.Unusable != trace.Never && g.Unusable < first })
	s.commands = slices.DeleteFunc(s.commands, func(c *trace.Command) bool { return c.Delivered != trace.Never && c.Delivered < first })
}

// ref returns the number of a thing by its name.
func (s *Story) ref(format string, args ...any) int {
	name := fmt.Sprintf(format, args...)
	n, ok := s.numbers[name]
	if !ok {
		n = len(s.refs)
		s.refs, s.numbers[name] = append(s.refs, name), n
	}
	return n
}

func (s *Story) peerRef(p effects.Incarnation) int { return s.ref("peer %x", p[:4]) }

func (s *Story) pageRefs(refs []int, pages []effects.Page) []int {
	for _, p := range pages {
		refs = append(refs, s.ref("page %d", p.Index))
	}
	return refs
}

// add appends an event. cause is the index of the event that caused it, or -1.
func (s *Story) add(group trace.Group, cause int, refs []int, text string, args ...any) {
	e := trace.Event{At: s.now, Node: laneNode, Group: group, Text: fmt.Sprintf(text, args...), Refs: refs}
	if cause >= 0 {
		e.Cause = len(s.events) - cause
	}
	s.events = append(s.events, e)
}

// addMessage adds a message whose other end is unknown until it is answered.
func (s *Story) addMessage(fromNode bool, channel effects.Channel, body []byte, refs []int) *trace.Message {
	m := &trace.Message{From: lanePeers, To: laneNode, Channel: channel.String(), Kind: "noise", Sent: s.now, Arrived: s.now, Refs: refs}
	if fromNode {
		m.From, m.To, m.Arrived = laneNode, lanePeers, trace.Never
	}
	if tag, err := protocol.PeekTag(body, &s.limits); err == nil {
		m.Kind = tag.String()
	}
	if text, err := protocol.Describe(body, &s.limits); err == nil {
		m.Text = text[:min(len(text), messageTextMax)]
	}
	s.messages = append(s.messages, m)
	return m
}

// commandName returns the name of a command, such as "put".
func commandName(body effects.CommandBody) string {
	name := fmt.Sprintf("%T", body)
	return strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
}

// Finish returns the trace of a replay that ended with a result.
func (s *Story) Finish(r *recording.Result) *trace.Trace {
	if len(s.events) > eventsMax {
		s.dropOldest()
	}
	t := &trace.Trace{
		Title:   fmt.Sprintf("kvferry sim replay --recording %s", r.File),
		Verdict: fmt.Sprintf("%d steps have the recorded effects; %s", r.Steps, r.End),
		End:     s.now, Dropped: s.dropped, Refs: s.refs, Events: s.events,
		Nodes: []trace.Node{
			{Name: "node", Role: r.Role, States: []trace.Span{{To: trace.Never, State: "up"}}},
			{Name: "peers", States: []trace.Span{{To: trace.Never, State: "up"}}},
		},
	}
	if r.Before > 0 {
		t.Verdict += fmt.Sprintf("; the page begins with a checkpoint, after step %d of the node, and knows only by name what was begun "+
			"before it", r.Before)
	}
	for _, m := range s.messages {
		t.Messages = append(t.Messages, *m)
	}
	for _, x := range s.transfers {
		t.Transfers = append(t.Transfers, *x)
	}
	for _, g := range s.grants {
		t.Grants = append(t.Grants, *g)
	}
	for _, c := range s.commands {
		t.Commands = append(t.Commands, *c)
	}
	t.Violation = s.violation(r)
	return t
}

// violation returns what the replay found wrong, or nil.
func (s *Story) violation(r *recording.Result) *trace.Violation {
	v := &trace.Violation{At: s.now, Nodes: []int{laneNode}}
	switch d := r.Diverged; {
	case d != nil && d.State != "":
		v.Property, v.Promise = "replay", "the machine does the same again"
		v.Story = fmt.Sprintf("before step %d: %s", d.Step, d.State)
	case r.Broken != "":
		v.Property, v.Promise, v.Story = "invariant", "the machine's own counts agree", r.Broken
	case d != nil:
		v.Property, v.Promise = "replay", "the machine does the same again"
		v.Story = fmt.Sprintf("step %d has other effects than the recording.\nevent: %s\nrecorded: %s\nreplayed: %s\n%s", d.Step, d.Event,
			strings.Join(d.Recorded, ", "), strings.Join(d.Replayed, "\n  "), d.Panicked)
	case r.Failed != "":
		v.Property, v.Promise, v.Story = "assertion", "no assertion of the machine fails", r.Failed
	default:
		return nil
	}
	last := len(s.events) - 1
	for last > 0 && s.events[last].Cause > 0 {
		last--
	}
	concerned := map[int]bool{}
	for _, e := range s.events[max(last, 0):] {
		for _, ref := range e.Refs {
			if !concerned[ref] {
				concerned[ref] = true
				v.Concerns = append(v.Concerns, ref)
			}
		}
	}
	for i := len(s.events) - 1; i >= 0 && len(v.Steps) < stepsMax; i-- {
		if i >= last || slices.ContainsFunc(s.events[i].Refs, func(ref int) bool { return concerned[ref] }) {
			v.Steps = append(v.Steps, i)
		}
	}
	slices.Reverse(v.Steps)
	return v
}
