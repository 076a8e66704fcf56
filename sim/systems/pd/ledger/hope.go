package ledger

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A Get waits for the next missing chunk until the deadline, or until the last source of that chunk is lost (L8). A
// source is a fill, a deferred offer, or a request or an offer that waits for memory. When the last source is lost, the
// Get ends in the same step.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkGaveUp     = oracle.NewCheck("L8", "gets that end early")
	checkHopeless   = oracle.NewCheck("L8", "gets that lost their hope")
	checkHopeKept   = oracle.NewCheck("L8", "gets that wait for offers")
	checkWokenDrain = oracle.NewCheck("L6", "gets in a drain")
	checkWoken      = oracle.NewCheck("L8", "gets whose chunks are ready")
)

// hopeOracle judges whether Gets wait only while the missing chunks may still arrive, and why Gets end (L8).
type hopeOracle struct {
	judge
	perLife[hopeLife]
}

func (*hopeOracle) listen(l *oracle.Listen[hopeOracle]) {
	oracle.On(l, func(o *hopeOracle, _ *oracle.Call, e pd.Commanded) {
		if e.Command.Want == plan.WantGet || e.Command.Want == plan.WantLook {
			o.given(e.Node, e.Ticket)
		}
	})
	oracle.On(l, func(o *hopeOracle, _ *oracle.Call, e pd.Got) { o.gaveUp(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *hopeOracle, _ *oracle.Call, e world.Observed) {
		switch e.Effect.Fact {
		case effects.FactFillLost:
			o.lost(e.Node, e.Effect.ID)
		case effects.FactAllocRefused:
			o.refusal(e.Node, e.Effect.Code)
		}
	})
	oracle.On(l, func(o *hopeOracle, _ *oracle.Call, e counted) {
		o.afterStep(e.node)
		if e.node.Delays {
			o.waitsForKept(e.node)
		}
	})
}

// hopeLife records the pending Gets of an incarnation of a node, and the sources that the current step lost.
type hopeLife struct {
	gets    []effects.Ticket // given to the machine, and not yet delivered
	ready   bool             // a chunk became readable in this step
	lost    []uint32         // keys of which a source was lost in this step
	dimmed  bool             // a source of any key was lost
	doomed  []doomed
	refused effects.Code // the code in a report that a request is about to be refused
}

func (s *hopeLife) startReply() { *s = hopeLife{gets: s.gets[:0], lost: s.lost[:0]} }

// given records a Get when its machine receives the command.
func (or *hopeOracle) given(n *world.Node, t effects.Ticket) {
	or.at(n).gets = append(or.at(n).gets, t)
}

// afterStep checks that no Get goes on waiting in vain.
func (or *hopeOracle) afterStep(n *world.Node) {
	or.hopeless(n)
	or.woken(n)
	or.at(n).dimmed, or.at(n).refused = or.at(n).dimmed && n.Busy, effects.OK
}

// lost records that a fill of a chunk will not complete.
func (or *hopeOracle) lost(n *world.Node, hash uint64) {
	my := or.at(n)
	my.dimmed = true
	if k, ok := or.truth().named(n, hash); ok {
		my.lost = append(my.lost, k)
	}
}

// refusal records that the machine is about to refuse a request or an offer. No source is lost if the code makes the
// sender repeat the message.
func (or *hopeOracle) refusal(n *world.Node, code effects.Code) {
	if code != effects.Stale && code != effects.Expired {
		or.at(n).refused, or.at(n).dimmed = code, true
	}
}

// turnedDown records, when the reply to a waiting request or offer is sent, that the request failed, so that a source
// of the chunks is lost. The fact of the refusal precedes the reply. A request that is refused at once was never a
// source of chunks.
func (or *hopeOracle) turnedDown(n *world.Node, w *waiter) {
	my := or.at(n)
	given := my.refused == effects.OK
	my.refused = effects.OK
	if given || w.fresh || len(w.body) == 0 || len(my.gets) == 0 {
		return
	}
	for _, key := range or.namesOf(w) {
		or.lost(n, pd.KeyHashOf(n, key))
	}
}

// namesOf returns the keys that a request or an offer named.
func (or *hopeOracle) namesOf(w *waiter) [][]byte {
	m, o := &or.truth().ask, &or.truth().pull
	switch {
	case len(w.body) == 0:
		return nil
	case m.Decode(w.body, &pd.WireLimits) == nil:
		return m.Keys
	case o.Decode(w.body, &pd.WireLimits) == nil:
		return o.Keys
	}
	return nil
}

// gaveUp checks a Get that ends short before its deadline: a source was lost in this step, and at least one missing
// chunk has no source left.
func (or *hopeOracle) gaveUp(n *world.Node, e *effects.Deliver, c *pd.Command) {
	wait := min(c.Patience, pd.Its(n).Cfg.GetWaitMax)
	if e.Code != effects.NotFound && e.Code != effects.Lapsed || wait == 0 || n.Draining {
		return
	}
	begun := c.Due - int64(n.Slowest(c.Patience)+pd.Grace)
	left := wait - n.Shows(or.w.Now).Sub(n.Shows(begun))
	if left <= 0 {
		return
	}
	if e.Code == effects.Lapsed && or.all().ends.ended(n, c.Job) { // Then the sender has reported that no more chunks will be sent.
		or.void(checkGaveUp)
		return
	}
	or.judged(checkGaveUp)
	if !n.Delays && !or.at(n).dimmed {
		or.fail(checkGaveUp, "node %d ends ticket %d (%s) %d ns before its time although nothing was lost that it waits for",
			n.It(), oracle.Ticket(e.Ticket), c.Want, left)
		return
	}
	j := &or.w.Jobs[c.Job]
	for i := j.After(e.Hits); i < len(j.Keys); i++ {
		if _, ready := pd.ReadyAt(n, j.Keys[i]); !ready && !or.comes(n, j.Keys[i], j.Ids[i]) {
			return
		}
	}
	or.fail(checkGaveUp, "node %d ends ticket %d (%s) %d ns before its time although chunk %d may still come",
		n.It(), oracle.Ticket(e.Ticket), c.Want, left, j.Ids[j.After(e.Hits)])
}

// comes reports whether a chunk certainly may still arrive: the sender keeps the chunk for this node, or a request or
// offer that names the chunk waits for pages.
func (or *hopeOracle) comes(n *world.Node, key []byte, id uint32) bool {
	queue := or.all().queue.at(n)
	named := func(w *waiter) bool {
		return slices.ContainsFunc(or.namesOf(w), func(k []byte) bool { return bytes.Equal(k, key) })
	}
	if n.Delays && or.all().kept.promisedHere(n, id) {
		return true
	}
	for i := range queue.waiters {
		if w := &queue.waiters[i]; w.keys > 0 && !w.reading && w.conn != 0 && named(w) {
			return true
		}
	}
	return false
}

// hopeless checks each Get whose next chunk lost a source in this step: if no source is left, the Get must not go on
// waiting.
func (or *hopeOracle) hopeless(n *world.Node) {
	my := or.at(n)
	if !n.Busy {
		for _, x := range my.doomed {
			or.without(n, x.ticket, x.id)
		}
		my.doomed = my.doomed[:0]
	}
	if len(my.lost) == 0 {
		return
	}
	for _, t := range my.gets {
		i := or.firstMissing(n, t)
		if i < 0 {
			continue
		}
		// A chunk that was ready before may be gone since. Then the Get is past this chunk, and waits for a later
		// chunk.
		j := &or.w.Jobs[or.w.Commands[t-1].Job]
		switch id := j.Ids[i]; {
		case !slices.Contains(my.lost, id) || or.truth().stored[n.ID][id]:
		case n.Busy: // The machine goes on in its next step. A source that is left now may end without a report.
			if !pd.Hopes(n, j.Keys[i]) {
				my.doomed = append(my.doomed, doomed{t, id})
			}
		default:
			or.without(n, t, id)
		}
	}
	my.lost = my.lost[:0]
}

// doomed is a Get that waits for a chunk of which a source was lost while the machine had more work.
type doomed struct {
	ticket effects.Ticket
	id     uint32
}

// without fails the run if a Get still waits for a chunk that lost a source and has no source left.
func (or *hopeOracle) without(n *world.Node, t effects.Ticket, id uint32) {
	i := or.firstMissing(n, t)
	if i < 0 {
		return
	}
	j := &or.w.Jobs[or.w.Commands[t-1].Job]
	if j.Ids[i] != id {
		return
	}
	or.judged(checkHopeless)
	if !pd.Hopes(n, j.Keys[i]) {
		or.fail(checkHopeless, "node %d lets ticket %d (get) wait for chunk %d although its last hope is gone",
			n.It(), oracle.Ticket(t), id)
	}
}

// firstMissing returns the first chunk that a pending Get misses, and -1 if there is none or the Get is over.
func (or *hopeOracle) firstMissing(n *world.Node, t effects.Ticket) int {
	if or.w.Commands[t-1].Over {
		return -1
	}
	return slices.IndexFunc(or.w.Jobs[or.w.Commands[t-1].Job].Keys, func(k []byte) bool { return !or.isReady(n, k) })
}

// waitsForKept checks that no Get goes on waiting for a chunk if the last source was a deferred offer and the offer
// ended in this step.
func (or *hopeOracle) waitsForKept(n *world.Node) {
	if n.Busy {
		return
	}
	for _, t := range or.at(n).gets {
		c := &or.w.Commands[t-1]
		if c.Over || c.Due == 0 {
			continue
		}
		j, was := &or.w.Jobs[c.Job], c.From
		for c.From < len(j.Keys) && or.isReady(n, j.Keys[c.From]) {
			c.From++
		}
		if c.From == len(j.Keys) { // A chunk that was here before is gone.
			c.From, c.Hoped = 0, false
			continue
		}
		if n.Lends && n.Caches && or.truth().stored[n.ID][j.Ids[c.From]] { // The chunk was here, so the Get may be past it.
			or.void(checkHopeKept)
			c.Hoped = false
			continue
		}
		kept := or.all().kept.promisedHere(n, j.Ids[c.From])
		if c.Hoped && c.From == was && !kept {
			or.judged(checkHopeKept)
		}
		if c.Hoped && c.From == was && !kept && !pd.Hopes(n, j.Keys[c.From]) {
			or.fail(checkHopeKept, "node %d lets ticket %d (%s) wait for chunk %d although its last hope, a kept offer, is gone",
				n.It(), oracle.Ticket(t), c.Want, j.Ids[c.From])
			return
		}
		c.Hoped = kept
	}
}

// isReady reports whether the chunk with the given key is ready at n.
func (or *hopeOracle) isReady(n *world.Node, key []byte) bool {
	_, ready := pd.ReadyAt(n, key)
	return ready
}

// woken checks that a Get is delivered in the step that makes the last missing chunk readable, and that a drain leaves
// no Get waiting.
func (or *hopeOracle) woken(n *world.Node) {
	my := or.at(n)
	if n.Busy { // There may be many Gets: the machine goes on in its next step.
		return
	}
	if !my.ready && !n.Draining || len(my.gets) == 0 {
		my.ready = false
		return
	}
	my.ready = false
	my.gets = slices.DeleteFunc(my.gets, func(t effects.Ticket) bool { return or.w.Commands[t-1].Over })
	if n.Draining {
		or.judged(checkWokenDrain)
	}
	for _, t := range my.gets {
		if n.Draining {
			or.fail(checkWokenDrain, "node %d drains and lets ticket %d (get) wait", n.It(), oracle.Ticket(t))
			return
		}
		j := &or.w.Jobs[or.w.Commands[t-1].Job]
		or.judged(checkWoken)
		ready := 0
		for _, k := range j.Keys {
			if _, ok := pd.ReadyAt(n, k); ok {
				ready++
			}
		}
		if ready == len(j.Keys) {
			or.fail(checkWoken, "node %d lets ticket %d (get) wait although all of its %d chunks are ready",
				n.It(), oracle.Ticket(t), ready)
			return
		}
	}
}
