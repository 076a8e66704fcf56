package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Each promise to keep a chunk for a request is followed individually, from the landing or the reply that makes the
// promise to the read, the message or the instant that ends the promise. If something about a promise is uncertain
// (rule M7: the table was nearly full, the request was abandoned once, a fetch may have begun), only that promise
// becomes uncertain.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkClaimed = oracle.NewCheck("S9", "chunks as many requests are promised")
	checkClaims  = oracle.NewCheck("L2", "claims of requests that read")
	checkLapsed  = oracle.NewCheck("S20", "lapses of promises whose time is over")
	checkLayerIn = oracle.NewCheck("S9", "layers that are confirmed")
)

// claimedOracle judges for how many requests, and for how long, a machine keeps each chunk.
type claimedOracle struct {
	judge
	perLife[claimedLife]
}

func (*claimedOracle) listen(l *oracle.Listen[claimedOracle]) {
	oracle.On(l, func(o *claimedOracle, c *oracle.Call, e *effects.Landed) { o.at(o.node(c)).landing = e })
	oracle.On(l, func(o *claimedOracle, c *oracle.Call, e *effects.Confirm) { o.told(o.node(c), e.Code) })
	oracle.On(l, func(o *claimedOracle, _ *oracle.Call, e pd.Commanded) {
		switch e.Command.Want {
		case plan.WantFetch:
			o.fetching(e.Node, e.Command.Job)
		case plan.WantAbandon:
			o.abandoned(e.Node, e.Command.Job)
		}
	})
	oracle.On(l, func(o *claimedOracle, _ *oracle.Call, e pd.Outcome) {
		if e.Command.Want == pd.WantGiveUp && e.Effect.Code == effects.OK {
			o.gaveUp(e.Node, e.Command)
		}
	})
	oracle.On(l, func(o *claimedOracle, _ *oracle.Call, e pd.Got) {
		o.got(e.Node, e.Command, len(e.Effect.Pages))
		o.missed(e.Node, e.Effect, e.Command)
	})
	oracle.On(l, func(o *claimedOracle, _ *oracle.Call, e world.Observed) { o.fact(e.Node, e.Effect) })
	oracle.On(l, func(o *claimedOracle, _ *oracle.Call, e counted) { o.afterStep(e.node, e.stats.Claims) })
}

// claimedLife records the promises of an incarnation of a node.
type claimedLife struct {
	rows    []claimed                    `snap:"skip"` // in the order in which machines make promises
	grants  map[effects.GrantID]uint64   `snap:"skip"` // by grant: the request that the grant is for
	chunks  map[effects.GrantID][]uint32 `snap:"skip"` // by grant: the chunks, in the order of the grant's pages
	layers  map[effects.GrantID]bool     `snap:"skip"` // grants for layers of chunks
	each    map[effects.GrantID][]uint32 `snap:"skip"` // by grant for layers: the chunk of each page
	ended   []ended                      `snap:"skip"` // promises that expired
	fetched []uint64                     `snap:"skip"` // requests with a fetch, whose claims may end at any time
	claims  int                          `snap:"skip"` // the machine's count of claims after the last step
	blind   bool                         `snap:"skip"` // a grant was made for unknown chunks
	touched []uint32                     `snap:"scratch"`
	landing *effects.Landed              `snap:"scratch"` // the event of the last landing
	commits effects.GrantID              `snap:"scratch"` // the grant that a sender committed last
}

func (s *claimedLife) startReply() {
	*s = claimedLife{rows: s.rows[:0], grants: world.Emptied(s.grants), chunks: world.Emptied(s.chunks),
		layers: world.Emptied(s.layers), each: world.Emptied(s.each), ended: s.ended[:0], fetched: s.fetched[:0], touched: s.touched[:0]}
}

// fact takes a fact about chunks that a machine observes.
func (or *claimedOracle) fact(n *world.Node, e *effects.Observe) {
	//exhaustive:ignore
	switch e.Fact { // Other facts are not about promises.
	case effects.FactReady:
		k, ok := or.truth().named(n, e.ID)
		if _, layers := or.w.Plan.Layer(k); ok && layers > 0 {
			or.chunkWhole(n, k)
		}
	case effects.FactLapsed:
		or.lapsed(n, e)
	}
}

