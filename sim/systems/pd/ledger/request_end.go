package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	links "github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A sender's end-of-request message (KvfEndRequest) ends the Gets and Fetches of the request in the step that takes the
// message, or the command (L9). Nothing else ends a command as sender_failed or not_sent. A message that a later batch
// of the request has overtaken ends no command, nor does a message from long ago.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkEndWaits  = oracle.NewCheck("L9", "gets of requests that have ended")
	checkEndFetch  = oracle.NewCheck("L9", "fetches of requests that have ended")
	checkEndCause  = oracle.NewCheck("L9", "commands that end by an end-of-request message")
	checkEndCode   = oracle.NewCheck("L9", "codes of gets of requests that have ended")
	checkEndAnswer = oracle.NewCheck("L9", "outcomes of end commands")
)

// requestEndOracle judges what follows from end-of-request messages.
type requestEndOracle struct {
	oracleBase
	perIncarnation[requestEndState]
	enabled     bool                `snap:"skip"` // some job of the run sends end-of-request messages
	replyCounts []endReplyCount     `snap:"skip"`
	endRequest  protocol.EndRequest `snap:"scratch"`
}

func (*requestEndOracle) subscribe(l *oracle.Subscriptions[requestEndOracle]) {
	oracle.On(l, func(o *requestEndOracle, _ *oracle.Call, e messageReceived) {
		if e.channel == effects.ChannelAlloc {
			o.recordMessage(e.node, e.request, e.body)
		}
	})
	oracle.On(l, func(o *requestEndOracle, _ *oracle.Call, e world.SendingRequest) {
		o.recordEndConn(e.Node, e.Conn, e.Body)
	})
	oracle.On(l, func(o *requestEndOracle, _ *oracle.Call, e world.SendingReply) { o.recordReply(e.Node, e.Request) })
	oracle.On(l, func(o *requestEndOracle, _ *oracle.Call, e world.LinkLost) { o.recordPeerLost(e.Node, e.Peer) })
	oracle.On(l, func(o *requestEndOracle, _ *oracle.Call, e pd.CommandOutcome) {
		o.verifyOutcome(e.Node, e.Effect, e.Command)
	})
	oracle.On(l, func(o *requestEndOracle, _ *oracle.Call, e stepCounted) { o.afterStep(e.node) })
}

// requestEndState records what one incarnation of a node has received, and the end-of-request messages without a reply.
type requestEndState struct {
	ends        []receivedEnd   `snap:"skip"`
	batches     []receivedBatch `snap:"skip"`
	pendingEnds []pendingEnd    `snap:"skip"`
	endConns    []uint64        `snap:"skip"` // connections on which the node, as a sender, sends end-of-request messages
}

func (s *requestEndState) clearForReuse() {
	*s = requestEndState{ends: s.ends[:0], batches: s.batches[:0], pendingEnds: s.pendingEnds[:0], endConns: s.endConns[:0]}
}

// receivedBatch is a batch of a job or the end-of-request message of the job, as the receiver got the message.
type receivedBatch struct {
	job        int
	sender     effects.Incarnation
	operation  uint64
	granted    bool
	senderLost bool // the sender was lost since: the request belongs to no sender until another batch arrives
	senderBack bool // the batch arrived again after the loss, so that the request may belong to the sender again
}

// findBatch returns the record of the same batch, of which b is a retry, or nil.
func (s *requestEndState) findBatch(b *receivedBatch) *receivedBatch {
	for i := range s.batches { // There may be thousands, so none is copied.
		if o := &s.batches[i]; o.operation == b.operation && o.job == b.job && o.sender == b.sender {
			return o
		}
	}
	return nil
}

