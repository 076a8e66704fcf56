// Package bundle gathers the layers of chunks that are pushed layer by layer. A bundle is one fill of a chunk's entry
// that has a page for each layer. The layers may land under any number of grants. In the step in which the last layer
// lands, the bundle gives the whole chunk to the store.
//
// A caller may rely on the following:
//
//   - All pages of a bundle are promised when the bundle begins, so that every bundle can be completed.
//   - Layers of different senders, requests or epochs never make up a chunk together.
//   - A bundle that has ended leaves nothing behind, and further layers for that bundle are refused. So if all
//     layers that a sender has pushed were taken, the whole chunk is here.
//
// The package knows no messages and no details of grants; package landing drives it.
//
// Example, for chunks of two layers: Begin starts a bundle with two places, and PromisePages reserves two pages. The
// sender asks for layer 0: PlanLayer takes the place, RedeemPage releases the promise of a page, and RecordGrant
// records the grant of that page. When the page has landed, TakePage puts the page into the place. When the same was
// done for layer 1, TakePage binds both pages together and makes the entry ready.
package bundle

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Bundles is the table of a rank's bundles.
type Bundles struct {
	cfg        Config `snap:"share"`
	runs       table.Slab[runRow]
	rows       table.Slab[bundleRow]
	places     table.Slab[place]
	byRun      table.Index // runs that are not over, by peer and request
	byChunk    table.Index // bundles of runs, by run and chunk
	endingRuns table.List  // runs that are over; a few of their bundles end in each step
	share      table.Share // the bundles of each class
	losses     kernel.Losses

	keyCheck protocol.LayerKeyChecker `snap:"scratch"`
	nameBuf  []byte                   `snap:"scratch"`
	pageBuf  []effects.Page           `snap:"scratch"`
}

// Config is the configuration of Bundles.
type Config struct {
	Settings
	Max uint32 // limit of simultaneous bundles
}

// A Run identifies the owner of a bundle: a request, in a certain epoch, of an incarnation of a peer.
type Run struct {
	Class   int
	Peer    effects.Incarnation
	Request uint64 // hash of the request id
	Epoch   uint32
}

// A runRow is a Run that has bundles.
type runRow struct {
	Run
	superseded bool // a later epoch has begun: the bundles end soon
	bundles    table.List
}

// A bundleRow is a bundle.
type bundleRow struct {
	run           table.Handle // the run
	entry         store.Entry  // the entry of the chunk, of which the bundle is a fill
	nameHash      uint64       // hash of the chunk's name
	places        []table.Handle
	landedLayers  uint32           // number of layers that have landed
	promisedPages uint32           // number of pages that are promised and not granted yet
	openedBy      uint64           // the operation that began the bundle
	tenant        effects.Tenant   // the tenant of the chunk
	firstGrant    effects.GrantID  // the first grant of pages of the bundle; 0: none yet
	lossCount     kernel.LossCount // the class's count of losses when the bundle began
	finalDeadline effects.Time     // when the bundle must be whole
	timer         kernel.TimerID   `snap:"set"`
}

// A place is the place of a layer in a bundle.
type place struct {
	bundle  table.Handle // the bundle
	layer   uint32
	page    effects.Page    // generation zero: the layer has not landed
	grant   effects.GrantID // the grant under which the page is written; 0: none
	planned bool            `snap:"scratch"` // the page is part of the grant that is being planned
}

// Recycle returns an empty table for a number of classes that reuses the memory of b. The caller must not use b
// afterwards.
func (b *Bundles) Recycle(cfg Config, classes int) Bundles {
	limit := int(cfg.Max)
	return Bundles{
		cfg: cfg, runs: b.runs.Recycle(limit), rows: b.rows.Recycle(limit),
		places: b.places.Recycle(int(kernel.ClampCount(uint64(cfg.Max) * uint64(cfg.Layers)))), byRun: b.byRun.Recycle(),
		byChunk: b.byChunk.Recycle(), share: b.share.Recycle(limit, classes), losses: b.losses.Recycle(classes),
		keyCheck: b.keyCheck, nameBuf: b.nameBuf[:0], pageBuf: b.pageBuf[:0],
	}
}

