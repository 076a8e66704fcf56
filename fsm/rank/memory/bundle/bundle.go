// Package bundle gathers the layers of chunks that come one by one. A bundle is one fill of a chunk's entry that takes
// a page for each layer, over as many grants as its sender likes, and gives the store the chunk in the step in which
// the last one lands.
//
// A caller may rely on this: all pages of a bundle are promised to it when it begins, so what was begun can end; layers
// of two senders, requests or epochs never make a chunk; a bundle that went leaves nothing, and what goes on with it is
// refused, so a sender whose every layer was taken has a whole chunk here. It knows no message and no grant.
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

// Bundles are those of a rank.
type Bundles struct {
	cfg     Config `snap:"share"`
	runs    table.Slab[run]
	rows    table.Slab[row]
	places  table.Slab[place]
	byRun   table.Index // runs that stand, by peer and request
	byChunk table.Index // bundles of runs that stand
	dying   table.List  // runs that are over: their bundles end a few a step
	share   table.Share // of bundles, by class
	losses  kernel.Losses

	split protocol.LayerKeyCheck `snap:"scratch"`
	name  []byte                 `snap:"scratch"`
	pages []effects.Page         `snap:"scratch"`
}

// Config is what bundles go by.
type Config struct {
	Layers uint32 // of a chunk; 0: there are no bundles
	Max    uint32 // at a time
	// ByPages: Max is all that the pool has pages for. Then a class's share of pages is its share of bundles.
	ByPages bool
	TTL     effects.Duration
	Most    effects.Duration
}

// A Run is whose a bundle is: chunks of one request, in one of its epochs, of one life of a peer.
type Run struct {
	Class   int
	Peer    effects.Incarnation
	Request uint64 // hash of its id
	Epoch   uint32
}

type run struct {
	Run
	over    bool
	bundles table.List
}

// A row is one bundle.
type row struct {
	of      table.Handle // its run
	entry   store.Entry  // of its chunk, of which it is a fill
	hash    uint64       // of that
	places  []table.Handle
	landed  uint32
	granted uint32          // under grants
	kept    uint32          // promised
	opener  uint64          // the operation that began it
	first   effects.GrantID // that its pages were under; 0: none was given yet
	born    kernel.Birth
	most    effects.Time   // by when it must be whole
	timer   kernel.TimerID `snap:"set"`
}

// A place is that of one layer.
type place struct {
	of    table.Handle
	layer uint32
	page  effects.Page    // of no generation: it has not landed
	grant effects.GrantID // under which it is written
	next  bool            `snap:"scratch"` // it is to be granted next
}

// Emptied has room for so many, of so many classes, in the memory of b, which is not used any more.
func (b *Bundles) Emptied(cfg Config, classes int) Bundles {
	most := int(cfg.Max)
	return Bundles{
		cfg: cfg, runs: b.runs.Emptied(most), rows: b.rows.Emptied(most),
		places: b.places.Emptied(int(kernel.Clamped(uint64(cfg.Max) * uint64(cfg.Layers)))), byRun: b.byRun.Emptied(),
		byChunk: b.byChunk.Emptied(), share: b.share.Emptied(most, classes), losses: b.losses.Emptied(classes),
		split: b.split, name: b.name[:0], pages: b.pages[:0],
	}
}

// Layers is how many a chunk has; 0: there are no bundles here.
func (b *Bundles) Layers() uint32 { return b.cfg.Layers }

// Len is how many there are.
func (b *Bundles) Len() int { return b.rows.Len() }

// Max is how many there may be.
func (b *Bundles) Max() int { return b.rows.Max() }

// Room says whether a class may have n more, as far as the table and its share of it go.
func (b *Bundles) Room(class, n int) bool {
	return b.rows.Len()+n <= b.rows.Max() && (b.cfg.ByPages || b.share.Left(class) >= n)
}

// Slots is the range for At.
func (b *Bundles) Slots() int32 { return b.rows.Slots() }

// At is the bundle at a slot; zero if there is none.
func (b *Bundles) At(slot int32) table.Handle { return b.rows.At(slot) }

// Request is that of a bundle.
func (b *Bundles) Request(h table.Handle) uint64 { return b.runs.Get(b.rows.Get(h).of).Request }

// Name reads a layer's key: which layer it is of, and under which name the store has its chunk, until the next call.
func (b *Bundles) Name(key []byte, maxBytes int) (name []byte, layer uint32, err error) {
	chunk, layer, err := b.split.Split(key, maxBytes)
	if err != nil {
		return nil, 0, err
	}
	b.name = Name(b.name[:0], chunk)
	return b.name, layer, nil
}

// Name appends the name under which a store has a chunk whose layers have pages of their own: that of its first layer.
// So it is never taken for a chunk that has one page.
func Name(b, key []byte) []byte { return protocol.AppendLayerKey(b, key, 0) }

// Enter says what becomes of layers of a run: OK, or Withdrawn if a later epoch of it has
// begun. One of before is over.
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

func runHash(of *Run) uint64 { return table.Hash(of.Request, of.Peer[:]) }

func chunkHash(run table.Handle, hash uint64) uint64 {
	var at [8]byte
	binary.LittleEndian.PutUint64(at[:], uint64(run))
	return table.Hash(hash, at[:])
}

// find is the run that stands of a peer's request, whichever its epoch.
func (b *Bundles) find(of *Run) table.Handle {
	for p := b.byRun.Seek(runHash(of)); p.Found(); p = b.byRun.Next(p) {
		if x := b.runs.Get(p.Handle()); x.Peer == of.Peer && x.Request == of.Request {
			return p.Handle()
		}
	}
	return 0
}