// A receivedEnd is an end-of-request message. The receiver may act on the message until the message is superseded, and
// must act on the message while no other message can give another outcome.
type receivedEnd struct {
	receivedBatch
	name        effects.Incarnation // the sender's name in the message, genuine or not
	code        effects.Code
	reason      string
	firstAt     int64  // when the message arrived first
	lastAt      int64  // when the message was last repeated
	step        uint64 // the step of the machine that received the message
	certain     bool   // no earlier or later message gives the receiver another outcome
	sentAnother bool   // the sender sent another end-of-request message since, which may count instead
	superseded  bool   // no effect: a later batch continues the request, or the request belongs to another connected peer
}

// pendingEnd is an end-of-request message (KvfEndRequest) without a reply.
type pendingEnd struct {
	request uint64
	job     int
}

// endReplyCount counts the end-of-request messages of a job to which receivers have replied.
type endReplyCount struct {
	job   int
	count uint32
}

func (or *requestEndOracle) reset(int) {
	or.replyCounts = or.replyCounts[:0]
	or.enabled = slices.ContainsFunc(or.w.SourcePlan.Jobs, func(j plan.Job) bool { return j.Flags[pd.ReportsEnd] })
}

// recordMessage records a message on the alloc channel when it reaches the machine of n.
func (or *requestEndOracle) recordMessage(n *world.Node, request uint64, body []byte) {
	if !or.enabled {
		return
	}
	if protocol.MayHaveTag(body, protocol.TagEndRequest, &pd.WireLimits) && or.endRequest.Decode(body, &pd.WireLimits) == nil {
		or.oracles().peerRows.recordMessage(n, effects.Incarnation(or.endRequest.Incarnation), effects.Incarnation(or.endRequest.To))
		or.recordEnd(n, request)
	} else if m, ok := or.facts().asRequest(body); ok && m.HasExt && len(m.Keys) > 0 {
		or.recordBatch(n, m.Ext.Request, m.Keys[0], effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation)
	} else if o, ok := or.facts().asOffer(body); ok && o.HasExt && len(o.Keys) > 0 {
		or.recordBatch(n, o.Ext.Request, o.Keys[0], effects.Incarnation(o.Ext.Incarnation), o.Ext.Operation)
	}
}

// recordBatch records a batch. Only when the batch is granted, the request certainly begins anew.
func (or *requestEndOracle) recordBatch(n *world.Node, request, key []byte, from effects.Incarnation, operation uint64) {
	at := or.w.JobIndex(request)
	if at >= uint64(len(or.w.Jobs)) || protocol.TenantOf(key) != uint64(or.w.Jobs[at].Tenant()) {
		return
	}
	state, b := or.stateOf(n), receivedBatch{job: int(at), sender: from, operation: operation}
	if o := state.findBatch(&b); o == nil {
		state.batches = append(state.batches, b)
	} else {
		o.senderBack = true
	}
	for i := range state.ends {
		if x := &state.ends[i]; x.job == b.job && (x.sender != from || operation > x.operation) {
			x.certain = false
		}
	}
}

// recordGranted records that a batch was granted or its chunks were taken. If the batch is later than the end of the
// request, the request goes on.
func (or *requestEndOracle) recordGranted(n *world.Node, w *pendingRequest) {
	state := or.stateOf(n)
	for i := range state.batches {
		b := &state.batches[i]
		if b.sender != w.peer || b.operation != w.operation {
			continue
		}
		// A batch that waited while its sender was lost may be granted on leased planes, and need not continue the request.
		isLost := b.senderLost && !b.senderBack
		b.granted, b.senderLost = true, isLost
		for i := range state.ends {
			if x := &state.ends[i]; x.job == b.job && (x.name != b.sender || b.operation > x.operation) {
				x.superseded, x.certain = x.superseded || !isLost, false
			}
		}
	}
}

// recordPeerLost records that n was notified of the loss of a peer, which may come back.
func (or *requestEndOracle) recordPeerLost(n *world.Node, peer effects.Incarnation) {
	state := or.stateOf(n)
	for i := range state.batches {
		if b := &state.batches[i]; b.sender == peer {
			b.senderLost, b.senderBack = true, false
		}
	}
}