// LayersPerChunk returns the number of layers of a chunk; 0 means that there are no bundles.
func (b *Bundles) LayersPerChunk() uint32 { return b.cfg.Layers }

// Len returns the number of bundles.
func (b *Bundles) Len() int { return b.rows.Len() }

// Max returns the limit of simultaneous bundles.
func (b *Bundles) Max() int { return b.rows.Max() }

// HasRoom reports whether the table, and the class's share of the table, have room for n more bundles.
func (b *Bundles) HasRoom(class, n int) bool {
	return b.rows.Len()+n <= b.rows.Max() && (b.cfg.ByPages() || b.share.FreePlaces(class) >= n)
}

// Slots returns the end of the range of slots for At.
func (b *Bundles) Slots() int32 { return b.rows.Slots() }

// At returns the bundle at a slot, or zero.
func (b *Bundles) At(slot int32) table.Handle { return b.rows.At(slot) }

// RequestOf returns the hash of the id of a bundle's request.
func (b *Bundles) RequestOf(h table.Handle) uint64 { return b.runs.Get(b.rows.Get(h).run).Request }

// ParseLayerKey reads the key of a layer. ParseLayerKey returns the number of the layer, and the name under which the
// store has the chunk, which is valid until the next call. ParseLayerKey fails if the key is not a layer's key or is
// too long.
func (b *Bundles) ParseLayerKey(key []byte, maxBytes int) (name []byte, layer uint32, err error) {
	chunk, layer, err := b.keyCheck.Split(key, maxBytes)
	if err != nil {
		return nil, 0, err
	}
	b.nameBuf = AppendName(b.nameBuf[:0], chunk)
	return b.nameBuf, layer, nil
}

// AppendName appends to b the name under which the store has a chunk that has a page for each layer. The name is the
// key of the chunk's first layer, so that such a chunk is never mistaken for a chunk that has a single page.
func AppendName(b, key []byte) []byte { return protocol.AppendLayerKey(b, key, 0) }

// EnterEpoch checks the epoch of layers that arrive. EnterEpoch returns OK, or Withdrawn if a later epoch of the
// request has begun. If the layers are of a later epoch than the current run, EnterEpoch condemns the current run.
func (b *Bundles) EnterEpoch(v *env.Env, run *Run) effects.Code {
	h := b.findRun(run)
	x := b.runs.Get(h)
	switch {
	case x == nil || x.Epoch == run.Epoch:
	case x.Epoch > run.Epoch:
		v.Out.Mark(Marks.EpochOver)
		return effects.Withdrawn
	default:
		v.Out.Mark(Marks.EpochBegins)
		b.condemnRun(h, x)
	}
	return effects.OK
}

// runHash returns the hash of a run's peer and request.
func runHash(run *Run) uint64 { return table.Hash(run.Request, run.Peer[:]) }

// chunkHash returns the hash of a run and the name of a chunk.
func chunkHash(run table.Handle, hash uint64) uint64 {
	var at [8]byte
	binary.LittleEndian.PutUint64(at[:], uint64(run))
	return table.Hash(hash, at[:])
}

// findRun returns the current run of a peer's request, in any epoch, or zero.
func (b *Bundles) findRun(run *Run) table.Handle {
	for p := b.byRun.Find(runHash(run)); p.Found(); p = b.byRun.Next(p) {
		if x := b.runs.Get(p.Handle()); x.Peer == run.Peer && x.Request == run.Request {
			return p.Handle()
		}
	}
	return 0
}

// condemnRun ends a run: further layers for its bundles are refused, and the bundles end soon.
func (b *Bundles) condemnRun(h table.Handle, x *runRow) {
	x.superseded = true
	b.byRun.Remove(runHash(&x.Run), h)
	b.runs.PushBack(&b.endingRuns, h)
}

// NextCondemned returns a bundle of a run that is over, or zero.
func (b *Bundles) NextCondemned() table.Handle {
	if x := b.runs.Get(b.endingRuns.Front()); x != nil {
		return x.bundles.Front()
	}
	return 0
}

// CondemnClass condemns the bundles of a peer that is gone.
func (b *Bundles) CondemnClass(class int) { b.losses.CondemnRows(class) }

