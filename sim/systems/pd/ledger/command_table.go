package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/end"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A machine has a table for each kind of command of its engine. A row is taken when the command is accepted, and given
// back when the command, or what the command obtained, is over. A command is refused for lack of room only while the
// table is full.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkCommandRows   = oracle.NewCheck("S17", "rows of commands")
	checkCommandRoom   = oracle.NewCheck("S18", "commands refused for lack of room")
	checkRequestRows   = oracle.NewCheck("S17", "records of requests")
	checkRequestOver   = oracle.NewCheck("L1", "puts refused because their request has ended")
	checkReserveLimits = oracle.NewCheck("L7", "reserves refused as too large")
)

// commandTableOracle judges the rows of commands and of requests (S17), and the refusals for lack of them (S18).
type commandTableOracle struct {
	oracleBase
	perIncarnation[commandTableState]
}

func (*commandTableOracle) subscribe(l *oracle.Subscriptions[commandTableOracle]) {
	oracle.On(l, func(o *commandTableOracle, _ *oracle.Call, e pd.CommandReceived) {
		o.recordCommand(e.Node, e.Command, e.Ticket)
	})
	oracle.On(l, func(o *commandTableOracle, _ *oracle.Call, e pd.CommandOutcome) {
		o.verifyRefusal(e.Node, e.Effect, e.Command)
		o.recordOutcome(e.Node, e.Effect, e.Command)
	})
	oracle.On(l, func(o *commandTableOracle, _ *oracle.Call, e pd.ProxyNotified) {
		o.stateOf(e.Node).notifying = o.w.JobIndex(e.Message.RequestID)
	})
	oracle.On(l, func(o *commandTableOracle, _ *oracle.Call, e world.FactObserved) {
		if e.Effect.Fact == effects.FactProxyTold {
			o.recordNotified(e.Node)
		}
	})
	oracle.On(l, func(o *commandTableOracle, _ *oracle.Call, e stepCounted) { o.afterStep(e.node, e.stats) })
}

// commandTableState counts the rows that an incarnation of a node must have.
type commandTableState struct {
	reserves  int              `snap:"skip"` // Reserves that wait, or whose pages the engine has not released
	gets      int              `snap:"skip"` // Gets that wait, or whose pages are pinned
	shares    int              `snap:"skip"` // Shares that were not withdrawn
	abandons  int              `snap:"skip"` // Abandons without an outcome
	ends      int              `snap:"skip"` // reports of ended requests without an outcome
	putsOpen  int              `snap:"skip"` // puts of the machine before the step in which a put arrived
	arrived   effects.Ticket   `snap:"skip"` // the put that arrived in this step
	ended     []effects.Ticket `snap:"skip"` // the puts that had their outcome in this step
	requests  []requestRecord  `snap:"skip"` // in the order in which the proxy was notified
	notified  int              `snap:"skip"` // the number of records of requests that the proxy was notified of
	notifying uint64           `snap:"skip"` // the request of the newest notification
	expiresAt effects.Time     `snap:"skip"` // no record expires earlier
}

func (s *commandTableState) clearForReuse() {
	*s = commandTableState{ended: s.ended[:0], requests: s.requests[:0], expiresAt: noExpiry}
}

// noExpiry is later than any time of a run.
const noExpiry = effects.Time(1<<63 - 1)

// requestRecord is the record of a request for the proxy, as the machine must have it.
type requestRecord struct {
	job       uint64
	open      int  // puts without an outcome
	last      bool // the newest put was the last of the request
	notified  bool
	expiresAt effects.Time // by the node's clock; noExpiry while puts are open or the proxy is to be notified
}

// recordCommand counts a command when its machine receives it.
func (or *commandTableOracle) recordCommand(n *world.Node, c *pd.Command, t effects.Ticket) {
	state := or.stateOf(n)
	switch c.Body.(type) {
	case *ops.Reserve:
		state.reserves++
	case *ops.Get:
		state.gets++
	case *ops.Abandon:
		state.abandons++
	case *end.End:
		state.ends++
	case *ops.Put:
		state.arrived, state.putsOpen = t, pd.StatsOf(n).Puts
	default: // Further commands take no row of these tables.
	}
}

// recordOutcome counts the rows that the outcome of a command gives back.
func (or *commandTableOracle) recordOutcome(n *world.Node, e *effects.Deliver, c *pd.Command) {
	state := or.stateOf(n)
	switch c.Body.(type) {
	case *ops.Reserve:
		if e.Code != effects.OK {
			state.reserves--
		}
	case *ops.Release:
		if e.Code == effects.OK {
			state.reserves--
		}
	case *ops.Get:
		if e.Hits == 0 {
			state.gets--
		}
	case *ops.Unpin:
		if e.Code == effects.OK {
			state.gets--
		}
	case *ops.Share:
		if e.Code == effects.OK {
			state.shares++
		}
	case *ops.Withdraw:
		if e.Code == effects.OK {
			state.shares--
		}
	case *ops.Abandon:
		state.abandons--
	case *end.End:
		state.ends--
	case *ops.Put:
		if e.Ticket == state.arrived && isRefusal(e) {
			state.arrived = 0
		} else {
			state.ended = append(state.ended, e.Ticket)
		}
	default:
	}
}