// recordEnd records an end-of-request message.
func (or *requestEndOracle) recordEnd(n *world.Node, request uint64) {
	m, state := &or.endRequest, or.stateOf(n)
	at := or.w.JobIndex(m.Request)
	if at >= uint64(len(or.w.Jobs)) || or.w.Jobs[at].Tenant() != effects.Tenant(m.Tenant) {
		return // A request of another tenant, which has the same id (S31).
	}
	state.pendingEnds = append(state.pendingEnds, pendingEnd{request, int(at)})
	x := receivedEnd{
		receivedBatch: receivedBatch{job: int(at), sender: effects.Incarnation(m.Incarnation), operation: m.Operation},
		code:          effects.CodeFromWire(m.Code), reason: effects.SanitizeText(m.Reason),
		firstAt: or.w.Now, lastAt: or.w.Now, step: n.StepCount + 1,
	}
	x.name = x.sender
	known := pd.IsGenuine(n, x.sender, effects.Incarnation(m.To))
	if !known {
		x.sender = effects.Incarnation{} // The sender is no peer that n knows.
	}
	x.certain = !or.hasFewRecords(n) && n.IsReceiver()
	for _, b := range state.batches {
		// A sender that was lost does not keep the request (M7).
		if b.job == x.job && (!known || b.sender != x.sender && (!b.senderLost || b.senderBack) ||
			b.sender == x.sender && b.operation >= x.operation) {
			x.certain = false
		}
	}
	hasOther := false
	for i := range state.ends {
		o := &state.ends[i]
		if o.job != x.job || o.superseded {
			continue
		}
		if o.sender == x.sender && o.operation == x.operation && o.code == x.code && o.reason == x.reason {
			o.lastAt = or.w.Now
			return
		}
		x.certain = false // The message before may still count.
		o.sentAnother = o.sentAnother || o.name == x.name && x.operation >= o.operation
		hasOther = true
	}
	x.superseded = !hasOther && !or.hasFewRecords(n) && slices.ContainsFunc(state.batches, func(b receivedBatch) bool {
		return b.job == x.job && b.granted && or.oracles().peerRows.isKnown(n, b.sender) &&
			(b.sender == x.name && b.operation > x.operation || b.sender != x.sender && !b.senderLost)
	})
	state.ends = append(state.ends, x)
}

// hasFewRecords reports whether the table of requests at n is so small that records displace each other.
func (or *requestEndOracle) hasFewRecords(n *world.Node) bool {
	limit := pd.InfoOf(n).Cfg.RequestsMax
	return limit != 0 && limit < 64
}

// recordReply records the reply to an end-of-request message.
func (or *requestEndOracle) recordReply(n *world.Node, request uint64) {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.pendingEnds, func(x pendingEnd) bool { return x.request == request })
	if i < 0 {
		return
	}
	job := state.pendingEnds[i].job
	state.pendingEnds = slices.Delete(state.pendingEnds, i, i+1)
	for k := range or.replyCounts {
		if or.replyCounts[k].job == job {
			or.replyCounts[k].count++
			return
		}
	}
	or.replyCounts = append(or.replyCounts, endReplyCount{job, 1})
}

// recordEndConn records on which connection a sender sends end-of-request messages.
func (or *requestEndOracle) recordEndConn(n *world.Node, c *world.Conn, body []byte) {
	if or.enabled && !or.isEndConn(n, c) && protocol.MayHaveTag(body, protocol.TagEndRequest, &pd.WireLimits) {
		or.stateOf(n).endConns = append(or.stateOf(n).endConns, c.ID)
	}
}

// isEndConn reports whether n has sent an end-of-request message on a connection.
func (or *requestEndOracle) isEndConn(n *world.Node, c *world.Conn) bool {
	return slices.Contains(or.stateOf(n).endConns, c.ID)
}