// IsCondemned reports whether CondemnClass has condemned a bundle.
func (b *Bundles) IsCondemned(h table.Handle) bool {
	r := b.rows.Get(h)
	return b.losses.IsCondemned(b.runs.Get(r.run).Class, r.lossCount)
}

// isEnding reports whether a bundle ends soon: its peer was lost, or a later epoch of its request has begun.
func (b *Bundles) isEnding(h table.Handle) bool {
	return b.IsCondemned(h) || b.runs.Get(b.rows.Get(h).run).superseded
}

// FindBundle returns the bundle of a chunk in a run, or zero. hash is the hash of the chunk's name.
func (b *Bundles) FindBundle(run *Run, hash uint64) table.Handle {
	h := b.findRun(run)
	if x := b.runs.Get(h); x == nil || x.Epoch != run.Epoch {
		return 0
	}
	for p := b.byChunk.Find(chunkHash(h, hash)); p.Found(); p = b.byChunk.Next(p) {
		if r := b.rows.Get(p.Handle()); r.run == h && r.nameHash == hash && !b.IsCondemned(p.Handle()) {
			return p.Handle()
		}
	}
	return 0
}

// OpenedBy returns the operation that began a bundle, and the grant that this operation got. The grant is zero if the
// operation gets the grant in this step.
func (b *Bundles) OpenedBy(h table.Handle) (operation uint64, grant effects.GrantID) {
	r := b.rows.Get(h)
	return r.openedBy, r.firstGrant
}

// Begin starts a bundle of a chunk that is not here, for an operation. Begin returns zero if there is no room. The
// caller has checked EnterEpoch. The pages are not promised yet: the caller then calls PromisePages, or UndoBegin if
// there are no pages.
func (b *Bundles) Begin(v *env.Env, s *store.Store, run *Run, operation, hash uint64, name []byte) table.Handle {
	if !b.HasRoom(run.Class, 1) || !s.HasRoom(1) ||
		b.places.Max()-b.places.Len() < int(b.cfg.Layers) {
		v.Out.Mark(Marks.BundlesFull)
		return 0
	}
	runHandle := b.findRun(run)
	x := b.runs.Get(runHandle)
	if x == nil {
		if runHandle, x = b.runs.Add(); x == nil {
			// Runs that are over still have bundles that have not ended yet.
			v.Out.Mark(Marks.BundlesFull)
			return 0
		}
		*x = runRow{Run: *run}
		b.byRun.Add(runHash(run), runHandle)
	}
	h, r := b.rows.Add()
	*r = bundleRow{
		run: runHandle, entry: s.BeginFill(hash, name), nameHash: hash, places: r.places[:0], openedBy: operation,
		lossCount:     b.losses.CountFor(run.Class),
		tenant:        effects.Tenant(protocol.TenantOf(name)),
		finalDeadline: v.Now.Add(b.cfg.BundleMaxTTL),
	}
	if v.RealmOf(run.Class) != 0 {
		s.MarkForeign(r.entry)
	}
	for layer := range b.cfg.Layers {
		at, p := b.places.Add()
		*p = place{bundle: h, layer: layer}
		r.places = append(r.places, at)
	}
	b.rows.PushBack(&x.bundles, h)
	b.byChunk.Add(chunkHash(runHandle, hash), h)
	b.share.Acquire(run.Class)
	return h
}

// PlanLayer takes the place of a layer for the grant that is being planned. PlanLayer returns zero if the place is not
// vacant or if there is no such layer.
func (b *Bundles) PlanLayer(h table.Handle, layer uint32) table.Handle {
	r := b.rows.Get(h)
	if layer >= uint32(len(r.places)) {
		return 0
	}
	p := b.places.Get(r.places[layer])
	if p.planned || p.grant != 0 || p.page.Generation != 0 {
		return 0
	}
	p.planned = true
	return r.places[layer]
}

// HasGrant reports whether the place of a layer is under a grant.
func (b *Bundles) HasGrant(h table.Handle, layer uint32) bool {
	r := b.rows.Get(h)
	return layer < uint32(len(r.places)) && b.places.Get(r.places[layer]).grant != 0
}

// UnplanLayer makes a planned place vacant again.
func (b *Bundles) UnplanLayer(at table.Handle) {
	if p := b.places.Get(at); p != nil {
		p.planned = false
	}
}

