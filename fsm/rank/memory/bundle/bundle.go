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
// Example, for chunks of two layers: Begin starts a bundle with two places, and Promise reserves two pages. The sender
// asks for layer 0: Plan takes the place, Redeem releases the promise of a page, and Granted records the grant of that
// page. When the page has landed, Take puts the page into the place. When the same was done for layer 1, Take binds
// both pages together and makes the entry ready.
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
	cfg     Config `snap:"share"`
	runs    table.Slab[run]
	rows    table.Slab[row]
	places  table.Slab[place]
	byRun   table.Index // runs that are not over, by peer and request
	byChunk table.Index // bundles of runs, by run and chunk
	dying   table.List  // runs that are over; a few of their bundles end in each step
	share   table.Share // the bundles of each class
	losses  kernel.Losses

	split protocol.LayerKeyCheck `snap:"scratch"`
	name  []byte                 `snap:"scratch"`
	pages []effects.Page         `snap:"scratch"`
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

// A run is a Run that has bundles.
type run struct {
	Run
	over    bool // a later epoch has begun: the bundles end soon
	bundles table.List
}

// A row is a bundle.
type row struct {
	of      table.Handle // the run
	entry   store.Entry  // the entry of the chunk, of which the bundle is a fill
	hash    uint64       // hash of the chunk's name
	places  []table.Handle
	landed  uint32          // number of layers that have landed
	granted uint32          // number of pages under grants
	kept    uint32          // number of pages that are promised and not granted yet
	opener  uint64          // the operation that began the bundle
	first   effects.GrantID // the first grant of pages of the bundle; 0: none yet
	born    kernel.Birth    // the class's count of losses when the bundle began
	most    effects.Time    // when the bundle must be whole
	timer   kernel.TimerID  `snap:"set"`
}

// A place is the place of a layer in a bundle.
type place struct {
	of    table.Handle // the bundle
	layer uint32
	page  effects.Page    // generation zero: the layer has not landed
	grant effects.GrantID // the grant under which the page is written; 0: none
	next  bool            `snap:"scratch"` // the page is part of the grant that is being planned
}

// Emptied returns an empty table for a number of classes that reuses the memory of b. The caller must not use b
// afterwards.
func (b *Bundles) Emptied(cfg Config, classes int) Bundles {
	most := int(cfg.Max)
	return Bundles{
		cfg: cfg, runs: b.runs.Emptied(most), rows: b.rows.Emptied(most),
		places: b.places.Emptied(int(kernel.Clamped(uint64(cfg.Max) * uint64(cfg.Layers)))), byRun: b.byRun.Emptied(),
		byChunk: b.byChunk.Emptied(), share: b.share.Emptied(most, classes), losses: b.losses.Emptied(classes),
		split: b.split, name: b.name[:0], pages: b.pages[:0],
	}
}

// Layers returns the number of layers of a chunk; 0 means that there are no bundles.
func (b *Bundles) Layers() uint32 { return b.cfg.Layers }

// Len returns the number of bundles.
func (b *Bundles) Len() int { return b.rows.Len() }

// Max returns the limit of simultaneous bundles.
func (b *Bundles) Max() int { return b.rows.Max() }

// Room reports whether the table, and the class's share of the table, have room for n more bundles.
func (b *Bundles) Room(class, n int) bool {
	return b.rows.Len()+n <= b.rows.Max() && (b.cfg.ByPages() || b.share.Left(class) >= n)
}

// Slots returns the end of the range of slots for At.
func (b *Bundles) Slots() int32 { return b.rows.Slots() }

// At returns the bundle at a slot, or zero.
func (b *Bundles) At(slot int32) table.Handle { return b.rows.At(slot) }

// Request returns the hash of the id of a bundle's request.
func (b *Bundles) Request(h table.Handle) uint64 { return b.runs.Get(b.rows.Get(h).of).Request }

// Name reads the key of a layer. Name returns the number of the layer, and the name under which the store has the
// chunk, which is valid until the next call. Name fails if the key is not a layer's key or is too long.
func (b *Bundles) Name(key []byte, maxBytes int) (name []byte, layer uint32, err error) {
	chunk, layer, err := b.split.Split(key, maxBytes)
	if err != nil {
		return nil, 0, err
	}
	b.name = Name(b.name[:0], chunk)
	return b.name, layer, nil
}