// claimed is a promise to keep a chunk for a request.
type claimed struct {
	chunk   uint32
	request uint64 // a hash of the id of the request; 0: the request has no id
	until   effects.Time
	last    effects.Time // the latest value that until may have
	perhaps bool         // the promise may have ended, or may never have been made
	overdue bool         // the promise must end before the machine has no more work
}

// requestOf returns a hash of a request's id, and 0 for an empty id.
func requestOf(id []byte) uint64 {
	if len(id) == 0 {
		return 0
	}
	return digest('r', nil, id, 0)
}

// exact reports whether the oracle sees each promise of n. Where chunks are read instead of pushed, the oracle does not
// see all promises.
func (or *claimedOracle) exact(n *world.Node) bool {
	return len(or.w.Source.Topology.Pull) == 0 && !or.w.Flows.Bring() && !or.at(n).blind
}

// promised records that n keeps a chunk for a request from now on. If sure is false, the promise may not have been
// made.
func (or *claimedOracle) promised(n *world.Node, chunk uint32, request uint64, sure bool) {
	my := or.at(n)
	my.touched = append(my.touched, chunk)
	until := or.w.Clock(n).Add(pd.Its(n).Cfg.ClaimTTL)
	if n.Delays && (request == 0 || slices.Contains(my.fetched, request)) {
		sure = false
	}
	my.renewed(chunk, request, sure)
	if request != 0 {
		for i := range my.rows {
			r := &my.rows[i]
			if r.chunk != chunk || r.request != request {
				continue
			}
			r.last = until
			if r.perhaps = !sure; sure { // The promise's time begins anew.
				r.until = until
			}
			r.overdue = false
			return
		}
	}
	my.rows = append(my.rows, claimed{chunk, request, until, until, !sure, false})
}

// fits reports whether a further claim on a chunk certainly fits into the table: the first claim on a chunk always
// fits, and any claim fits into a table that is less than half full.
func (or *claimedOracle) fits(n *world.Node, chunk uint32) bool {
	my := or.at(n)
	if or.exact(n) && !or.promises(n, chunk) {
		return true
	}
	most := cmp.Or(int(pd.Its(n).Cfg.ClaimsMax), 8*int(pd.Its(n).Cfg.Pages))
	return 2*(my.claims+len(my.touched))+1 <= most
}

// promises reports whether n has promised a chunk to any request, and the promise may be in force.
func (or *claimedOracle) promises(n *world.Node, chunk uint32) bool {
	return slices.ContainsFunc(or.at(n).rows, func(r claimed) bool { return r.chunk == chunk })
}

// answered takes a reply to an allocation request, and the grant that was made with the reply.
func (or *claimedOracle) answered(n *world.Node, w *waiter, grant effects.GrantID, took bool) {
	t := or.truth()
	my, m, reply := or.at(n), &t.request.m, &t.reply.m
	if w.keys == 0 || w.offer != 0 || !t.asks || !t.tells {
		my.blind = my.blind || grant != 0
		return
	}
	if reply.AllocFailed || reply.HasExt && reply.Ext.Code != 0 || grant == 0 && len(reply.RemoteIndexes) > 0 {
		return // Nothing was promised, or the reply repeats an earlier one.
	}
	request := requestOf(m.RequestID)
	if m.HasExt {
		request = requestOf(m.Ext.Request)
	}
	if m.HasExt && m.Ext.Layers > 0 {
		or.answeredLayers(n, request, grant)
		return
	}
	var fresh []uint32
	for i, key := range m.Keys {
		if slices.ContainsFunc(m.Keys[:i], func(o []byte) bool { return string(o) == string(key) }) {
			continue
		}
		chunk, _ := or.w.Keys.Number(key)
		if slices.Contains(reply.AlreadySent, int64(i)) {
			or.promised(n, chunk, request, true)
		} else {
			fresh = append(fresh, chunk)
		}
	}
	if took && !n.Draining {
		for _, chunk := range fresh {
			or.promised(n, chunk, request, !or.abandonedOnce(n, request) && or.fits(n, chunk))
		}
	}
	if grant == 0 {
		return
	}
	if my.chunks == nil {
		my.chunks, my.grants = map[effects.GrantID][]uint32{}, map[effects.GrantID]uint64{}
	}
	my.chunks[grant], my.grants[grant] = fresh, request
	if or.w.Setting.Leased && or.w.Plan.Rank.TrustUncommitted && w.peer == (effects.Incarnation{}) {
		for _, chunk := range fresh {
			or.promised(n, chunk, request, false) // If the chunk is present already, the sender's pages are not used.
		}
	}
}

