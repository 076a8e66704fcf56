package ledger

import (
	"cmp"
	"math"
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkBackedOff   = oracle.NewCheck("L4", "puts that back off from a full receiver")
	checkBreakerOpen = oracle.NewCheck("S7", "requests while a circuit breaker is open")
)

// breakerOracle judges the circuit breakers: from which receivers a sender backs off, and for how long (L4, S7).
type breakerOracle struct {
	oracleBase
	perIncarnation[breakerState]
}

func (*breakerOracle) subscribe(l *oracle.Subscriptions[breakerOracle]) {
	oracle.On(l, func(o *breakerOracle, _ *oracle.Call, e world.SendingRequest) {
		o.verifyRequest(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *breakerOracle, _ *oracle.Call, e world.ReplyReceived) {
		o.recordReply(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *breakerOracle, _ *oracle.Call, e pd.PutOutcome) { o.verifyPut(e.Node, e.Command, e.Effect) })
	oracle.On(l, func(o *breakerOracle, _ *oracle.Call, e stepCounted) { o.afterStep(e.node) })
}

// breakerState records the circuit breakers of an incarnation of a sender.
type breakerState struct {
	receivers []breakerRecord  // indexed by the receiver's node; empty before the first record
	requests  []breakerRequest `snap:"skip"`
	// busySince is the first step of the current series of steps after each of which the machine had work left. It is 0
	// if the last step left no work.
	busySince uint64 `snap:"skip"`
}

// breakerRequest records an allocation request or an offer that is in flight, with a digest of the keys and the request
// that the message names.
type breakerRequest struct {
	conn        uint64
	corr        effects.Corr
	contentHash uint64
	// chunks is the number of chunks that need room. It is 0 if the request does not wait at the receiver, so that a
	// refusal opens no breaker.
	chunks uint32
}

// lateRequestsMax is the number of recorded requests from which on requests of closed connections are removed.
const lateRequestsMax = 32

func (s *breakerState) clearForReuse() {
	*s = breakerState{receivers: s.receivers[:0], requests: s.requests[:0]}
}

// breakerRecord records what a receiver reported to an incarnation of a sender about lack of room, and the state of the
// sender's circuit breaker.
type breakerRecord struct {
	reported   bool
	reportedAt effects.Time // by the sender's clock, like all times here
	reportStep uint64       // the step of the sender that received the last report
	openUntil  effects.Time // the breaker is open until then, because a put ended for lack of room
	openedAt   effects.Time // when the breaker opened
	// minChunks is the number of chunks of the smallest put that was refused. The breaker may apply to puts of at least
	// as many chunks; 0 means any put.
	minChunks  uint32
	lastChunks uint32 // number of chunks of the last put that was refused; 0 means any put
	// lastOpenStep is the newest step that began while the receiver's last reply could still keep the breaker open.
	lastOpenStep uint64 `snap:"skip"`
	// grantStep is the step in which the sender last received a grant. The next field is the digest of the put that got
	// the grant.
	grantStep uint64 `snap:"skip"`
	grantHash uint64 `snap:"skip"`
}

// recordOf returns the record of a sender about a receiver.
func (or *breakerOracle) recordOf(n *world.Node, receiver int32) *breakerRecord {
	state := or.stateOf(n)
	for len(state.receivers) < len(or.w.Nodes) {
		state.receivers = append(state.receivers, breakerRecord{})
	}
	return &state.receivers[receiver]
}

// recordReply records a reply in which a receiver reports lack of room, when the reply reaches the sender's machine.
func (or *breakerOracle) recordReply(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	if pd.InfoOf(n).Cfg.BreakerTTL <= 0 || c.Channel != effects.ChannelAlloc || c.Server < 0 {
		return
	}
	state, hash, chunks := or.stateOf(n), uint64(0), uint32(math.MaxUint32)
	if i := slices.IndexFunc(state.requests, func(x breakerRequest) bool { return x.conn == c.ID && x.corr == corr }); i >= 0 {
		hash, chunks = state.requests[i].contentHash, state.requests[i].chunks
		state.requests = slices.Delete(state.requests, i, i+1)
	}
	code, wireCode, failed := effects.OK, uint32(0), false
	t := or.facts()
	if acked, ok := t.asAck(body); ok {
		failed, wireCode = acked.AllocFailed, acked.Ext.Code
	} else if m, ok := decodeOnce(&t.reply, t.turn, body); ok { // The reply may have any tag.
		failed, wireCode = m.AllocFailed, m.Ext.Code
	}
	if failed {
		code = effects.NoMemory
	}
	if wireCode != 0 {
		code = effects.CodeFromWire(wireCode)
	}
	if code == effects.NoMemory || code == effects.TooMany || code == effects.Draining {
		if chunks == 0 {
			return // Such a reply opens no breaker.
		}
		f := or.recordOf(n, c.Server)
		if code != effects.NoMemory {
			chunks = 0
		}
		if c.Closed { // The sender may not read this reply. Then an earlier reply counts.
			f.lastChunks = max(f.lastChunks, chunks)
		} else {
			f.lastChunks = chunks
		}
		if chunks == math.MaxUint32 {
			chunks = 0 // The request of the reply is unknown, because the connection is closed.
		}
		if !f.reported || or.w.ReadClock(n) > f.reportedAt.Add(pd.InfoOf(n).Cfg.BreakerTTL) && !state.mayStillEnd(f, f.lastOpenStep) {
			f.minChunks = chunks
		}
		f.minChunks = min(f.minChunks, chunks)
		f.reported, f.reportedAt, f.reportStep = true, or.w.ReadClock(n), n.StepCount+1
	} else if code == effects.OK && !c.Closed {
		f := or.recordOf(n, c.Server)
		f.grantStep, f.grantHash = n.StepCount+1, hash
	}
}

// verifyPut judges the end of a put. If the put ends because of a "full" reply, in the step that receives the reply,
// the breaker is open from then on. No put may end as BackedOff without a "full" reply, or after the breaker's time
// (L4). A put on a connection that failed earlier reads no reply, and may end with the same code for a different
// reason.
func (or *breakerOracle) verifyPut(n *world.Node, c *pd.Command, e *effects.Deliver) {
	code := e.Code
	if pd.InfoOf(n).Cfg.BreakerTTL <= 0 {
		or.countJudged(checkBackedOff)
		if code == effects.BackedOff {
			or.fail(checkBackedOff, "node %d backs off from node %d although circuit breakers are disabled",
				n.AsSubject(), oracle.Node(or.w.Jobs[c.Job].Receiver))
		}
		return
	}
	if or.w.Jobs[c.Job].PlainTo {
		or.countVoid(checkBackedOff)
		return // The oracle does not read the replies of the plain reader.
	}
	or.countJudged(checkBackedOff)
	f, now := or.recordOf(n, or.w.Jobs[c.Job].Receiver), or.w.ReadClock(n)
	isClosed := now > f.reportedAt.Add(pd.InfoOf(n).Cfg.BreakerTTL) && !or.stateOf(n).mayStillEnd(f, c.ReceivedStep)
	switch {
	case code == effects.BackedOff && (!f.reported || isClosed):
		or.fail(checkBackedOff, "node %d backs off from node %d, which has not reported for a long time that it is full",
			n.AsSubject(), oracle.Node(or.w.Jobs[c.Job].Receiver))
	case code == effects.BackedOff && uint32(len(c.Body.(*ops.Put).Keys)) < f.minChunks:
		or.fail(checkBackedOff, "node %d backs off from node %d with a put of %d chunks, and the smallest refused put had %d chunks",
			n.AsSubject(), oracle.Node(or.w.Jobs[c.Job].Receiver), len(c.Body.(*ops.Put).Keys), f.minChunks)
	case e.Why != nil && e.Why.Stage == effects.StageConnect:
	case f.reported && f.reportStep == n.StepCount && (code == effects.NoMemory || code == effects.TooMany || code == effects.Draining):
		f.openUntil, f.openedAt = now.Add(pd.InfoOf(n).Cfg.BreakerTTL), now
		or.countFullWithRequest(n, or.w.Jobs[c.Job].Receiver)
	case code == effects.BackedOff && f.grantStep == n.StepCount && f.grantHash == or.contentHashOf(c) && or.isOnlyPut(n, e.Ticket):
		// The put was in flight when the breaker opened, and must end by the reply to the put.
		or.fail(checkBackedOff,
			"node %d backs off from node %d in the step in which that node grants the pages of the put",
			n.AsSubject(), oracle.Node(or.w.Jobs[c.Job].Receiver))
	}
}

// mayStillEnd reports whether a machine may still have to end, because of the open breaker, a put that was issued in
// the given step: the breaker was open in that step, and the machine has had work left after each step since. A machine
// ends a bounded number of puts in each step, and the driver may call the machine late for the rest.
func (s *breakerState) mayStillEnd(f *breakerRecord, givenStep uint64) bool {
	return s.busySince != 0 && s.busySince <= f.lastOpenStep && givenStep <= f.lastOpenStep
}

// afterStep records whether the machine has work left, and which breakers may be open.
func (or *breakerOracle) afterStep(n *world.Node) {
	state := or.stateOf(n)
	switch {
	case !n.Busy:
		state.busySince = 0
	case state.busySince == 0:
		state.busySince = n.StepCount
	}
	for i := range state.receivers {
		if f := &state.receivers[i]; f.reported && or.w.ReadClock(n) <= f.reportedAt.Add(pd.InfoOf(n).Cfg.BreakerTTL) {
			f.lastOpenStep = n.StepCount
		}
	}
}

// contentHashOf returns a digest of the keys and the request of a put.
func (or *breakerOracle) contentHashOf(c *pd.Command) uint64 {
	p := c.Body.(*ops.Put)
	return contentHash('p', p.Keys, p.Request, 0)
}

// isOnlyPut reports whether the digest of a put is unique among the pending puts.
func (or *breakerOracle) isOnlyPut(n *world.Node, put effects.Ticket) bool {
	hash := or.contentHashOf(&or.w.Commands[put-1])
	return !slices.ContainsFunc(or.w.OpenCommands.Items, func(t effects.Ticket) bool {
		o := &or.w.Commands[t-1]
		return t != put && o.Kind == plan.CommandPut && o.Node == n.ID && o.Incarnation == n.Incarnation && !o.Finished &&
			or.contentHashOf(o) == hash
	})
}

// verifyRequest checks that no allocation request is sent to a receiver while the breaker for the receiver is open
// (S7).
func (or *breakerOracle) verifyRequest(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	if pd.InfoOf(n).Cfg.BreakerTTL <= 0 || c.Channel != effects.ChannelAlloc || c.Server < 0 {
		return
	}
	keys, request, chunks := [][]byte(nil), []byte(nil), uint32(0)
	if offer, ok := or.facts().asOffer(body); ok {
		keys, request, chunks = offer.Keys, offer.Ext.Request, uint32(len(offer.Keys))
	} else if m, ok := or.facts().asRequest(body); ok {
		keys, request = m.Keys, m.Ext.Request
		if !m.HasExt || m.Ext.PatienceNS > 0 && m.Ext.Layers == 0 {
			chunks = uint32(len(m.Keys))
		}
	}
	if len(keys) == 0 {
		return // The message withdraws or ends earlier requests.
	}
	state := or.stateOf(n)
	if len(state.requests) >= lateRequestsMax { // A reply may still arrive after the connection is closed.
		state.requests = slices.DeleteFunc(state.requests, func(x breakerRequest) bool { return or.w.ConnOf(x.conn).Closed })
	}
	state.requests = append(state.requests, breakerRequest{c.ID, corr, contentHash('p', keys, request, 0), chunks})
	if !or.recordOf(n, c.Server).reported {
		return
	}
	if or.mayBeForgotten(n, c.Server) {
		or.countVoid(checkBreakerOpen)
		return
	}
	or.countJudged(checkBreakerOpen)
	if f := or.recordOf(n, c.Server); f.openUntil > or.w.ReadClock(n) && chunks > 0 && chunks >= f.lastChunks {
		or.fail(checkBreakerOpen, "node %d sends a request for pages to node %d while the circuit breaker is open", n.AsSubject(),
			oracle.Node(c.Server))
	}
}

// mayBeForgotten reports whether a sender may have dropped the breaker of a receiver. A sender keeps breakers for a
// bounded number of addresses: the addresses of the receivers that reported lack of room most recently. A plain
// receiver's address may occupy a place, too.
func (or *breakerOracle) mayBeForgotten(n *world.Node, receiver int32) bool {
	cfg := &pd.InfoOf(n).Cfg
	capacity := int(cmp.Or(cfg.Tuning.BreakersPerPeer, 4) * cmp.Or(cfg.PeersMax, 256))
	f, newer := or.recordOf(n, receiver), 0
	if slices.ContainsFunc(or.w.Jobs, func(j pd.Job) bool { return j.PlainTo && j.Sender == n.ID }) {
		newer++
	}
	for i := range or.stateOf(n).receivers {
		if x := &or.stateOf(n).receivers[i]; int32(i) != receiver && x.reported && x.reportedAt >= f.openedAt {
			newer++
		}
	}
	return newer >= capacity
}

// countFullWithRequest counts, for the coverage of the run, a breaker that opens while a request to the same receiver
// is in flight.
func (or *breakerOracle) countFullWithRequest(n *world.Node, receiver int32) {
	if slices.ContainsFunc(or.w.Active.Conns.Items, func(c *world.Conn) bool {
		return c.Client == n.ID && c.Incarnation == n.Incarnation && c.Server == receiver && c.Channel == effects.ChannelAlloc &&
			c.OpenRequests > 0 && !c.Closed
	}) {
		pd.CountConjunction(&or.w.Result, pd.FullWithRequestOpen)
	}
}