// Name appends to b the name under which the store has a chunk that has a page for each layer. The name is the key of
// the chunk's first layer, so that such a chunk is never mistaken for a chunk that has a single page.
func Name(b, key []byte) []byte { return protocol.AppendLayerKey(b, key, 0) }

// Enter checks the epoch of layers that arrive. Enter returns OK, or Withdrawn if a later epoch of the request has
// begun. If the layers are of a later epoch than the current run, Enter condemns the current run.
func (b *Bundles) Enter(v *env.Env, of *Run) effects.Code {
	h := b.find(of)
	x := b.runs.Get(h)
	switch {
	case x == nil || x.Epoch == of.Epoch:
	case x.Epoch > of.Epoch:
		v.Out.Mark(Marks.EpochOver)
		return effects.Withdrawn
	default:
		v.Out.Mark(Marks.EpochBegins)
		b.condemn(h, x)
	}
	return effects.OK
}

// runHash returns the hash of a run's peer and request.
func runHash(of *Run) uint64 { return table.Hash(of.Request, of.Peer[:]) }

// chunkHash returns the hash of a run and the name of a chunk.
func chunkHash(run table.Handle, hash uint64) uint64 {
	var at [8]byte
	binary.LittleEndian.PutUint64(at[:], uint64(run))
	return table.Hash(hash, at[:])
}

// find returns the current run of a peer's request, in any epoch, or zero.
func (b *Bundles) find(of *Run) table.Handle {
	for p := b.byRun.Seek(runHash(of)); p.Found(); p = b.byRun.Next(p) {
		if x := b.runs.Get(p.Handle()); x.Peer == of.Peer && x.Request == of.Request {
			return p.Handle()
		}
	}
	return 0
}

// condemn ends a run: further layers for its bundles are refused, and the bundles end soon.
func (b *Bundles) condemn(h table.Handle, x *run) {
	x.over = true
	b.byRun.Remove(runHash(&x.Run), h)
	b.runs.PushBack(&b.dying, h)
}

// Condemned returns a bundle of a run that is over, or zero.
func (b *Bundles) Condemned() table.Handle {
	if x := b.runs.Get(b.dying.Front()); x != nil {
		return x.bundles.Front()
	}
	return 0
}

// Lose condemns the bundles of a peer that is gone.
func (b *Bundles) Lose(class int) { b.losses.Add(class) }

// Lost reports whether Lose has condemned a bundle.
func (b *Bundles) Lost(h table.Handle) bool {
	r := b.rows.Get(h)
	return b.losses.Over(b.runs.Get(r.of).Class, r.born)
}

// Open returns the bundle of a chunk in a run, or zero. hash is the hash of the chunk's name.
func (b *Bundles) Open(of *Run, hash uint64) table.Handle {
	h := b.find(of)
	if x := b.runs.Get(h); x == nil || x.Epoch != of.Epoch {
		return 0
	}
	for p := b.byChunk.Seek(chunkHash(h, hash)); p.Found(); p = b.byChunk.Next(p) {
		if r := b.rows.Get(p.Handle()); r.of == h && r.hash == hash && !b.Lost(p.Handle()) {
			return p.Handle()
		}
	}
	return 0
}

// Opened returns the operation that began a bundle, and the grant that this operation got. The grant is zero if the
// operation gets the grant in this step.
func (b *Bundles) Opened(h table.Handle) (operation uint64, grant effects.GrantID) {
	r := b.rows.Get(h)
	return r.opener, r.first
}