// isRefusal reports whether an outcome refuses a command on arrival. A refused command has no effect.
func isRefusal(e *effects.Deliver) bool {
	return e.Code != effects.OK && e.Why != nil && e.Why.Stage == effects.StageCommand
}

// verifyRefusal checks that a command is refused for lack of room only while the table is full, and a Reserve as too
// large only if the Reserve can never be served.
func (or *commandTableOracle) verifyRefusal(n *world.Node, e *effects.Deliver, c *pd.Command) {
	cfg, state := &pd.InfoOf(n).Cfg, or.stateOf(n)
	if b, ok := c.Body.(*ops.Reserve); ok && b.Count > 0 && b.Timeout >= 0 && e.Code != effects.Draining {
		or.verifyReserveLimit(n, e, b)
	}
	if e.Code != effects.TooMany || !isRefusal(e) || e.Why.Field != "tables.commands" {
		if b, ok := c.Body.(*ops.Put); ok && e.Code == effects.Ended && isRefusal(e) {
			or.verifyEnded(n, e, b)
		}
		return
	}
	limit, used := uint32(0), 0
	switch b := c.Body.(type) {
	case *ops.Reserve:
		limit, used = cmp.Or(cfg.ReservesMax, 1024), state.reserves-1
	case *ops.Get:
		limit, used = cmp.Or(cfg.GetsMax, 1024), state.gets-1
	case *ops.Share:
		limit, used = min(cmp.Or(cfg.ReservesMax, 1024), cfg.Pages), state.shares
	case *ops.Abandon:
		limit, used = cmp.Or(cfg.RequestsMax, 4096), state.abandons-1
	case *end.End:
		if limit, used = cmp.Or(cfg.RequestsMax, 4096), state.ends-1; int(cfg.PeersMax) <= 2*len(or.w.Nodes) {
			or.countVoid(checkCommandRoom) // There may be no connection for another receiver.
			return
		}
	case *ops.Put:
		or.verifyPutRefused(n, e, b)
		return
	default:
		or.countVoid(checkCommandRoom)
		return
	}
	if or.countJudged(checkCommandRoom); used < int(limit) {
		or.fail(checkCommandRoom, "node %d refuses ticket %d (%s) for lack of room, with %d of %d rows in use",
			n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, used, limit)
	}
}

// verifyPutRefused checks that a put is refused for lack of room only if the put and the puts that are to follow it do
// not fit the table of puts, or if the request is new and the table of requests has no room and no record of a request
// that is over.
func (or *commandTableOracle) verifyPutRefused(n *world.Node, e *effects.Deliver, b *ops.Put) {
	cfg, state := &pd.InfoOf(n).Cfg, or.stateOf(n)
	if b.First != 0 {
		or.countVoid(checkCommandRoom) // The room was given to the first part, or another put has taken it.
		return
	}
	or.countJudged(checkCommandRoom)
	limit, requestsMax := int(cmp.Or(cfg.PutsMax, 1024)), int(cmp.Or(cfg.RequestsMax, 4096))
	known := len(b.Request) == 0 || or.findRequest(n, or.w.JobIndex(b.Request)) != nil
	if state.putsOpen+int(b.Follow) >= limit || !known && len(state.requests)-state.notified >= requestsMax || cfg.Layers > 0 {
		return
	}
	or.fail(checkCommandRoom, "node %d refuses put %d for lack of room, with %d of %d puts and %d of %d requests, %d of which are over",
		n.AsSubject(), oracle.Ticket(e.Ticket), state.putsOpen, limit, len(state.requests), requestsMax, state.notified)
}

// verifyReserveLimit checks that a Reserve is refused as too large exactly if the pool, a message, or the share of the
// engine can never have as many pages.
func (or *commandTableOracle) verifyReserveLimit(n *world.Node, e *effects.Deliver, b *ops.Reserve) {
	cfg := &pd.InfoOf(n).Cfg
	limit := min(int(cfg.Pages), int(cmp.Or(cfg.BatchMax, 4096)))
	if isDualRole(n) {
		limit = min(limit, engineShare(n))
	}
	if cfg.Geometry != nil {
		return // The pool is the engine's own, and no page of it is reserved.
	}
	or.countJudged(checkReserveLimits)
	if tooLarge := int(b.Count) > limit; tooLarge != (e.Code == effects.TooLarge) {
		or.fail(checkReserveLimits, "node %d ends ticket %d, a reserve of %d pages, as %s, and its engine may reserve %d",
			n.AsSubject(), oracle.Ticket(e.Ticket), b.Count, e.Code, limit)
	}
}