// condemn ends a run: nothing goes on with its bundles any more, and they end soon.
func (b *Bundles) condemn(h table.Handle, x *run) {
	x.over = true
	b.byRun.Remove(runHash(&x.Run), h)
	b.runs.PushBack(&b.dying, h)
}

// Condemned is a bundle whose run is over; zero: there is none.
func (b *Bundles) Condemned() table.Handle {
	if x := b.runs.Get(b.dying.Front()); x != nil {
		return x.bundles.Front()
	}
	return 0
}

// Lose condemns what a peer that is gone has begun.
func (b *Bundles) Lose(class int) { b.losses.Add(class) }

// Lost says whether a bundle is condemned.
func (b *Bundles) Lost(h table.Handle) bool {
	r := b.rows.Get(h)
	return b.losses.Over(b.runs.Get(r.of).Class, r.born)
}

// Open is the bundle of a chunk of a run, of whose name this is the hash; zero: there is none.
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

// Opened returns the operation that began a bundle and the grant that the operation got; zero: it gets one in this
// step.
func (b *Bundles) Opened(h table.Handle) (operation uint64, grant effects.GrantID) {
	r := b.rows.Get(h)
	return r.opener, r.first
}

// Begin begins a bundle of a chunk that is not here, for an operation, or says that there is no room. Enter must have
// said OK. Its pages are not promised yet: Promise says that they are, Undo that there are none.
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
			v.Out.Mark(Marks.BundlesFull) // Those of runs that are over have not gone yet.
			return 0
		}
		*x = run{Run: *of}
		b.byRun.Add(runHash(of), runs)
	}
	h, r := b.rows.Add()
	*r = row{
		of: runs, entry: s.BeginFill(hash, name), hash: hash, places: r.places[:0], opener: operation,
		born: b.losses.Of(of.Class),
		most: v.Now.Add(b.cfg.Most),
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

// Plan takes the place of a layer, which is to be granted next; zero if it is not vacant.
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

// UnderGrant reports whether a grant stands over the place of a layer.
func (b *Bundles) UnderGrant(h table.Handle, layer uint32) bool {
	r := b.rows.Get(h)
	return layer < uint32(len(r.places)) && b.places.Get(r.places[layer]).grant != 0
}

// Unplan leaves a place vacant again.
func (b *Bundles) Unplan(at table.Handle) {
	if p := b.places.Get(at); p != nil {
		p.next = false
	}
}

// Undo takes back what Begin began.
func (b *Bundles) Undo(v *env.Env, s *store.Store, h table.Handle) {
	entry := b.remove(v, h)
	s.EndFill(entry, effects.Page{}, false)
	s.Settle(entry, v)
}

// Promise takes the pages of a bundle that has begun: from now on nobody else finds them free.
func (b *Bundles) Promise(v *env.Env, h table.Handle) {
	r := b.rows.Get(h)
	r.kept = b.cfg.Layers
	v.Pools.Keep(v.Pool, b.runs.Get(r.of).Class, r.kept)
	b.renew(v, h, r)
}

// Redeem gives up the promise of a page that is granted next.
func (b *Bundles) Redeem(v *env.Env, at table.Handle) {
	r := b.rows.Get(b.places.Get(at).of)
	r.kept--
	v.Pools.Unkeep(v.Pool, b.runs.Get(r.of).Class, 1)
}

// Granted notes under which grant the page of a place is written.
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

// renew gives a bundle time: it has made progress.
func (b *Bundles) renew(v *env.Env, h table.Handle, r *row) {
	v.Timers.Stop(&r.timer)
	v.Timers.Set(&r.timer, min(v.Now.Add(b.cfg.TTL), r.most), kernel.Ref{Owner: kernel.OwnerBundles, Subject: h})
}

// Due notes that the deadline of a bundle has come.
func (b *Bundles) Due(v *env.Env, h table.Handle) {
	v.Out.Mark(Marks.BundleExpired)
	b.rows.Get(h).timer = 0
}

// Take puts a page that has landed into its place, and with the last one gives the store the chunk, which it claims for
// the request if somebody may come for it. It says false if the bundle is gone: the page is the caller's.
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

// Ungrant notes that the grant over a place is over, and returns its bundle; zero if that is gone.
func (b *Bundles) Ungrant(at table.Handle) table.Handle {
	p := b.places.Get(at)
	if p == nil || p.grant == 0 {
		return 0
	}
	p.grant = 0
	b.rows.Get(p.of).granted--
	return p.of
}

// Grants appends the grants under which pages of a bundle are written, each once if they stand together.
func (b *Bundles) Grants(h table.Handle, dst []effects.GrantID) []effects.GrantID {
	for _, at := range b.rows.Get(h).places {
		if id := b.places.Get(at).grant; id != 0 && (len(dst) == 0 || dst[len(dst)-1] != id) {
			dst = append(dst, id)
		}
	}
	return dst
}

// Stands says whether a bundle is there.
func (b *Bundles) Stands(h table.Handle) bool { return b.rows.Get(h) != nil }

// Size is how many pages a bundle is of.
func (b *Bundles) Size() int { return int(max(1, b.cfg.Layers)) }

// End ends a bundle that is not whole: what landed of it is free, and its chunk lost. Who writes is for the caller, who
// has taken its grants back.
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

// remove forgets a bundle, and its run with the last one. Its entry still counts the fill.
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

// Tables shows what there is.
func (b *Bundles) Tables(visit table.Visit) {
	visit("bundles", b.rows.Len(), table.Empty)
	visit("places of bundles", b.places.Len(), table.Empty)
	visit("runs of bundles", b.runs.Len(), table.Empty)
}