// countLanes returns how many connections with the same purpose as c node n may have to the port of c: a single
// connection for end-of-request messages, or the number of lanes. If n still has to send an end-of-request message, an
// additional connection is allowed.
func (or *requestEndOracle) countLanes(n *world.Node, c *world.Conn) int {
	if or.isEndConn(n, c) {
		return 1
	}
	for i := range or.w.Commands {
		if x := &or.w.Commands[i]; x.Kind == pd.WantEnd && x.Node == n.ID && x.Incarnation == n.Incarnation &&
			or.w.Jobs[x.Job].Receiver == c.Server && (!x.Finished || x.Code != effects.OK) {
			return int(links.Lanes) + 1
		}
	}
	return int(links.Lanes)
}

// isRemembered reports whether n still has a record of a message that arrived at the given instant. The given span
// extends the time for which n may have the record.
func (or *requestEndOracle) isRemembered(n *world.Node, at int64, extra effects.Duration) bool {
	return n.ReadingAt(or.w.Now).Sub(n.ReadingAt(at)) < 2*pd.InfoOf(n).Cfg.ClaimTTL+extra
}

// mayEnd reports whether n may end a command of a job because of an end-of-request message that the given function
// accepts.
func (or *requestEndOracle) mayEnd(n *world.Node, job int, matches func(x *receivedEnd) bool) bool {
	state := or.stateOf(n)
	for i := range state.ends {
		x := &state.ends[i]
		if x.job == job && !x.superseded && matches(x) && or.isRemembered(n, x.lastAt, 1) {
			return true
		}
	}
	return false
}

// hasEnded reports whether n may act on any end-of-request message of a job.
func (or *requestEndOracle) hasEnded(n *world.Node, job int) bool {
	return or.mayEnd(n, job, func(*receivedEnd) bool { return true })
}

// certainEnd returns the message on which n has to act for a job, and nil if there may be none.
func (or *requestEndOracle) certainEnd(n *world.Node, job int) *receivedEnd {
	state := or.stateOf(n)
	for i := range state.ends {
		if x := &state.ends[i]; x.job == job && x.certain && !x.superseded && or.isRemembered(n, x.firstAt, 0) {
			return x
		}
	}
	return nil
}

// verifyOutcome judges the outcome of a Get, a Fetch or an End.
func (or *requestEndOracle) verifyOutcome(n *world.Node, e *effects.Deliver, c *pd.Command) {
	switch c.Kind { //nolint:exhaustive // Nothing else is about ends.
	case plan.CommandGet, plan.CommandLookup, plan.CommandFetch:
		or.verifyEndCode(n, e, c)
	case pd.WantEnd:
		if e.Code != effects.OK && e.Code != effects.NotSent {
			return
		}
		or.countJudged(checkEndAnswer)
		i := slices.IndexFunc(or.replyCounts, func(x endReplyCount) bool { return x.job == c.Job && x.count > 0 })
		if i < 0 {
			or.fail(checkEndAnswer, "node %d reports that the end of request %q was delivered, and no receiver has replied",
				n.AsSubject(), oracle.Request(or.w.Jobs[c.Job].Name))
			return
		}
		or.replyCounts[i].count--
	}
}

