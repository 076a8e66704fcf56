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

// A sender's word how a request ended (KvfEndRequest) ends the Gets and Fetches of that request in the step that takes
// the word, or the command (L9). Nothing else ends one as sender_failed or not_sent, and neither a word that a later
// batch of the request has overtaken nor one from long ago ends any.

// What is judged here.
var (
	checkEndWaits  = oracle.NewCheck("L9", "gets of requests that have ended")
	checkEndFetch  = oracle.NewCheck("L9", "fetches of requests that have ended")
	checkEndCause  = oracle.NewCheck("L9", "commands that end by a sender's word")
	checkEndCode   = oracle.NewCheck("L9", "what gets of requests that have ended are told")
	checkEndAnswer = oracle.NewCheck("L9", "ends that are told")
)

// endsOracle judges what follows from senders' words how requests ended.
type endsOracle struct {
	judge
	perLife[endsLife]
	plays    bool                `snap:"skip"` // somebody says how requests ended
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

// endsLife is what one life has heard, and the words that it has not answered.
type endsLife struct {
	ends    []heardEnd  `snap:"skip"`
	batches []heardOf   `snap:"skip"`
	asked   []endsAsked `snap:"skip"`
	ways    []uint64    `snap:"skip"` // connections on which it says how requests ended, as a sender
}

func (s *endsLife) empty() {
	*s = endsLife{ends: s.ends[:0], batches: s.batches[:0], asked: s.asked[:0], ways: s.ways[:0]}
}

// heardOf is a batch of a job, or the word how the job ended, as its receiver got it.
type heardOf struct {
	job       int
	from      effects.Incarnation
	operation uint64
	granted   bool
	lost      bool // its sender was lost since: the request is not its sender's any more, until another batch comes
}

// again reports whether a batch is the same, asked for again.
func (b heardOf) again(o heardOf) bool {
	return o.job == b.job && o.from == b.from && o.operation == b.operation
}

// A heardEnd is a word how a job ended. The receiver may go by it until it is superseded; it has to while it is sure.
type heardEnd struct {
	heardOf
	name       effects.Incarnation // in which it was said, whether that is its sender's or not
	code       effects.Code
	said       string
	first      int64  // when it came first
	last       int64  // and when it was repeated last
	step       uint64 // of the machine, that took it
	sure       bool   // nothing that came before or since gives the receiver another reason
	again      bool   // its sender said another since, which may count in its place
	superseded bool   // it counts for nothing: the request goes on by a later batch, or is another peer's, which is there
}

// endsAsked is a KvfEndRequest by the number of its message.
type endsAsked struct {
	request uint64
	job     int
}

// endAnswered counts the ends of a job that receivers have answered.
type endAnswered struct {
	job   int
	count uint32
}

func (or *endsOracle) reset(int) {
	or.answered = or.answered[:0]
	or.plays = slices.ContainsFunc(or.w.Source.Jobs, func(j plan.Job) bool { return j.Said[pd.Tells] })
}

// heard notes a message on the alloc channel as it reaches the machine of n.
func (or *endsOracle) heard(n *world.Node, request uint64, body []byte) {
	if !or.plays {
		return
	}
	if protocol.MayBe(body, protocol.TagEndRequest, &pd.WireLimits) && or.ask.Decode(body, &pd.WireLimits) == nil {
		or.all().places.speaks(n, effects.Incarnation(or.ask.Incarnation), effects.Incarnation(or.ask.To))
		or.heardEnd(n, request)
	} else if m, is := or.truth().asRequest(body); is && m.HasExt && len(m.Keys) > 0 {
		or.heardBatch(n, m.Ext.Request, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation)
	} else if o, is := or.truth().asOffer(body); is && o.HasExt && len(o.Keys) > 0 {
		or.heardBatch(n, o.Ext.Request, effects.Incarnation(o.Ext.Incarnation), o.Ext.Operation)
	}
}

// heardBatch notes a batch. Whether it begins the request anew is certain when it is granted.
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

// granted notes that a batch was granted, or is kept: if it is later than the end of its request, that goes on.
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

// lost notes that n knows that a peer is gone, if only for a while.
func (or *endsOracle) lost(n *world.Node, peer effects.Incarnation) {
	my := or.at(n)
	for i := range my.batches {
		if b := &my.batches[i]; b.from == peer {
			b.lost = true
		}
	}
}

// heardEnd notes a word how a request ended.
func (or *endsOracle) heardEnd(n *world.Node, request uint64) {
	m, my := &or.ask, or.at(n)
	at := or.w.JobNamed(m.Request)
	if at >= uint64(len(or.w.Jobs)) {
		return
	}
	my.asked = append(my.asked, endsAsked{request, int(at)})
	x := heardEnd{
		heardOf: heardOf{job: int(at), from: effects.Incarnation(m.Incarnation), operation: m.Operation},
		code:    effects.CodeFromWire(m.Code), said: effects.Words(m.Reason), first: or.w.Now, last: or.w.Now, step: n.Steps + 1,
	}
	x.name = x.from
	known := pd.Believes(n, x.from, effects.Incarnation(m.To))
	if !known {
		x.from = effects.Incarnation{} // It is nobody's whom n knows.
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
		x.sure = false // The one before may count still.
		o.again = o.again || o.from == x.from && x.operation >= o.operation
		others = true
	}
	x.superseded = !others && !or.few(n) && slices.ContainsFunc(my.batches, func(b heardOf) bool {
		return b.job == x.job && b.granted && or.all().places.known(n, b.from) &&
			(b.from == x.name && b.operation > x.operation || b.from != x.from && !b.lost)
	})
	my.ends = append(my.ends, x)
}

// few reports whether n remembers so few requests that others take their places.
func (or *endsOracle) few(n *world.Node) bool {
	most := pd.Its(n).Cfg.RequestsMax
	return most != 0 && most < 64
}

// replied notes the answer to a message that said how a request ended.
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

// saying notes on which connection a sender says how a request ended.
func (or *endsOracle) saying(n *world.Node, c *world.Conn, body []byte) {
	if or.plays && !or.saysEnds(n, c) && protocol.MayBe(body, protocol.TagEndRequest, &pd.WireLimits) {
		or.at(n).ways = append(or.at(n).ways, c.ID)
	}
}

// saysEnds reports whether n has said on a connection how a request ended.
func (or *endsOracle) saysEnds(n *world.Node, c *world.Conn) bool {
	return slices.Contains(or.at(n).ways, c.ID)
}

// lanes is how many connections n may have to the port at which c ends, of those that serve what c does: one where it
// says how requests ended, and the lanes. Where it was to say that, and did not yet, one of those says nothing.
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

// within reports whether n remembers until now what it heard at an instant, and perhaps for a little longer.
func (or *endsOracle) within(n *world.Node, at int64, longer effects.Duration) bool {
	return n.Shows(or.w.Now).Sub(n.Shows(at)) < 2*pd.Its(n).Cfg.ClaimTTL+longer
}

// ends reports whether n may end a command of a job because of a word that means one of some codes.
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

// ended reports whether n may go by any word how a job ended.
func (or *endsOracle) ended(n *world.Node, job int) bool {
	return or.ends(n, job, func(*heardEnd) bool { return true })
}

// must is the word by which n has to go for a job; nil: there may be none.
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

// told judges a command that ends as its sender said, and what one is told that ends short.
func (or *endsOracle) told(n *world.Node, e *effects.Deliver, c *pd.Command) {
	by := e.Code == effects.SenderFailed || e.Code == effects.NotSent
	names := false // It says of which request it wants chunks.
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

// afterStep checks that nobody waits for more of a request that has ended.
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
		// One that has begun waits for memory or for reads, and for no chunk that may still come.
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

// misses reports whether a Get ends so that misses a chunk, and says what became of that.
func misses(code effects.Code) bool {
	return code == effects.NotFound || code == effects.Lapsed || code == effects.NotSent || code == effects.SenderFailed
}

// unknown reports whether one ends so of whose chunk nothing is known here but, perhaps, that it was never sent.
func unknown(code effects.Code) bool { return code == effects.NotFound || code == effects.NotSent }
