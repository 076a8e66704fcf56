package runtime

import (
	"context"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/metrics"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/secure"
)

// NodeState says whether a node takes work.
type NodeState string

// The states of a node.
const (
	StateServing  NodeState = "serving"
	StateDraining NodeState = "draining" // takes no new work; work in progress ends
	StateClosed   NodeState = "closed"
	StateFailed   NodeState = "failed" // an assertion failed; see FailureContainment
)

// NodeStates lists the states.
//
//kvferry:table
var NodeStates = [...]NodeState{StateServing, StateDraining, StateClosed, StateFailed}

// State returns whether the node takes work.
func (n *Node) State() NodeState {
	//exhaustive:ignore
	switch n.tickets.currentRefusal() { // A table refuses work for no other reason.
	case effects.OK:
		return StateServing
	case effects.Failed:
		return StateFailed
	case effects.Closed:
		return StateClosed
	default:
		return StateDraining
	}
}

// A Snapshot is what a node holds and has counted at one moment.
type Snapshot struct {
	State NodeState
	// Rank has the counts of the machine's tables, and HasRank is false if the machine did not answer in time, or is
	// stepped no more. The other fields do not need the machine.
	Rank            rank.Stats
	HasRank         bool
	Unfinished      []rank.Unfinished // what a drain waits for, if the node drains
	CommandsInUse   int               // tickets of commands in progress, and of commands whose memory is still in use
	Facts           []FactCount
	Counters        []metrics.Reading // with the counts of Facts
	Control         control.Stats
	Security        secure.Stats
	Checksums       Checksums
	DroppedLogLines uint64
}

// Snapshot returns what the node holds and has counted. It waits for the machine between two steps, at most until ctx
// ends, so that it returns even if the node's loop is stuck.
func (n *Node) Snapshot(ctx context.Context) Snapshot {
	s := Snapshot{State: n.State(), CommandsInUse: n.tickets.count(), Facts: n.FactCounts(), Counters: n.driver.facts.listCounters(),
		Control: n.driver.control.Stats(), Checksums: n.Checksums(), DroppedLogLines: n.DroppedLogLines()}
	if g := n.driver.guard; g != nil {
		s.Security = g.Stats()
	}
	var counts rank.Stats // these are written by the loop, perhaps after this call has returned
	var unfinished []rank.Unfinished
	if n.loop.runBetweenUntil(ctx, func() { counts, unfinished = n.machine.Stats(), n.machine.ListUnfinished() }) {
		s.Rank, s.Unfinished, s.HasRank = counts, unfinished, true
	}
	return s
}

// Holds returns what peers and puts hold of the node, and the time of the node's clock, which the times of the holds are
// of. It is false if the machine did not answer until ctx ended.
func (n *Node) Holds(ctx context.Context) (all []rank.Hold, at effects.Time, answered bool) {
	return listRows(ctx, n, n.machine.AppendHolds)
}

// Peers returns the peers of the node, the time of the node's clock, and false if the machine did not answer until ctx
// ended.
func (n *Node) Peers(ctx context.Context) (all []rank.Peer, at effects.Time, answered bool) {
	return listRows(ctx, n, n.machine.AppendPeers)
}

// LinkStates returns the states of the communicators of links, on planes that have them (plane.LinkLister).
func (n *Node) LinkStates() map[effects.Link]plane.LinkState {
	all := map[effects.Link]plane.LinkState{}
	for _, p := range n.driver.planes {
		if lister, ok := p.(plane.LinkLister); ok {
			for _, x := range lister.ListLinks() {
				all[x.Link] = x
			}
		}
	}
	return all
}

// Operations returns what is in progress, the time of the node's clock, and false if the machine did not answer until ctx
// ended.
func (n *Node) Operations(ctx context.Context) (all []rank.Operation, at effects.Time, answered bool) {
	return listRows(ctx, n, n.machine.AppendOperations)
}

// listRows has the loop append rows of the machine between two steps.
func listRows[T any](ctx context.Context, n *Node, appendTo func([]T) []T) (all []T, at effects.Time, answered bool) {
	var rows []T // written by the loop, perhaps after this call has returned
	if !n.loop.runBetweenUntil(ctx, func() { rows = appendTo(nil) }) {
		return nil, 0, false
	}
	return rows, now(), true
}

// A TableLimit is the limit of a table of the machine, as configured.
type TableLimit struct {
	Table string // as in rank.Stats, in lower case
	Limit uint32
}

// TableLimits returns the limits of the machine's tables that the configuration sets.
func (n *Node) TableLimits() []TableLimit {
	c := &n.cfg
	var all []TableLimit
	for _, l := range []TableLimit{
		{"puts", c.PutsMax}, {"reserves", c.ReservesMax}, {"gets", c.GetsMax}, {"requests", c.RequestsMax},
		{"pending_requests", c.WaitersMax}, {"grants", c.GrantsMax}, {"claims", c.ClaimsMax}, {"offers", c.OffersMax},
		{"locations", c.LocationsMax}, {"fetches", c.FetchesMax}, {"outbound_peers", c.PeersMax}, {"inbound_peers", c.PeersMax},
		{"registrations", c.RegistrationsMax}, {"bundles", c.BundlesMax},
	} {
		if l.Limit > 0 {
			all = append(all, l)
		}
	}
	return all
}

// Role returns the node's configured role: "sender", "receiver" or "both".
func (n *Node) Role() string { return n.role.String() }

// Guard returns what authenticates the peers of the node; nil if nothing does.
func (n *Node) Guard() *secure.Guard { return n.driver.guard }