// UndoBegin removes a bundle that Begin has started, before PromisePages.
func (b *Bundles) UndoBegin(v *env.Env, s *store.Store, h table.Handle) {
	entry := b.removeBundle(v, h)
	s.EndFill(entry, effects.Page{}, false)
	s.DropUnused(entry, v)
}

// PromisePages reserves the pages of a new bundle, so that nobody else finds them free.
func (b *Bundles) PromisePages(v *env.Env, h table.Handle) {
	r := b.rows.Get(h)
	r.promisedPages = b.cfg.Layers
	v.Pools.PromisePages(v.Pool, b.runs.Get(r.run).Class, r.promisedPages)
	v.Pool.PromiseTenant(r.tenant, r.promisedPages)
	b.renewDeadline(v, h, r)
}

// RedeemPage releases the promise of one page, which is granted next.
func (b *Bundles) RedeemPage(v *env.Env, at table.Handle) {
	r := b.rows.Get(b.places.Get(at).bundle)
	r.promisedPages--
	v.Pools.UnpromisePages(v.Pool, b.runs.Get(r.run).Class, 1)
	v.Pool.UnpromiseTenant(r.tenant, 1)
}

// RecordGrant records the grant under which the page of a place is written.
func (b *Bundles) RecordGrant(v *env.Env, at table.Handle, id effects.GrantID) {
	p := b.places.Get(at)
	p.grant, p.planned = id, false
	r := b.rows.Get(p.bundle)
	if r.firstGrant == 0 {
		r.firstGrant = id
	}
	b.renewDeadline(v, p.bundle, r)
}

// renewDeadline extends the deadline of a bundle that has made progress. The deadline is never later than most.
func (b *Bundles) renewDeadline(v *env.Env, h table.Handle, r *bundleRow) {
	v.Timers.Stop(&r.timer)
	v.Timers.Set(&r.timer, min(v.Now.Add(b.cfg.BundleTTL), r.finalDeadline), kernel.Ref{Owner: kernel.OwnerBundles, Subject: h})
}

// OnTimer records that the deadline of a bundle has passed. The caller ends the bundle.
func (b *Bundles) OnTimer(v *env.Env, h table.Handle) {
	v.Out.Mark(Marks.BundleExpired)
	b.rows.Get(h).timer = 0
}

// TakePage puts a landed page into its place. With the last page TakePage gives the chunk to the store, and, if claim
// is true, claims the chunk for the request. TakePage returns false if the bundle is gone or is about to end: then the
// caller still owns the page. Example: the link of the sender is lost, and a sweep ends one of its bundles in each step;
// a layer lands in a bundle that the sweep has not reached. To confirm it would mislead the sender.
//
// Invariant: the entry becomes ready in the step in which the last layer lands, and not before (M7).
func (b *Bundles) TakePage(v *env.Env, s *store.Store, at table.Handle, page effects.Page, claim bool) bool {
	p := b.places.Get(at)
	if p == nil || b.isEnding(p.bundle) {
		v.Out.Mark(Marks.LayerLate)
		return false
	}
	h := p.bundle
	r := b.rows.Get(h)
	p.page, p.grant = page, 0
	if r.landedLayers++; r.landedLayers < b.cfg.Layers {
		b.renewDeadline(v, h, r)
		return true
	}
	b.pageBuf = b.pageBuf[:0]
	for _, at := range r.places {
		b.pageBuf = append(b.pageBuf, b.places.Get(at).page)
	}
	run := b.runs.Get(r.run).Run
	hash, entry := r.nameHash, b.removeBundle(v, h)
	v.Pool.BindFrame(b.pageBuf)
	stored := s.EndFill(entry, b.pageBuf[0], true)
	if !stored {
		v.Out.Mark(Marks.ChunkLostRace)
		v.Pool.DropRef(b.pageBuf[0])
	}
	if claim {
		s.ClaimEntry(entry, run.Class, run.Request, v)
	}
	s.DropUnused(entry, v)
	if stored {
		v.Out.Observe(effects.Observe{Fact: effects.FactReady, ID: hash, Peer: run.Peer})
	}
	return true
}