// verifyEnded checks that a put is refused because of the end of its request only while that end is recorded.
func (or *commandTableOracle) verifyEnded(n *world.Node, e *effects.Deliver, b *ops.Put) {
	if pd.InfoOf(n).Cfg.Layers > 0 {
		or.countVoid(checkRequestOver)
		return
	}
	or.countJudged(checkRequestOver)
	if r := or.findRequest(n, or.w.JobIndex(b.Request)); r == nil || !r.last {
		or.fail(checkRequestOver, "node %d refuses put %d, because request %q has ended, and the node must have no record of that",
			n.AsSubject(), oracle.Ticket(e.Ticket), oracle.Request(b.Request))
	}
}

// findRequest returns the record of a request, or nil if there is none.
func (or *commandTableOracle) findRequest(n *world.Node, job uint64) *requestRecord {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.requests, func(r requestRecord) bool { return r.job == job })
	if i < 0 {
		return nil
	}
	return &state.requests[i]
}

// recordNotified records that the machine has notified the proxy of a request, or has given the notification up.
func (or *commandTableOracle) recordNotified(n *world.Node) {
	state := or.stateOf(n)
	r := or.findRequest(n, state.notifying)
	if r == nil || r.notified {
		return
	}
	moved := *r
	moved.notified = true
	or.setExpiry(n, &moved)
	job := state.notifying
	state.requests = append(slices.DeleteFunc(state.requests, func(r requestRecord) bool { return r.job == job }), moved)
	state.notified++
}

// setExpiry makes a record expire after RequestTTL.
func (or *commandTableOracle) setExpiry(n *world.Node, r *requestRecord) {
	r.expiresAt = or.w.ReadClock(n).Add(cmp.Or(pd.InfoOf(n).Cfg.RequestTTL, 30*effects.Second))
	or.stateOf(n).expiresAt = min(or.stateOf(n).expiresAt, r.expiresAt)
}

// afterStep counts the puts of a step in their requests, and checks the rows that the machine has.
func (or *commandTableOracle) afterStep(n *world.Node, s *rank.Stats) {
	cfg, state := &pd.InfoOf(n).Cfg, or.stateOf(n)
	or.joinRequest(n)
	or.leaveRequests(n)
	or.countJudged(checkCommandRows)
	if s.Reserves != state.reserves || s.Gets != state.gets {
		or.fail(checkCommandRows, "node %d has %d rows of reserves and %d of gets, and %d reserves and %d gets are not over",
			n.AsSubject(), s.Reserves, s.Gets, state.reserves, state.gets)
		return
	}
	if n.Busy || cfg.Layers > 0 || !n.IsSender() {
		return
	}
	if now := or.w.ReadClock(n); now >= state.expiresAt {
		state.expiresAt = noExpiry
		state.requests = slices.DeleteFunc(state.requests, func(r requestRecord) bool {
			if r.expiresAt > now {
				state.expiresAt = min(state.expiresAt, r.expiresAt)
				return false
			}
			if r.notified {
				state.notified--
			}
			return true
		})
	}
	or.countJudged(checkRequestRows)
	if s.Requests != len(state.requests) || s.Tombstones != state.notified {
		or.fail(checkRequestRows, "node %d has records of %d requests, of which %d are over, and must have %d and %d",
			n.AsSubject(), s.Requests, s.Tombstones, len(state.requests), state.notified)
	}
}

// joinRequest counts the put that was accepted in this step in its request. If there is no room for another request,
// the oldest record of a request that is over makes room.
func (or *commandTableOracle) joinRequest(n *world.Node) {
	state := or.stateOf(n)
	if state.arrived == 0 {
		return
	}
	put := or.w.Commands[state.arrived-1].Body.(*ops.Put)
	if state.arrived = 0; len(put.Request) == 0 {
		return
	}
	job := or.w.JobIndex(put.Request)
	r := or.findRequest(n, job)
	if r == nil {
		if len(state.requests) >= int(cmp.Or(pd.InfoOf(n).Cfg.RequestsMax, 4096)) {
			if i := slices.IndexFunc(state.requests, func(r requestRecord) bool { return r.notified }); i >= 0 {
				state.requests = slices.Delete(state.requests, i, i+1)
				state.notified--
			}
		}
		state.requests = append(state.requests, requestRecord{job: job})
		r = &state.requests[len(state.requests)-1]
	}
	r.open, r.last, r.expiresAt = r.open+1, put.Last, noExpiry
}

// leaveRequests counts the puts that had their outcome in this step out of their requests.
func (or *commandTableOracle) leaveRequests(n *world.Node) {
	state := or.stateOf(n)
	for _, t := range state.ended {
		put := or.w.Commands[t-1].Body.(*ops.Put)
		if len(put.Request) == 0 {
			continue
		}
		if r := or.findRequest(n, or.w.JobIndex(put.Request)); r != nil {
			if r.open--; r.open == 0 && !r.last {
				or.setExpiry(n, r)
			}
		}
	}
	state.ended = state.ended[:0]
}
