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
	checkEndCause  = oracle.NewCheck("L9", "commands that end by a sender's word")
	checkEndCode   = oracle.NewCheck("L9", "what gets of requests that have ended are told")
	checkEndAnswer = oracle.NewCheck("L9", "ends that are told")
)

// endsOracle judges what follows from end-of-request messages.
type endsOracle struct {
	judge
	perLife[endsLife]
	plays    bool                `snap:"skip"` // some job of the run sends end-of-request messages
	answered []endAnswered       `snap:"skip"`
	ask      protocol.EndRequest `snap:"scratch"`
}

func (*endsOracle) listen(l *oracle.Listen[endsOracle]) {
	oracle.On(l, func(o *endsOracle, _ *oracle.Call, e asked) {
		if e.channel == effects.ChannelAlloc {
			o.heard(e.node, e.request, e.body)
		}
	})
	oracle.On(l, func(o *endsOracle, _ *oracle.Call, e world.Sending) { o.saying(e.Node, e.Conn, e.Body) })
	oracle.On(l, func(o *endsOracle, _ *oracle.Call, e world.Replying) { o.replied(e.Node, e.Request) })
	oracle.On(l, func(o *endsOracle, _ *oracle.Call, e world.LinkLost) { o.lost(e.Node, e.Peer) })
	oracle.On(l, func(o *endsOracle, _ *oracle.Call, e pd.Outcome) { o.delivered(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *endsOracle, _ *oracle.Call, e counted) { o.afterStep(e.node) })
}

// endsLife records what one incarnation of a node has received, and the end-of-request messages without a reply.
type endsLife struct {
	ends    []heardEnd  `snap:"skip"`
	batches []heardOf   `snap:"skip"`
	asked   []endsAsked `snap:"skip"`
	ways    []uint64    `snap:"skip"` // connections on which the node, as a sender, sends end-of-request messages
}

func (s *endsLife) startReply() {
	*s = endsLife{ends: s.ends[:0], batches: s.batches[:0], asked: s.asked[:0], ways: s.ways[:0]}
}

// heardOf is a batch of a job or the end-of-request message of the job, as the receiver got the message.
type heardOf struct {
	job       int
	from      effects.Incarnation
	operation uint64
	granted   bool
	lost      bool // the sender was lost since: the request belongs to no sender until another batch arrives
}

// again reports whether a batch is a retry of the same batch.
func (b heardOf) again(o heardOf) bool {
	return o.job == b.job && o.from == b.from && o.operation == b.operation
}

// A heardEnd is an end-of-request message. The receiver may act on the message until the message is superseded, and
// must act on the message while no other message can give another outcome.
type heardEnd struct {
	heardOf
	name       effects.Incarnation // the sender's name in the message, genuine or not
	code       effects.Code
	said       string
	first      int64  // when the message arrived first
	last       int64  // when the message was last repeated
	step       uint64 // the step of the machine that received the message
	sure       bool   // no earlier or later message gives the receiver another outcome
	again      bool   // the sender sent another end-of-request message since, which may count instead
	superseded bool   // no effect: a later batch continues the request, or the request belongs to another connected peer
}

// endsAsked is an end-of-request message (KvfEndRequest) without a reply.
type endsAsked struct {
	request uint64
	job     int
}

// endAnswered counts the end-of-request messages of a job to which receivers have replied.
type endAnswered struct {
	job   int
	count uint32
}

func (or *endsOracle) reset(int) {
	or.answered = or.answered[:0]
	or.plays = slices.ContainsFunc(or.w.Source.Jobs, func(j plan.Job) bool { return j.Said[pd.Tells] })
}

// heard records a message on the alloc channel when it reaches the machine of n.
func (or *endsOracle) heard(n *world.Node, request uint64, body []byte) {
	if !or.plays {
		return
	}
	if protocol.MayHaveTag(body, protocol.TagEndRequest, &pd.WireLimits) && or.ask.Decode(body, &pd.WireLimits) == nil {
		or.all().places.speaks(n, effects.Incarnation(or.ask.Incarnation), effects.Incarnation(or.ask.To))
		or.heardEnd(n, request)
	} else if m, is := or.truth().asRequest(body); is && m.HasExt && len(m.Keys) > 0 {
		or.heardBatch(n, m.Ext.Request, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation)
	} else if o, is := or.truth().asOffer(body); is && o.HasExt && len(o.Keys) > 0 {
		or.heardBatch(n, o.Ext.Request, effects.Incarnation(o.Ext.Incarnation), o.Ext.Operation)
	}
}

// heardBatch records a batch. Only when the batch is granted, the request certainly begins anew.
func (or *endsOracle) heardBatch(n *world.Node, request []byte, from effects.Incarnation, operation uint64) {
	at := or.w.JobNamed(request)
	if at >= uint64(len(or.w.Jobs)) {
		return
	}
	my, b := or.at(n), heardOf{job: int(at), from: from, operation: operation}
	if !slices.ContainsFunc(my.batches, b.again) {
		my.batches = append(my.batches, b)
	}
	for i := range my.ends {
		if x := &my.ends[i]; x.job == b.job && (x.from != from || operation > x.operation) {
			x.sure = false
		}
	}
}

// granted records that a batch was granted or its chunks were taken. If the batch is later than the end of the request,
// the request goes on.
func (or *endsOracle) granted(n *world.Node, w *waiter) {
	my := or.at(n)
	for i := range my.batches {
		b := &my.batches[i]
		if b.from != w.peer || b.operation != w.operation {
			continue
		}
		b.granted, b.lost = true, false
		for i := range my.ends {
			if x := &my.ends[i]; x.job == b.job && (x.name != b.from || b.operation > x.operation) {
				x.superseded = true
			}
		}
	}
}

// lost records that n was notified of the loss of a peer, which may come back.
func (or *endsOracle) lost(n *world.Node, peer effects.Incarnation) {
	my := or.at(n)
	for i := range my.batches {
		if b := &my.batches[i]; b.from == peer {
			b.lost = true
		}
	}
}

// heardEnd records an end-of-request message.
func (or *endsOracle) heardEnd(n *world.Node, request uint64) {
	m, my := &or.ask, or.at(n)
	at := or.w.JobNamed(m.Request)
	if at >= uint64(len(or.w.Jobs)) {
		return
	}
	my.asked = append(my.asked, endsAsked{request, int(at)})
	x := heardEnd{
		heardOf: heardOf{job: int(at), from: effects.Incarnation(m.Incarnation), operation: m.Operation},
		code:    effects.CodeFromWire(m.Code), said: effects.SanitizeText(m.Reason), first: or.w.Now, last: or.w.Now, step: n.Steps + 1,
	}
	x.name = x.from
	known := pd.Believes(n, x.from, effects.Incarnation(m.To))
	if !known {
		x.from = effects.Incarnation{} // The sender is no peer that n knows.
	}
	x.sure = !or.few(n) && n.Receives()
	for _, b := range my.batches {
		if b.job == x.job && (b.from != x.from || !known || b.operation >= x.operation) {
			x.sure = false
		}
	}
	others := false
	for i := range my.ends {
		o := &my.ends[i]
		if o.job != x.job || o.superseded {
			continue
		}
		if o.from == x.from && o.operation == x.operation && o.code == x.code && o.said == x.said {
			o.last = or.w.Now
			return
		}
		x.sure = false // The message before may still count.
		o.again = o.again || o.from == x.from && x.operation >= o.operation
		others = true
	}
	x.superseded = !others && !or.few(n) && slices.ContainsFunc(my.batches, func(b heardOf) bool {
		return b.job == x.job && b.granted && or.all().places.known(n, b.from) &&
			(b.from == x.name && b.operation > x.operation || b.from != x.from && !b.lost)
	})
	my.ends = append(my.ends, x)
}

// few reports whether the table of requests at n is so small that records displace each other.
func (or *endsOracle) few(n *world.Node) bool {
	most := pd.Its(n).Cfg.RequestsMax
	return most != 0 && most < 64
}

// replied records the reply to an end-of-request message.
func (or *endsOracle) replied(n *world.Node, request uint64) {
	my := or.at(n)
	i := slices.IndexFunc(my.asked, func(x endsAsked) bool { return x.request == request })
	if i < 0 {
		return
	}
	job := my.asked[i].job
	my.asked = slices.Delete(my.asked, i, i+1)
	for k := range or.answered {
		if or.answered[k].job == job {
			or.answered[k].count++
			return
		}
	}
	or.answered = append(or.answered, endAnswered{job, 1})
}

// saying records on which connection a sender sends end-of-request messages.
func (or *endsOracle) saying(n *world.Node, c *world.Conn, body []byte) {
	if or.plays && !or.saysEnds(n, c) && protocol.MayHaveTag(body, protocol.TagEndRequest, &pd.WireLimits) {
		or.at(n).ways = append(or.at(n).ways, c.ID)
	}
}

// saysEnds reports whether n has sent an end-of-request message on a connection.
func (or *endsOracle) saysEnds(n *world.Node, c *world.Conn) bool {
	return slices.Contains(or.at(n).ways, c.ID)
}

// lanes returns how many connections with the same purpose as c node n may have to the port of c: a single connection
// for end-of-request messages, or the number of lanes. If n still has to send an end-of-request message, an additional
// connection is allowed.
func (or *endsOracle) lanes(n *world.Node, c *world.Conn) int {
	switch {
	case or.saysEnds(n, c):
		return 1
	case slices.ContainsFunc(or.w.Commands, func(x pd.Command) bool {
		return x.Want == pd.WantEnd && x.Node == n.ID && x.Life == n.Life && or.w.Jobs[x.Job].Receiver == c.Server &&
			(!x.Over || x.Code != effects.OK)
	}):
		return int(links.Lanes) + 1
	}
	return int(links.Lanes)
}

// within reports whether n still has a record of a message that arrived at the given instant. The given span extends
// the time for which n may have the record.
func (or *endsOracle) within(n *world.Node, at int64, longer effects.Duration) bool {
	return n.Shows(or.w.Now).Sub(n.Shows(at)) < 2*pd.Its(n).Cfg.ClaimTTL+longer
}

// ends reports whether n may end a command of a job because of an end-of-request message that the given function
// accepts.
func (or *endsOracle) ends(n *world.Node, job int, means func(x *heardEnd) bool) bool {
	my := or.at(n)
	for i := range my.ends {
		x := &my.ends[i]
		if x.job == job && !x.superseded && means(x) && or.within(n, x.last, 1) {
			return true
		}
	}
	return false
}

// ended reports whether n may act on any end-of-request message of a job.
func (or *endsOracle) ended(n *world.Node, job int) bool {
	return or.ends(n, job, func(*heardEnd) bool { return true })
}

// must returns the message on which n has to act for a job, and nil if there may be none.
func (or *endsOracle) must(n *world.Node, job int) *heardEnd {
	my := or.at(n)
	for i := range my.ends {
		if x := &my.ends[i]; x.job == job && x.sure && !x.superseded && or.within(n, x.first, 0) {
			return x
		}
	}
	return nil
}

// delivered judges the outcome of a Get, a Fetch or an End.
func (or *endsOracle) delivered(n *world.Node, e *effects.Deliver, c *pd.Command) {
	switch c.Want { //nolint:exhaustive // Nothing else is about ends.
	case plan.WantGet, plan.WantLook, plan.WantFetch:
		or.told(n, e, c)
	case pd.WantEnd:
		if e.Code != effects.OK && e.Code != effects.NotSent {
			return
		}
		or.judged(checkEndAnswer)
		i := slices.IndexFunc(or.answered, func(x endAnswered) bool { return x.job == c.Job && x.count > 0 })
		if i < 0 {
			or.fail(checkEndAnswer, "node %d says that the end of request %q was told, and no receiver has answered that",
				n.It(), oracle.Request(or.w.Jobs[c.Job].Name))
			return
		}
		or.answered[i].count--
	}
}

// told judges a command that ends with the outcome in the sender's message, and the code of a Get that ends short.
func (or *endsOracle) told(n *world.Node, e *effects.Deliver, c *pd.Command) {
	by := e.Code == effects.SenderFailed || e.Code == effects.NotSent
	names := false // The command names the request of its chunks.
	switch body := c.Body.(type) {
	case *engine.Get:
		names = len(body.Request) > 0
	case *engine.Fetch:
		names = len(body.Request) > 0
	}
	if by {
		if or.judged(checkEndCause); c.Want == plan.WantFetch {
			or.judged(checkEndFetch)
		}
		means := func(x *heardEnd) bool {
			return (x.code == effects.OK) == (e.Code == effects.NotSent) &&
				(e.Code == effects.NotSent || e.Why != nil && e.Why.Theirs == x.code.String() && e.Why.Said == x.said)
		}
		if !names || !or.ends(n, c.Job, means) {
			or.fail(checkEndCause, "node %d ends ticket %d (%s) as %s, and its sender has not said so, or not of this attempt",
				n.It(), oracle.Ticket(e.Ticket), c.Want, e.Code)
			return
		}
	}
	x := or.must(n, c.Job)
	if x == nil || !names || c.Want != plan.WantGet || n.Draining || c.Step <= x.step {
		return
	}
	or.judged(checkEndCode)
	switch {
	case c.Step != n.Steps:
		or.fail(checkEndCode, "node %d had ticket %d (get) wait, although its sender said before that nothing more comes",
			n.It(), oracle.Ticket(e.Ticket))
	case e.Code == effects.NotFound, x.code != effects.OK && !x.again && e.Code == effects.Lapsed:
		or.fail(checkEndCode, "node %d ends ticket %d (get) as %s, and its sender said how the request ended: %s",
			n.It(), oracle.Ticket(e.Ticket), e.Code, x.code)
	}
}

// afterStep checks that no Get waits for more chunks of a request that has ended.
func (or *endsOracle) afterStep(n *world.Node) {
	my := or.at(n)
	if len(my.ends) == 0 || n.Busy || n.Draining {
		return
	}
	for i := range my.ends {
		if x := &my.ends[i]; x.sure && x.step == n.Steps {
			or.judged(checkEndWaits)
		}
	}
	for _, t := range or.all().hope.at(n).gets {
		c := &or.w.Commands[t-1]
		if c.Over || c.Due == 0 || c.Want != plan.WantGet {
			continue
		}
		if x := or.must(n, c.Job); x != nil {
			or.fail(checkEndWaits, "node %d lets ticket %d (get) wait, although node %d has said that nothing more comes",
				n.It(), oracle.Ticket(t), oracle.Node(or.w.Jobs[c.Job].Sender))
			return
		}
	}
	if n.Delays {
		or.fetchesWait(n)
	}
}

// fetchesWait checks the same of Fetches that miss a chunk.
func (or *endsOracle) fetchesWait(n *world.Node) {
	for _, t := range or.all().fetch.openFetches(n) {
		c := &or.w.Commands[t-1]
		body, ok := c.Body.(*engine.Fetch)
		// A fetch that has begun waits for memory or for reads, and not for a chunk that may still come.
		if !ok || len(body.Request) == 0 || c.Due == 0 || pd.Fetching(n, t) || or.must(n, c.Job) == nil {
			continue
		}
		for _, id := range or.all().fetch.wanted(c) {
			key := or.w.Keys[id]
			if _, ready := pd.ReadyAt(n, key); !ready && !pd.Hopes(n, key) {
				or.fail(checkEndFetch,
					"node %d lets ticket %d (fetch) wait for chunk %d, although node %d has said that nothing more comes",
					n.It(), oracle.Ticket(t), oracle.Key(id), oracle.Node(or.w.Jobs[c.Job].Sender))
				return
			}
		}
	}
}

// misses reports whether a Get with this code misses a chunk and says what became of the chunk.
func misses(code effects.Code) bool {
	return code == effects.NotFound || code == effects.Lapsed || code == effects.NotSent || code == effects.SenderFailed
}

// unknown reports whether a command with this code misses a chunk of which the node knows nothing except, possibly,
// that the chunk was never sent.
func unknown(code effects.Code) bool { return code == effects.NotFound || code == effects.NotSent }