// Begin starts a bundle of a chunk that is not here, for an operation. Begin returns zero if there is no room. The
// caller has checked Enter. The pages are not promised yet: the caller then calls Promise, or Undo if there are no
// pages.
func (b *Bundles) Begin(v *env.Env, s *store.Store, of *Run, operation, hash uint64, name []byte) table.Handle {
	if !b.Room(of.Class, 1) || !s.Room(1) ||
		b.places.Max()-b.places.Len() < int(b.cfg.Layers) {
		v.Out.Mark(Marks.BundlesFull)
		return 0
	}
	runs := b.find(of)
	x := b.runs.Get(runs)
	if x == nil {
		if runs, x = b.runs.Add(); x == nil {
			// Runs that are over still have bundles that have not ended yet.
			v.Out.Mark(Marks.BundlesFull)
			return 0
		}
		*x = run{Run: *of}
		b.byRun.Add(runHash(of), runs)
	}
	h, r := b.rows.Add()
	*r = row{
		of: runs, entry: s.BeginFill(hash, name), hash: hash, places: r.places[:0], opener: operation,
		born: b.losses.Of(of.Class),
		most: v.Now.Add(b.cfg.BundleMost),
	}
	for layer := range b.cfg.Layers {
		at, p := b.places.Add()
		*p = place{of: h, layer: layer}
		r.places = append(r.places, at)
	}
	b.rows.PushBack(&x.bundles, h)
	b.byChunk.Add(chunkHash(runs, hash), h)
	b.share.Take(of.Class)
	return h
}

// Plan takes the place of a layer for the grant that is being planned. Plan returns zero if the place is not vacant or
// if there is no such layer.
func (b *Bundles) Plan(h table.Handle, layer uint32) table.Handle {
	r := b.rows.Get(h)
	if layer >= uint32(len(r.places)) {
		return 0
	}
	p := b.places.Get(r.places[layer])
	if p.next || p.grant != 0 || p.page.Generation != 0 {
		return 0
	}
	p.next = true
	return r.places[layer]
}

// UnderGrant reports whether the place of a layer is under a grant.
func (b *Bundles) UnderGrant(h table.Handle, layer uint32) bool {
	r := b.rows.Get(h)
	return layer < uint32(len(r.places)) && b.places.Get(r.places[layer]).grant != 0
}

// Unplan makes a planned place vacant again.
func (b *Bundles) Unplan(at table.Handle) {
	if p := b.places.Get(at); p != nil {
		p.next = false
	}
}

// Undo removes a bundle that Begin has started, before Promise.
func (b *Bundles) Undo(v *env.Env, s *store.Store, h table.Handle) {
	entry := b.remove(v, h)
	s.EndFill(entry, effects.Page{}, false)
	s.Settle(entry, v)
}

// Promise reserves the pages of a new bundle, so that nobody else finds them free.
func (b *Bundles) Promise(v *env.Env, h table.Handle) {
	r := b.rows.Get(h)
	r.kept = b.cfg.Layers
	v.Pools.Keep(v.Pool, b.runs.Get(r.of).Class, r.kept)
	b.renew(v, h, r)
}

// Redeem releases the promise of one page, which is granted next.
func (b *Bundles) Redeem(v *env.Env, at table.Handle) {
	r := b.rows.Get(b.places.Get(at).of)
	r.kept--
	v.Pools.Unkeep(v.Pool, b.runs.Get(r.of).Class, 1)
}

// Granted records the grant under which the page of a place is written.
func (b *Bundles) Granted(v *env.Env, at table.Handle, id effects.GrantID) {
	p := b.places.Get(at)
	p.grant, p.next = id, false
	r := b.rows.Get(p.of)
	r.granted++
	if r.first == 0 {
		r.first = id
	}
	b.renew(v, p.of, r)
}

// renew extends the deadline of a bundle that has made progress. The deadline is never later than most.
func (b *Bundles) renew(v *env.Env, h table.Handle, r *row) {
	v.Timers.Stop(&r.timer)
	v.Timers.Set(&r.timer, min(v.Now.Add(b.cfg.BundleTTL), r.most), kernel.Ref{Owner: kernel.OwnerBundles, Subject: h})
}

// Due records that the deadline of a bundle has passed. The caller ends the bundle.
func (b *Bundles) Due(v *env.Env, h table.Handle) {
	v.Out.Mark(Marks.BundleExpired)
	b.rows.Get(h).timer = 0
}