// landed records that pages of a grant are whole. If pages is nil, all pages of the grant are.
func (or *claimedOracle) landed(n *world.Node, id effects.GrantID, pages []effects.Page, sure bool) {
	my, g := or.at(n), n.Grants[id]
	chunks, layers := my.chunks[id], my.layers[id]
	if layers { // chunkWhole records the promises of whole chunks. A chunk that was ready before may be promised anew.
		for _, chunk := range chunks {
			if _, ready := pd.ReadyAt(n, or.w.Keys[chunk]); ready && g != nil && !n.Draining {
				or.promised(n, chunk, my.grants[id], false) // The promise may also be made anew.
			}
		}
		return
	}
	if g == nil || n.Draining {
		return
	}
	if len(chunks) != len(g.Pages) {
		my.blind = true
		return
	}
	request := my.grants[id]
	for at, p := range g.Pages {
		if pages != nil && !slices.ContainsFunc(pages, func(o effects.Page) bool { return o.Index == p.Index }) {
			continue
		}
		or.promised(n, chunks[at], request, sure && !or.abandonedOnce(n, request) && or.fits(n, chunks[at]))
	}
}

// answeredLayers takes a reply to an allocation request for layers. A layer that is there already is promised with all
// layers of its chunk.
func (or *claimedOracle) answeredLayers(n *world.Node, request uint64, grant effects.GrantID) {
	my, m, reply := or.at(n), &or.truth().request.m, &or.truth().reply.m
	for _, i := range reply.AlreadySent {
		if i < 0 || i >= int64(len(m.Keys)) {
			continue
		}
		if k, ok := or.w.Keys.Number(m.Keys[i]); ok {
			first, _ := or.w.Plan.Layer(k)
			or.promised(n, first, request, true)
		}
	}
	if grant == 0 {
		return
	}
	if my.layers == nil {
		my.layers = map[effects.GrantID]bool{}
	}
	if my.grants == nil {
		my.chunks, my.grants = map[effects.GrantID][]uint32{}, map[effects.GrantID]uint64{}
	}
	my.layers[grant], my.grants[grant] = true, request
	var chunks, each []uint32
	for i, key := range m.Keys {
		if k, ok := or.w.Keys.Number(key); ok {
			first, _ := or.w.Plan.Layer(k)
			if !slices.Contains(chunks, first) {
				chunks = append(chunks, first)
			}
			if !slices.Contains(reply.AlreadySent, int64(i)) {
				each = append(each, first)
			}
		}
	}
	if my.each == nil {
		my.each = map[effects.GrantID][]uint32{}
	}
	my.chunks[grant], my.each[grant] = chunks, each
}

// chunkWhole records that all layers of a chunk are here. The chunk is kept for the request of the grant under which
// the last layer has landed.
func (or *claimedOracle) chunkWhole(n *world.Node, chunk uint32) {
	my := or.at(n)
	grant := my.commits
	if my.landing != nil {
		grant = my.landing.Grant
	}
	if request, ok := my.grants[grant]; ok && !n.Draining {
		or.promised(n, chunk, request, !or.abandonedOnce(n, request) && or.fits(n, chunk))
	}
}

// abandonedOnce reports whether a request was abandoned in this incarnation of n.
func (or *claimedOracle) abandonedOnce(n *world.Node, request uint64) bool {
	if request != 0 {
		for i := range or.w.Jobs {
			if j := &or.w.Jobs[i]; j.Abandoned != 0 && j.AbandonedIn == n.Life && requestOf(j.Name) == request {
				return true
			}
		}
	}
	return false
}

