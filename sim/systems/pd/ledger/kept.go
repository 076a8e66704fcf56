package ledger

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkKeeps          = oracle.NewCheck("S9", "offers as they are deferred")
	checkContains       = oracle.NewCheck("S9", "answers to contains")
	checkPlacesPromised = oracle.NewCheck("S9", "remote locations that were promised")
	checkPlacesStanding = oracle.NewCheck("L2", "remote locations that can be read")
	checkEndEarly       = oracle.NewCheck("S9", "ends told of deferred offers")
	checkEndTwice       = oracle.NewCheck("S8", "ends told of offers, once each")
)

// keptOracle judges deferred offers: offers that a receiver keeps in order to read the chunks later. It checks how long
// the receiver keeps an offer (S9), what the receiver reports about the offer, and that the sender is notified of the
// offer's end once (S8).
type keptOracle struct {
	judge
	perLife[keptLife]
	get   protocol.AscendBatchedLookupAndGetMsg    `snap:"scratch"`
	lends protocol.AscendBatchedLookupAndGetRetMsg `snap:"scratch"`
}

func (*keptOracle) listen(l *oracle.Listen[keptOracle]) {
	oracle.On(l, func(o *keptOracle, c *oracle.Call, e *effects.Drop) { o.dropping(o.node(c), e) })
	oracle.On(l, func(o *keptOracle, _ *oracle.Call, e asked) {
		if e.channel == effects.ChannelInit {
			o.handsShaken(e.node)
		}
		o.offerAt(e.node, e.request, e.body)
	})
	oracle.On(l, func(o *keptOracle, _ *oracle.Call, e world.Replied) { o.lent(e.Node, e.Conn, e.Corr, e.Body) })
	oracle.On(l, func(o *keptOracle, _ *oracle.Call, e world.Sending) { o.asking(e.Node, e.Conn, e.Corr, e.Body) })
	oracle.On(l, func(o *keptOracle, _ *oracle.Call, e world.LinkLost) {
		o.outOfReach(e.Node, e.Peer, effects.PeerLost)
	})
	oracle.On(l, func(o *keptOracle, _ *oracle.Call, e pd.Commanded) {
		switch e.Command.Want {
		case pd.WantGiveUp:
			o.letsGo(e.Node, e.Command)
		case plan.WantContains:
			o.containing(e.Node, e.Command)
		case plan.WantAbandon:
			o.abandoned(e.Node, e.Command.Job)
		}
	})
	oracle.On(l, func(o *keptOracle, _ *oracle.Call, e pd.Outcome) {
		if e.Command.Want == pd.WantGiveUp && e.Effect.Code == effects.OK {
			o.left(e.Node, e.Command)
		}
	})
	oracle.On(l, func(o *keptOracle, _ *oracle.Call, e pd.Contained) { o.contained(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *keptOracle, _ *oracle.Call, e pd.Kept) { o.told(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *keptOracle, _ *oracle.Call, e pd.DoneSent) { o.endSaid(e.Node, e.Message, e.Taken) })
}

// keptLife records the deferred offers of an incarnation of a node.
type keptLife struct {
	kept      []keptOffer           // the deferred offers; may include a few that have ended
	here      []bool                `snap:"scratch"` // by chunk of the current Contains: whether the chunk was ready before the step
	came      cameOffer             `snap:"scratch"` // the offer message of this step
	unreached []effects.Incarnation // senders from which the node could not read at some time
	asks      []lentAsk
	anchors   []anchored `snap:"skip"`
}

func (s *keptLife) startReply() {
	*s = keptLife{kept: s.kept[:0], unreached: s.unreached[:0], asks: s.asks[:0], anchors: s.anchors[:0]}
}

// keptOffer is a deferred offer, recorded when the receiver replies that it defers the offer. From then on the receiver
// must be able to read the chunks for the promised time, unless the sender fails. After the end of the offer the
// receiver must not read the chunks.
type keptOffer struct {
	loan   *world.Grant
	owner  *world.Pool
	peer   effects.Incarnation
	pull   protocol.PullID
	job    int // the job that the offer is for; -1 if the offer names none
	chunks []keptChunk
	at     int64        `snap:"instant"`
	until  effects.Time // the offer must be kept until then, by the receiver's clock
	lent   bool         // the reader requested the lease
	lies   bool         // the message was changed on the way, so that the content of the offer is unknown
	shaky  bool         // the offer may have ended, because of an earlier event
	ending bool         // the offer is being given up; fetches of different requests may read the chunks until that is done
	over   bool         // the offer has ended

	ends     effects.Time `snap:"skip"` // the lease's end by the owner's clock, as far as the reader knows
	right    effects.Time `snap:"skip"` // end of the time in which the reader may certainly read, by the reader's clock
	spokenOf bool         `snap:"skip"` // the last renewal request named the offer
	passed   int          `snap:"skip"` // number of renewals with a reply since a renewal last named the offer
	beside   int          `snap:"skip"` // the largest number of offers kept of the sender in that time
	term     term         `snap:"skip"` // the time of the lease as far as the reader knows
}

// keptChunk is a chunk of a deferred offer.
type keptChunk struct {
	id      uint32
	index   int64 // the place in the offer
	perhaps bool  // a fetch may have consumed the chunk
	left    bool  // a fetch has consumed the chunk
}

// cameOffer is the offer message that a receiver gets in this step.
type cameOffer struct {
	request   uint64
	keeps     keptOffer
	withdrawn []protocol.PullID
}

// offerAt records an offer message when the message reaches the receiver's machine.
func (or *keptOracle) offerAt(n *world.Node, request uint64, body []byte) {
	my := or.at(n)
	my.came = cameOffer{}
	if !n.Receives() {
		return
	}
	m, is := or.truth().asOffer(body)
	if !is || !m.HasExt {
		return
	}
	owner := (*world.Pool)(nil)
	if len(m.Keys) > 0 && len(m.SenderUUIDs) > 0 {
		owner = or.w.Buffers[effects.BufferID(m.SenderUUIDs[0])]
	}
	var g *world.Grant
	if owner != nil {
		g = owner.Loan(effects.GrantID(m.Ext.Grant))
	}
	if g != nil {
		g.Loan.Came++
		or.offeredMeets(n, owner.Node, g)
	}
	if !n.Delays {
		return
	}
	x := &my.came
	x.request, x.keeps.peer, x.keeps.pull, x.keeps.job = request, effects.Incarnation(m.Ext.Incarnation), m.PullID, -1
	if len(m.Ext.Request) > 0 {
		x.keeps.job = int(or.w.JobNamed(m.Ext.Request))
	}
	for _, pull := range m.Ext.Withdraw {
		x.withdrawn = append(x.withdrawn, pull)
		for i := range my.kept {
			k := &my.kept[i]
			if k.pull == pull && k.peer == x.keeps.peer && pd.Believes(n, k.peer, effects.Incarnation(m.Ext.To)) {
				k.shaky = true
				or.all().fetch.excuse(n, effects.Withdrawn, k.ids()...)
			}
		}
	}
	if owner == nil {
		return
	}
	or.compares(n, owner.Node, m)
	x.keeps.right = or.rightOf(n, m)
	x.keeps.loan, x.keeps.owner = g, owner
	x.keeps.lies = g == nil || !pd.IsNameOf(n, g.Peer) || g.Loan.Pull != m.PullID || len(g.Pages) != len(m.Keys)
	for i, key := range m.Keys {
		id := uint32(0)
		if x.keeps.lies = x.keeps.lies || uint64(g.Pages[i].Index) != uint64(m.SenderIndexes[i]); !x.keeps.lies {
			id = g.Loan.Held[i].Key()
			x.keeps.lies = !bytes.Equal(or.w.Keys[id], key)
		}
		if !slices.ContainsFunc(m.Keys[:i], func(k []byte) bool { return bytes.Equal(k, key) }) {
			x.keeps.chunks = append(x.keeps.chunks, keptChunk{id: id, index: int64(i)})
		}
	}
}

// keeping records the receiver's reply to an offer message.
func (or *keptOracle) keeping(n *world.Node, request uint64, body []byte) {
	my := or.at(n)
	x := &my.came
	if x.request != request || request == 0 {
		return
	}
	m, is := or.truth().asAck(body)
	if !is || !m.HasExt {
		return
	}
	if m.Ext.Code == 0 && !m.AllocFailed {
		for i := range my.kept {
			if k := &my.kept[i]; k.peer == x.keeps.peer && slices.Contains(x.withdrawn, k.pull) {
				k.over = true
			}
		}
	}
	k := x.keeps
	// A refusal may say that a read is still in flight, but a refused offer is not kept.
	if !m.Ext.Delayed || m.Ext.Code != 0 || m.AllocFailed ||
		slices.ContainsFunc(my.kept, func(o keptOffer) bool { return o.loan == k.loan && o.pull == k.pull && !o.over }) {
		return
	}
	if !k.lies && k.loan.Loan.Kept && or.stillRead(n, &k) {
		return // The reply to a retry repeats the result of the first attempt while a read of the first attempt is in progress.
	}
	k.chunks = slices.DeleteFunc(k.chunks, func(c keptChunk) bool { return slices.Contains(m.AlreadySent, c.index) })
	k.at, k.until = or.w.Now, or.w.Clock(n).Add(pd.Its(n).Cfg.LeadMin)
	if !k.lies {
		k.ends = k.loan.Ends
		or.judged(checkKeeps)
		if left := or.w.Clock(k.owner.Node).Sub(k.loan.Ends) + pd.Its(n).Cfg.LeadMin; left > 0 {
			or.fail(checkKeeps,
				"node %d keeps the offer of grant %d although its lease is %d ns shorter than the least that is kept",
				n.It(), k.owner.Node.ItsGrant(k.loan.ID), left)
		}
		k.loan.Loan.Kept = true
		for _, c := range k.chunks {
			or.truth().stored[n.ID][c.id] = true
		}
	}
	k.shaky = slices.Contains(my.unreached, k.peer)
	or.all().renew.begins(n, &k)
	my.kept = append(my.kept, k)
	or.all().share.keepsShare(n, &k)
}

// stillRead reports whether a fetch that consumed all chunks of an offer may still read the chunks: either a fetch in
// progress, or a fetch that ended while reads were in flight.
func (or *keptOracle) stillRead(n *world.Node, k *keptOffer) bool {
	return slices.ContainsFunc(or.w.Undone.Some, func(ticket effects.Ticket) bool {
		c := &or.w.Commands[ticket-1]
		return c.Want == plan.WantFetch && c.Node == n.ID && c.Life == n.Life && !c.Over
	}) || slices.ContainsFunc(or.w.Going.Transfers.Some, func(t *world.Transfer) bool {
		return t.Read && t.Reading && t.Local == n.Pool && t.Remote == k.owner && t.Grant == k.loan.ID
	})
}

// ids returns the key numbers of the offered chunks.
func (k *keptOffer) ids() (all []uint32) {
	for i := range k.chunks {
		all = append(all, k.chunks[i].id)
	}
	return all
}

// mayHave reports whether any of the chunks may be in the offer.
func (k *keptOffer) mayHave(ids []uint32) bool {
	return slices.ContainsFunc(k.chunks, func(c keptChunk) bool { return k.lies || slices.Contains(ids, c.id) })
}

// stands reports whether an offer can still be kept: the offer was not ended, and the lease is in force.
func (or *keptOracle) stands(k *keptOffer) bool {
	return !k.over && (k.lies || or.w.Clock(k.owner.Node) <= k.loan.Ends)
}

// sure reports whether an offer must still be kept.
func (or *keptOracle) sure(n *world.Node, k *keptOffer) bool {
	return or.stands(k) && !k.lies && !k.shaky && or.w.Clock(n) <= k.until
}

// promisedHere reports whether a chunk must be in a deferred offer.
func (or *keptOracle) promisedHere(n *world.Node, id uint32) bool {
	return slices.ContainsFunc(or.at(n).kept, func(k keptOffer) bool {
		return or.sure(n, &k) && slices.ContainsFunc(k.chunks, func(c keptChunk) bool { return c.id == id && !c.perhaps })
	})
}

// aged reports whether any of the chunks was kept for so long that the lease may be over.
func (or *keptOracle) aged(n *world.Node, ids []uint32) bool {
	return slices.ContainsFunc(or.at(n).kept, func(k keptOffer) bool {
		return (k.lies || or.w.Clock(n) > k.until) && k.mayHave(ids)
	})
}

// reached reports whether the planes of all senders that may have any of the chunks are connected.
func (or *keptOracle) reached(n *world.Node, ids []uint32) bool {
	return !slices.ContainsFunc(or.at(n).kept, func(k keptOffer) bool {
		return or.stands(&k) && (k.lies || k.mayHave(ids)) &&
			!slices.ContainsFunc(n.Links, func(x *world.Link) bool {
				return x.Peer == k.peer && x.Given && !x.Told &&
					!x.Dropped
			})
	})
}

// left records which chunks of deferred offers a fetch has consumed: the chunks that were offered for the request of
// the fetch.
func (or *keptOracle) left(n *world.Node, c *pd.Command) {
	for i := range or.at(n).kept {
		k := &or.at(n).kept[i]
		if k.job >= 0 && k.job != c.Job {
			continue
		}
		for m := range k.chunks {
			if x := &k.chunks[m]; slices.Contains(or.all().fetch.wanted(c), x.id) {
				x.perhaps = true
				x.left = x.left || k.job == c.Job && k.at < c.Asked.At
			}
		}
	}
}

// letsGo records that a request is about to give up the chunks that its failed fetch did not bring.
func (or *keptOracle) letsGo(n *world.Node, c *pd.Command) {
	c.Asked.At = or.w.Now
	or.containing(n, c)
	for i := range or.at(n).kept {
		k := &or.at(n).kept[i]
		for m := range k.chunks {
			x := &k.chunks[m]
			x.perhaps = x.perhaps || k.job == c.Job && slices.Contains(or.all().fetch.wanted(c), x.id)
		}
	}
}

// abandoned marks the offers of a request as ending when the machine receives the command to abandon the request.
func (or *keptOracle) abandoned(n *world.Node, job int) {
	for i := range or.at(n).kept {
		if k := &or.at(n).kept[i]; k.job == job {
			k.shaky, k.ending = true, true
		}
	}
	// The fetches of the request end. Reads of the same offers for different requests go on (S18).
	for _, t := range or.all().fetch.at(n).fetches {
		if c := &or.w.Commands[t-1]; c.Job == job {
			c.Asked.Excuse |= 1 << effects.Cancelled
		}
	}
}

// outOfReach records that n cannot read from a sender, and why. The deferred offers of the sender may end, and fetches
// that read these offers may fail.
func (or *keptOracle) outOfReach(n *world.Node, peer effects.Incarnation, code effects.Code) {
	my := or.at(n)
	if !n.Delays {
		return
	}
	if !slices.Contains(my.unreached, peer) {
		my.unreached = append(my.unreached, peer)
	}
	for i := range my.kept {
		if k := &my.kept[i]; k.peer == peer {
			k.shaky = true
			or.all().fetch.excuse(n, code, k.ids()...)
		}
	}
}

// containing records which chunks are ready when a Contains reaches the machine, because a claim may end in the same
// step.
func (or *keptOracle) containing(n *world.Node, c *pd.Command) {
	my := or.at(n)
	my.here = my.here[:0]
	for _, id := range or.w.Jobs[c.Job].Ids {
		_, here := pd.ReadyAt(n, or.w.Keys[id])
		my.here = append(my.here, here)
	}
}

// contained checks how many chunks a receiver reports as available.
func (or *keptOracle) contained(n *world.Node, e *effects.Deliver, c *pd.Command) {
	my := or.at(n)
	ids := or.w.Jobs[c.Job].Ids
	if e.Code != effects.OK || !n.Delays {
		return
	}
	or.judged(checkContains)
	if int(e.Hits) > len(ids) {
		or.fail(checkContains, "node %d says that it can have %d chunks for ticket %d (contains), there are %d",
			n.It(), e.Hits, oracle.Ticket(e.Ticket), len(ids))
		return
	}
	for i, id := range ids {
		_, here := pd.ReadyAt(n, or.w.Keys[id])
		perhaps, lies := here || my.here[i], false
		for m := range my.kept {
			k := &my.kept[m]
			lies = lies || k.lies && or.stands(k)
			perhaps = perhaps || or.stands(k) &&
				slices.ContainsFunc(k.chunks, func(x keptChunk) bool { return x.id == id && !x.left })
		}
		switch {
		case i < int(e.Hits) && !perhaps && !lies:
			or.fail(checkContains,
				"node %d says that it can have chunk %d of ticket %d (contains), key %d, which is neither here nor in any "+
					"offer that stands",
				n.It(), i, oracle.Ticket(e.Ticket), oracle.Key(id))
		case i == int(e.Hits) && (here && my.here[i] || or.promisedHere(n, id)): // The chunk may have become ready later in the step.
			or.fail(checkContains,
				"node %d says that it cannot have chunk %d of ticket %d (contains), key %d, which is here or was promised "+
					"for longer",
				n.It(), i, oracle.Ticket(e.Ticket), oracle.Key(id))
		}
	}
}

// placed compares the machine's number of chunks in deferred offers with the smallest and the largest number that are
// possible.
func (or *keptOracle) placed(n *world.Node, s *rank.Stats) {
	my := or.at(n)
	least, most := 0, 0
	for i := range my.kept {
		k := &my.kept[i]
		if k.over = k.over || k.ending && !n.Busy; !or.stands(k) {
			continue
		}
		sure := or.sure(n, k)
		for m := range k.chunks {
			if !k.chunks[m].left {
				most++
			}
			if sure && !k.chunks[m].perhaps {
				least++
			}
		}
	}
	switch {
	case n.Draining:
		or.void(checkPlacesPromised)
	case n.Busy: // The machine may be dropping offers.
		or.void(checkPlacesStanding)
	case most > 0:
		or.judged(checkPlacesPromised, checkPlacesStanding)
	}
	switch {
	case n.Draining:
	case s.Locations < least:
		or.fail(checkPlacesPromised, "node %d keeps %d chunks of offers, it promised %d for longer", n.It(), s.Locations,
			least)
	case s.Locations > most && !n.Busy:
		or.fail(checkPlacesStanding, "node %d keeps %d chunks of offers, only %d can still be read", n.It(), s.Locations,
			most)
	}
	if len(or.all().fetch.at(n).fetches) == 0 {
		my.kept = slices.DeleteFunc(my.kept, func(k keptOffer) bool { return !or.stands(&k) })
	}
}

// endSaid checks the message that reports an offer's end to the sender: an offer that was made once is reported as
// ended once.
func (or *keptOracle) endSaid(n *world.Node, m *protocol.PullDoneSignal, taken bool) {
	if !m.HasExt {
		return
	}
	for i := range or.at(n).kept {
		k := &or.at(n).kept[i]
		if k.pull != m.PullID || protocol.UUID(k.peer) != m.Ext.To {
			continue
		}
		or.judged(checkEndEarly)
		if !n.Draining && or.sure(n, k) && slices.ContainsFunc(k.chunks, func(c keptChunk) bool { return !c.perhaps }) {
			or.fail(checkEndEarly, "node %d says that grant %d has ended although it promised more of its chunks for longer",
				n.It(), k.owner.Node.ItsGrant(k.loan.ID))
		}
		k.over = true
	}
	for _, o := range or.w.Nodes[:or.w.Ranks] {
		if !pd.IsNameOf(o, effects.Incarnation(m.Ext.To)) {
			continue
		}
		g := o.Pool.Loan(effects.GrantID(m.Ext.Grant))
		if g == nil || !pd.IsNameOf(n, g.Peer) {
			continue
		}
		or.judged(checkEndTwice)
		g.Loan.Said = true
		if taken {
			g.Loan.Words++
		}
		if g.Loan.Words > g.Loan.Came { // A sender that offers again has not received the end, and is notified again.
			or.fail(checkEndTwice, "node %d says more often that grant %d has ended than that was offered",
				n.It(), o.ItsGrant(g.ID))
		}
	}
}

// offeredMeets counts notable coincidences, for the coverage of the run, when an offer of grant g reaches the receiver.
// The grant has already counted the offer.
func (or *keptOracle) offeredMeets(n, owner *world.Node, g *world.Grant) {
	if g.Loan.Came > 1 && !g.Loan.Said && n.Draining {
		pd.Met(&or.w.Result, pd.DrainedOfferedAgain)
	}
	if g.Loan.Came > 1 && or.w.Clock(owner) > g.Ends {
		pd.Met(&or.w.Result, pd.OfferedAgainOver)
	}
	for _, t := range or.w.Going.Transfers.Some {
		if t.Read && t.Reading && t.Local == n.Pool && t.Link.Peer != pd.Its(owner).Incarnation && t.Link.To == owner.ID {
			pd.Met(&or.w.Result, pd.ReadOfFormerLife)
			return
		}
	}
}