// Take puts a landed page into its place. With the last page Take gives the chunk to the store, and, if keep is true,
// claims the chunk for the request. Take returns false if the bundle is gone: then the caller still owns the page.
//
// Invariant: the entry becomes ready in the step in which the last layer lands, and not before (M7).
func (b *Bundles) Take(v *env.Env, s *store.Store, at table.Handle, page effects.Page, keep bool) bool {
	p := b.places.Get(at)
	if p == nil {
		v.Out.Mark(Marks.LayerLate)
		return false
	}
	h := p.of
	r := b.rows.Get(h)
	p.page, p.grant = page, 0
	r.granted--
	if r.landed++; r.landed < b.cfg.Layers {
		b.renew(v, h, r)
		return true
	}
	b.pages = b.pages[:0]
	for _, at := range r.places {
		b.pages = append(b.pages, b.places.Get(at).page)
	}
	of := b.runs.Get(r.of).Run
	hash, entry := r.hash, b.remove(v, h)
	v.Pool.Bind(b.pages)
	took := s.EndFill(entry, b.pages[0], true)
	if !took {
		v.Out.Mark(Marks.ChunkLostRace)
		v.Pool.Unref(b.pages[0])
	}
	if keep {
		s.Claim(entry, of.Class, of.Request, v)
	}
	s.Settle(entry, v)
	if took {
		v.Out.Observe(effects.Observe{Fact: effects.FactReady, ID: hash, Peer: of.Peer})
	}
	return true
}

// Ungrant records that the grant on a place has ended. Ungrant returns the bundle, or zero if the bundle is gone or the
// place is not under a grant.
func (b *Bundles) Ungrant(at table.Handle) table.Handle {
	p := b.places.Get(at)
	if p == nil || p.grant == 0 {
		return 0
	}
	p.grant = 0
	b.rows.Get(p.of).granted--
	return p.of
}

// Grants appends to dst the grants under which pages of a bundle are written. A grant that covers neighbouring layers
// is appended once.
func (b *Bundles) Grants(h table.Handle, dst []effects.GrantID) []effects.GrantID {
	for _, at := range b.rows.Get(h).places {
		if id := b.places.Get(at).grant; id != 0 && (len(dst) == 0 || dst[len(dst)-1] != id) {
			dst = append(dst, id)
		}
	}
	return dst
}

// Stands reports whether a bundle exists.
func (b *Bundles) Stands(h table.Handle) bool { return b.rows.Get(h) != nil }

// Size returns the number of pages of a bundle, at least 1.
func (b *Bundles) Size() int { return int(max(1, b.cfg.Layers)) }

// End ends a bundle that is not whole, if it exists. The pages that have landed are freed, and the chunk is lost. The
// caller must have revoked the bundle's grants, because End does not deal with the writers.
func (b *Bundles) End(v *env.Env, s *store.Store, h table.Handle) {
	r := b.rows.Get(h)
	if r == nil {
		return
	}
	v.Out.Mark(Marks.BundleEnded)
	v.Work.Spend(b.Size())
	for _, at := range r.places {
		if p := b.places.Get(at); p.page.Generation != 0 {
			v.Pool.Unref(p.page)
		}
	}
	of := b.runs.Get(r.of).Run
	v.Pools.Unkeep(v.Pool, of.Class, r.kept)
	hash, entry := r.hash, b.remove(v, h)
	s.EndFill(entry, effects.Page{}, false)
	s.Settle(entry, v)
	v.Out.Observe(effects.Observe{Fact: effects.FactFillLost, Code: effects.Withdrawn, ID: hash, Peer: of.Peer})
	s.Lose(hash)
}

// remove deletes a bundle, and its run with the last bundle. remove returns the entry, which still counts the fill.
func (b *Bundles) remove(v *env.Env, h table.Handle) store.Entry {
	r := b.rows.Get(h)
	x := b.runs.Get(r.of)
	v.Timers.Stop(&r.timer)
	for _, at := range r.places {
		b.places.Remove(at)
	}
	b.rows.Unlink(&x.bundles, h)
	b.byChunk.Remove(chunkHash(r.of, r.hash), h)
	b.share.Give(x.Class)
	if x.bundles.Len() == 0 {
		if x.over {
			b.runs.Unlink(&b.dying, r.of)
		} else {
			b.byRun.Remove(runHash(&x.Run), r.of)
		}
		b.runs.Remove(r.of)
	}
	entry := r.entry
	r.places = table.Shed(r.places)
	b.rows.Remove(h)
	return entry
}

// Tables passes the sizes of the tables to visit.
func (b *Bundles) Tables(visit table.Visit) {
	visit("bundles", b.rows.Len(), table.Empty)
	visit("places of bundles", b.places.Len(), table.Empty)
	visit("runs of bundles", b.runs.Len(), table.Empty)
}