// told takes the machine's confirmation of a push that has landed.
func (or *claimedOracle) told(n *world.Node, code effects.Code) {
	if ev := or.at(n).landing; ev != nil && len(ev.Pages) > 0 {
		if code == effects.OK {
			or.layersIn(n, ev)
		}
		or.landed(n, ev.Grant, ev.Pages, code != effects.Withdrawn)
	}
}

// layersIn checks that a layer which is confirmed with OK belongs to a chunk that the node is assembling, because the
// sender relies on that. A layer of a chunk that is gone is confirmed as withdrawn.
func (or *claimedOracle) layersIn(n *world.Node, ev *effects.Landed) {
	my, g := or.at(n), n.Grants[ev.Grant]
	each := my.each[ev.Grant]
	if g == nil || len(each) == 0 {
		return
	}
	if len(each) != len(g.Pages) || n.Draining || or.abandonedOnce(n, my.grants[ev.Grant]) {
		or.void(checkLayerIn)
		return
	}
	for at, p := range g.Pages {
		chunk := each[at]
		if or.truth().stored[n.ID][chunk] ||
			!slices.ContainsFunc(ev.Pages, func(o effects.Page) bool { return o.Index == p.Index }) {
			continue // The chunk may have been whole, and be gone since.
		}
		hopes := pd.Hopes(n, or.w.Keys[chunk])
		if !hopes && n.Thaws(or.w.Now) { // The time of the incomplete chunk may have ended after this event was queued.
			or.void(checkLayerIn)
			continue
		}
		if or.judged(checkLayerIn); !hopes {
			or.fail(checkLayerIn, "node %d confirms a layer of chunk %d under grant %d, and has nothing of that chunk",
				n.It(), oracle.Key(chunk), n.ItsGrant(ev.Grant))
			return
		}
	}
}

// got handles chunks that a reader received, in order. The promises of these chunks to the reader's request end. If the
// request had no promise of a chunk, the oldest promise to a request without an id ends.
func (or *claimedOracle) got(n *world.Node, c *pd.Command, pages int) {
	my, j := or.at(n), &or.w.Jobs[c.Job]
	if c.Want != plan.WantGet {
		return
	}
	for _, chunk := range j.Ids[:min(pages, len(j.Ids))] {
		if first, _ := or.w.Plan.Layer(chunk); first != chunk {
			continue // All layers of a chunk are promised at once.
		}
		my.touched = append(my.touched, chunk)
		own, nobodys := -1, -1
		unsure := j.Given[plan.WantAbandon] > 0 // A promise of the request may still have been in force.
		for i := range my.rows {
			r := &my.rows[i]
			switch {
			case r.chunk != chunk:
			case r.request == requestOf(j.Name):
				own, unsure = i, unsure || r.perhaps
			case r.request == 0:
				if nobodys < 0 {
					nobodys = i
				}
				unsure = unsure || r.perhaps
			}
		}
		switch at := max(own, -1); {
		case unsure && (own < 0 || my.rows[own].perhaps):
			for i := range my.rows {
				if r := &my.rows[i]; r.chunk == chunk && (r.request == 0 || i == own) {
					r.perhaps = true
				}
			}
		case at >= 0:
			my.rows = slices.Delete(my.rows, at, at+1)
		case nobodys >= 0:
			my.rows = slices.Delete(my.rows, nobodys, nobodys+1)
		}
	}
}

// gaveUp ends the promises to a request that gave up chunks which are ready at n. If the request may have had no
// promise, the oldest promise to a request without an id may have ended.
func (or *claimedOracle) gaveUp(n *world.Node, c *pd.Command) {
	my, j := or.at(n), &or.w.Jobs[c.Job]
	for i, chunk := range j.Ids {
		if i < c.From || !or.all().kept.at(n).here[i] {
			continue
		}
		my.touched = append(my.touched, chunk)
		its := func(r claimed) bool { return r.chunk == chunk && r.request == requestOf(j.Name) }
		sure := slices.ContainsFunc(my.rows, func(r claimed) bool { return its(r) && !r.perhaps })
		my.rows = slices.DeleteFunc(my.rows, its)
		for k := range my.rows {
			if r := &my.rows[k]; r.chunk == chunk && r.request == 0 && !sure {
				r.perhaps = true
			}
		}
	}
}