// verifyEndCode judges a command that ends with the outcome in the sender's message, and the code of a Get that ends
// short.
func (or *requestEndOracle) verifyEndCode(n *world.Node, e *effects.Deliver, c *pd.Command) {
	bySender := e.Code == effects.SenderFailed || e.Code == effects.NotSent
	namesRequest := false // The command names the request of its chunks.
	switch body := c.Body.(type) {
	case *engine.Get:
		namesRequest = len(body.Request) > 0
	case *engine.Fetch:
		namesRequest = len(body.Request) > 0
	}
	if bySender {
		if or.countJudged(checkEndCause); c.Kind == plan.CommandFetch {
			or.countJudged(checkEndFetch)
		}
		matches := func(x *receivedEnd) bool {
			return (x.code == effects.OK) == (e.Code == effects.NotSent) &&
				(e.Code == effects.NotSent || e.Why != nil && e.Why.Theirs == x.code.String() && e.Why.Said == x.reason)
		}
		if !namesRequest || !or.mayEnd(n, c.Job, matches) {
			or.fail(checkEndCause, "node %d ends ticket %d (%s) as %s, and the sender has not reported that for this attempt",
				n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, e.Code)
			return
		}
	}
	x := or.certainEnd(n, c.Job)
	if x == nil || !namesRequest || c.Kind != plan.CommandGet || n.Draining || c.ReceivedStep <= x.step {
		return
	}
	or.countJudged(checkEndCode)
	switch {
	case c.ReceivedStep != n.StepCount:
		or.fail(checkEndCode, "node %d let ticket %d (get) wait although the sender had reported the end of the request",
			n.AsSubject(), oracle.Ticket(e.Ticket))
	case e.Code == effects.NotFound, x.code != effects.OK && !x.sentAnother && e.Code == effects.Lapsed:
		or.fail(checkEndCode, "node %d ends ticket %d (get) as %s although the sender reported the end of the request: %s",
			n.AsSubject(), oracle.Ticket(e.Ticket), e.Code, x.code)
	}
}

// afterStep checks that no Get waits for more chunks of a request that has ended.
func (or *requestEndOracle) afterStep(n *world.Node) {
	state := or.stateOf(n)
	if len(state.ends) == 0 || n.Busy || n.Draining {
		return
	}
	for i := range state.ends {
		if x := &state.ends[i]; x.certain && x.step == n.StepCount {
			or.countJudged(checkEndWaits)
		}
	}
	for _, t := range or.oracles().getWaits.stateOf(n).gets {
		c := &or.w.Commands[t-1]
		if c.Finished || c.DueAt == 0 || c.Kind != plan.CommandGet {
			continue
		}
		if x := or.certainEnd(n, c.Job); x != nil {
			or.fail(checkEndWaits, "node %d lets ticket %d (get) wait although node %d has reported the end of the request",
				n.AsSubject(), oracle.Ticket(t), oracle.Node(or.w.Jobs[c.Job].Sender))
			return
		}
	}
	if n.KeepsOffers {
		or.verifyFetches(n)
	}
}

// verifyFetches checks the same of Fetches that miss a chunk.
func (or *requestEndOracle) verifyFetches(n *world.Node) {
	for _, t := range or.oracles().fetches.openFetches(n) {
		c := &or.w.Commands[t-1]
		body, ok := c.Body.(*engine.Fetch)
		// A fetch that has begun waits for memory or for reads, and not for a chunk that may still come.
		if !ok || len(body.Request) == 0 || c.DueAt == 0 || pd.IsFetching(n, t) || or.certainEnd(n, c.Job) == nil {
			continue
		}
		for _, id := range or.oracles().fetches.chunksOf(c) {
			key := or.w.Keys[id]
			if _, ready := pd.ReadyAt(n, key); !ready && !pd.MayArrive(n, key) {
				or.fail(checkEndFetch,
					"node %d lets ticket %d (fetch) wait for chunk %d although node %d has reported the end of the request",
					n.AsSubject(), oracle.Ticket(t), oracle.Key(id), oracle.Node(or.w.Jobs[c.Job].Sender))
				return
			}
		}
	}
}

// isMissCode reports whether a Get with this code misses a chunk and says what became of the chunk.
func isMissCode(code effects.Code) bool {
	return code == effects.NotFound || code == effects.Lapsed || code == effects.NotSent || code == effects.SenderFailed
}

// isUnknownCode reports whether a command with this code misses a chunk of which the node knows nothing except,
// possibly, that the chunk was never sent.
func isUnknownCode(code effects.Code) bool {
	return code == effects.NotFound || code == effects.NotSent
}