// RecordGrantEnd records that the grant on a place has ended. RecordGrantEnd returns the bundle, or zero if the bundle
// is gone or the place is not under a grant.
func (b *Bundles) RecordGrantEnd(at table.Handle) table.Handle {
	p := b.places.Get(at)
	if p == nil || p.grant == 0 {
		return 0
	}
	p.grant = 0
	return p.bundle
}

// AppendGrants appends to dst the grants under which pages of a bundle are written. A grant that covers neighbouring
// layers is appended once.
func (b *Bundles) AppendGrants(h table.Handle, dst []effects.GrantID) []effects.GrantID {
	for _, at := range b.rows.Get(h).places {
		if id := b.places.Get(at).grant; id != 0 && (len(dst) == 0 || dst[len(dst)-1] != id) {
			dst = append(dst, id)
		}
	}
	return dst
}

// Exists reports whether a bundle exists.
func (b *Bundles) Exists(h table.Handle) bool { return b.rows.Get(h) != nil }

// PagesPerBundle returns the number of pages of a bundle, at least 1.
func (b *Bundles) PagesPerBundle() int { return int(max(1, b.cfg.Layers)) }

// End ends a bundle that is not whole, if it exists. The pages that have landed are freed, and the chunk is lost. The
// caller must have revoked the bundle's grants, because End does not deal with the writers.
func (b *Bundles) End(v *env.Env, s *store.Store, h table.Handle) {
	r := b.rows.Get(h)
	if r == nil {
		return
	}
	v.Out.Mark(Marks.BundleEnded)
	v.Work.SpendRows(b.PagesPerBundle())
	for _, at := range r.places {
		if p := b.places.Get(at); p.page.Generation != 0 {
			v.Pool.DropRef(p.page)
		}
	}
	run := b.runs.Get(r.run).Run
	v.Pools.UnpromisePages(v.Pool, run.Class, r.promisedPages)
	v.Pool.UnpromiseTenant(r.tenant, r.promisedPages)
	hash, entry := r.nameHash, b.removeBundle(v, h)
	s.EndFill(entry, effects.Page{}, false)
	s.DropUnused(entry, v)
	v.Out.Observe(effects.Observe{Fact: effects.FactFillLost, Code: effects.Withdrawn, ID: hash, Peer: run.Peer})
	s.RecordLostSource(hash)
}

// removeBundle deletes a bundle, and its run with the last bundle. removeBundle returns the entry, which still counts
// the fill.
func (b *Bundles) removeBundle(v *env.Env, h table.Handle) store.Entry {
	r := b.rows.Get(h)
	x := b.runs.Get(r.run)
	v.Timers.Stop(&r.timer)
	for _, at := range r.places {
		b.places.Remove(at)
	}
	b.rows.Unlink(&x.bundles, h)
	b.byChunk.Remove(chunkHash(r.run, r.nameHash), h)
	b.share.Release(x.Class)
	if x.bundles.Len() == 0 {
		if x.superseded {
			b.runs.Unlink(&b.endingRuns, r.run)
		} else {
			b.byRun.Remove(runHash(&x.Run), r.run)
		}
		b.runs.Remove(r.run)
	}
	entry := r.entry
	r.places = table.TrimSlice(r.places)
	b.rows.Remove(h)
	return entry
}

// VisitTables passes the sizes of the tables to visit.
func (b *Bundles) VisitTables(visit table.VisitFunc) {
	visit("bundles", b.rows.Len(), table.Empty)
	visit("places of bundles", b.places.Len(), table.Empty)
	visit("runs of bundles", b.runs.Len(), table.Empty)
}

// RecountShares counts the bundles of each class again.
func (b *Bundles) RecountShares(r *table.Recount) {
	table.RecountRows(r, "incomplete chunks", &b.share, &b.rows, table.Empty, func(x *bundleRow) (class, n int) {
		return b.runs.Get(x.run).Class, 1
	})
}

// AddPromised adds the pages that are promised to the bundles of each class.
func (b *Bundles) AddPromised(r *table.Recount) {
	for slot := range b.rows.Slots() {
		if x := b.rows.Get(b.rows.At(slot)); x != nil {
			r.Add(b.runs.Get(x.run).Class, int(x.promisedPages))
		}
	}
}