// fetching records a fetch of a request. The claims of the request end when the fetch begins.
func (or *claimedOracle) fetching(n *world.Node, job int) {
	my, request := or.at(n), requestOf(or.w.Jobs[job].Name)
	my.fetched = append(my.fetched, request)
	for i := range my.rows {
		if r := &my.rows[i]; r.request == 0 || r.request == request {
			r.perhaps = true
		}
	}
}

// abandoned ends the promises to a request as soon as the machine has no more work. Until then a promise may still
// expire.
func (or *claimedOracle) abandoned(n *world.Node, job int) {
	my, request := or.at(n), requestOf(or.w.Jobs[job].Name)
	for i := range my.rows {
		if r := &my.rows[i]; r.request == request {
			my.touched = append(my.touched, r.chunk)
			r.perhaps, r.overdue = true, true
		}
	}
}

// lapsed checks that the number of promises that the machine reports as expired is right, and ends the promises.
func (or *claimedOracle) lapsed(n *world.Node, e *effects.Observe) {
	my := or.at(n)
	chunk, ok := or.truth().named(n, e.ID)
	if !ok {
		return
	}
	if or.endedInPart(n, chunk, int(e.Count)) {
		return
	}
	sure, perhaps, now := 0, 0, or.w.Clock(n)
	my.rows = slices.DeleteFunc(my.rows, func(r claimed) bool {
		if r.chunk != chunk || r.until > now {
			return false
		}
		or.over(n, ended{chunk, r.request, now, r.perhaps || r.last > now})
		if r.perhaps {
			perhaps++
		} else {
			sure++
		}
		return r.last <= now
	})
	my.touched = append(my.touched, chunk)
	if !or.exact(n) || n.Draining {
		or.void(checkLapsed)
		return
	}
	if or.judged(checkLapsed); int(e.Count) < sure || int(e.Count) > sure+perhaps {
		or.fail(checkLapsed,
			"node %d says that %d promises to keep chunk %d are over; the time of %d is, and perhaps of %d more",
			n.It(), e.Count, oracle.Key(chunk), sure, perhaps)
	}
}

// afterStep compares the promises with the claims that the machine has.
func (or *claimedOracle) afterStep(n *world.Node, claims int) {
	my := or.at(n)
	my.claims = claims
	if n.Draining {
		my.rows, my.touched = my.rows[:0], my.touched[:0]
		return
	}
	or.overdue(n)
	for _, chunk := range my.touched {
		or.compare(n, chunk)
	}
	if !n.Busy {
		my.touched = my.touched[:0]
	}
}

// compare checks the number of the machine's claims on a chunk: at least the number of certain promises (S9), and at
// most the number of possible promises (L2).
func (or *claimedOracle) compare(n *world.Node, chunk uint32) {
	if or.w.Failure != nil || or.w.Keys[chunk] == nil {
		return
	}
	sure, perhaps := 0, 0
	for _, r := range or.at(n).rows {
		switch {
		case r.chunk != chunk:
		case r.perhaps:
			perhaps++
		default:
			sure++
		}
	}
	has := pd.ClaimsOf(n, or.w.Keys[chunk])
	if sure > 0 {
		or.judged(checkClaimed)
	} else {
		or.void(checkClaimed)
	}
	if has < sure {
		or.fail(checkClaimed, "node %d keeps chunk %d for %d requests, it has promised that to %d",
			n.It(), oracle.Key(chunk), has, sure)
		return
	}
	if !or.exact(n) || n.Busy { // A busy machine may be ending claims.
		or.void(checkClaims)
		return
	}
	if or.judged(checkClaims); has > sure+perhaps {
		or.fail(checkClaims, "node %d keeps chunk %d for %d requests, only %d still wait for it",
			n.It(), oracle.Key(chunk), has, sure+perhaps)
	}
}
