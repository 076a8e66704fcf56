package loan

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"pgregory.net/rapid"
)

const (
	pagesMax = 6
	loansMax = 4
	peers    = 2 // classes 1 and 2
	ttl      = 100 * effects.Millisecond
)

// modelLoan is what the model knows of a loan that is out.
type modelLoan struct {
	peer      int
	operation uint64
	pages     []effects.Page
	grant     uint64
	ends      effects.Time
	revoking  bool
	lost      bool
}

// modelRig is loans beside their model.
type modelRig struct {
	t      *rapid.T
	leased bool
	loans  Loans
	store  store.Store
	pools  memory.Pools
	timers kernel.Timers
	out    effects.Effects
	v      env.Env
	have   []effects.Page // by key; a zero one is not there
	all    []modelLoan
	count  uint64
}

func peerID(peer int) effects.Incarnation { return effects.Incarnation{byte(peer + 1)} }

var selfID = effects.Incarnation{99}

func key(i int) []byte { return fmt.Appendf(nil, "model@1@0@%x", i+1) }

func newModelRig(t *rapid.T) *modelRig {
	d := &modelRig{
		t: t, leased: rapid.Bool().Draw(t, "leased"),
		pools:  memory.New(64, peers+1, prng.Shuffle{}, memory.PoolConfig{Pages: pagesMax, ClassShare: pagesMax}),
		timers: kernel.NewTimers(64), have: make([]effects.Page, pagesMax),
		store: store.New(store.Config{
			Settings: store.Settings{ClaimsMax: 4, ClaimTTL: ttl, Retention: store.Cache}, Seed: 1, Entries: 16,
			Pages: pagesMax, Classes: peers + 1,
		}),
	}
	d.loans = d.loans.Recycle(Config{
		Owner: kernel.OwnerRecallTarget, Kind: 3, LoansMax: loansMax, PagesMax: pagesMax, TTL: ttl, Leased: d.leased,
	}, peers+1)
	d.v = env.Env{Now: 1, Out: &d.out, Pools: &d.pools, Pool: d.pools.Pool(0), Timers: &d.timers}
	return d
}

// addChunk makes a chunk ready that nobody expects: the cache has it.
func (d *modelRig) addChunk(i int) {
	if d.have[i].Generation != 0 || d.v.Pool.FreePages() == 0 {
		return
	}
	page := d.v.Pool.TakePages(1, nil)[0]
	h := d.store.BeginFill(d.store.HashKey(key(i)), key(i))
	d.store.EndFill(h, page, true)
	d.store.DropUnused(h, &d.v)
	d.have[i] = page
}

// evictChunks has the cache give up what it can.
func (d *modelRig) evictChunks() {
	d.store.EvictFirst(&d.v)
	for i := range d.have {
		if _, ok := d.store.ReadyPage(d.store.Find(d.store.HashKey(key(i)), key(i))); !ok {
			if d.isPinned(d.have[i]) {
				d.t.Fatalf("chunk %d is given up while it is lent", i)
			}
			d.have[i] = effects.Page{}
		}
	}
}

func (d *modelRig) isPinned(page effects.Page) bool {
	return page.Generation != 0 && slices.ContainsFunc(d.all, func(x modelLoan) bool { return slices.Contains(x.pages, page) })
}

func (d *modelRig) findLoan(peer int, operation uint64) int {
	return slices.IndexFunc(d.all, func(x modelLoan) bool { return x.peer == peer && x.operation == operation })
}

// lendPrefix lends a peer what there is of so many chunks, from the first on.
func (d *modelRig) lendPrefix(peer, keys int, operation uint64) {
	var named [][]byte
	want := 0
	for i := range keys {
		named = append(named, key(i))
	}
	for want < keys && d.have[want].Generation != 0 {
		want++
	}
	if x := d.loans.FindLoan(&d.store, peerID(peer), operation); x != nil || d.findLoan(peer, operation) >= 0 {
		at := d.findLoan(peer, operation)
		if x == nil || at < 0 || x.GrantID() != d.all[at].grant || !slices.Equal(x.Pages(), d.all[at].pages) {
			d.t.Fatalf("an operation that is asked for again does not have the loan that it has")
		}
		y := &d.all[at]
		if stands := d.loans.IsInForce(&d.v, x); stands != (!y.revoking && !y.lost && d.v.Now < y.ends) {
			d.t.Fatalf("a loan stands: %v, and is %+v", stands, *y)
		}
		return
	}
	class, mine, total := peer+1, 0, 0
	for _, x := range d.all {
		total += len(x.pages)
		if x.peer == peer {
			mine += len(x.pages)
		}
	}
	most := max(0, pagesMax-total-mine+1) / 2
	found := d.loans.FindPrefix(&d.v, &d.store, class, named)
	if found != min(want, most) {
		d.t.Fatalf("a prefix of %d where there are %d, and the class may have %d more", found, want, most)
	}
	if found == 0 || !d.loans.CanLend(&d.v, class) {
		return
	}
	x := d.loans.LendPrefix(&d.v, &d.store, Request{Reader: lease.Reader{PeerID: peerID(peer), SelfID: selfID, KeepsLeases: true},
		Class:     class,
		Operation: operation})
	if x.TimeLeft(d.v.Now) != ttl || !slices.Equal(x.Pages(), d.have[:found]) {
		d.t.Fatalf("lent %v for %v", x.Pages(), x.TimeLeft(d.v.Now))
	}
	d.all = append(d.all, modelLoan{
		peer: peer, operation: operation, pages: slices.Clone(d.have[:found]), grant: x.GrantID(), ends: d.v.Now.Add(ttl),
	})
}

// endLoan notes that a loan's end was asked for: on leased planes that is its end.
func (d *modelRig) endLoan(at int) {
	if d.leased {
		d.all = slices.Delete(d.all, at, at+1)
		return
	}
	d.all[at].revoking = true
}

// sendDone takes the word of a peer about somebody's grant.
func (d *modelRig) sendDone(peer, at int) {
	grant := d.all[at].grant
	d.loans.HandleDone(&d.v, &d.store, 0, peerID(peer), selfID, grant)
	if d.all[at].peer == peer && !d.all[at].revoking {
		d.endLoan(at)
	}
}

// advance lets time pass, and deadlines come.
func (d *modelRig) advance(by effects.Duration) {
	d.v.Now = d.v.Now.Add(by)
	for ref, ok := d.timers.Pop(d.v.Now); ok; ref, ok = d.timers.Pop(d.v.Now) {
		d.loans.OnTimer(&d.v, &d.store, ref)
	}
	for at := len(d.all) - 1; at >= 0; at-- {
		if !d.all[at].revoking && d.v.Now >= d.all[at].ends {
			d.endLoan(at)
		}
	}
}

// confirmRevocation proves an end that was asked for.
func (d *modelRig) confirmRevocation(at int) {
	ref := d.pools.OwnerOf(effects.GrantID(d.all[at].grant))
	d.loans.OnRevoked(&d.v, &d.store, ref)
	if d.all[at].revoking {
		d.all = slices.Delete(d.all, at, at+1)
	}
}

// loseLink has a peer's link lost, and its loans swept; fenced planes alone do so.
func (d *modelRig) loseLink(peer int) {
	d.loans.CondemnClass(peer + 1)
	for i := range d.all {
		d.all[i].lost = d.all[i].lost || d.all[i].peer == peer
	}
	for slot := int32(0); d.loans.SweepLost(&d.v, slot) == kernel.NextSlot; slot++ {
	}
	for i := range d.all {
		d.all[i].revoking = d.all[i].revoking || d.all[i].lost
	}
}

// checkModel compares what is out with the model, and pages with what is out.
func (d *modelRig) checkModel() {
	if d.loans.Len() != len(d.all) || d.pools.CountGrants() != len(d.all) {
		d.t.Fatalf("%d loans and %d grants are out instead of %d", d.loans.Len(), d.pools.CountGrants(), len(d.all))
	}
	var busy [peers + 1]uint32
	d.loans.AddClassRows(busy[:])
	for peer := range peers {
		n := uint32(0)
		for _, x := range d.all {
			if x.peer == peer {
				n++
			}
		}
		if busy[peer+1] != n {
			d.t.Fatalf("peer %d has %d loans, and %d are counted", peer, n, busy[peer+1])
		}
	}
	ready := 0
	for i, page := range d.have {
		if page.Generation == 0 {
			continue
		}
		ready++
		s := d.pools.InspectPage(d.v.Pool, page.Index)
		loans := uint32(0)
		for _, x := range d.all {
			if slices.Contains(x.pages, page) {
				loans++
			}
		}
		if s.Loans != loans || s.Generation != page.Generation {
			d.t.Fatalf("the page of chunk %d is under %d read grants instead of %d", i, s.Loans, loans)
		}
	}
	if free := int(d.v.Pool.FreePages()); free != pagesMax-ready {
		d.t.Fatalf("%d pages are free beside %d of chunks", free, ready)
	}
}

// However peers ask, say that they have read, and are lost, and whatever the cache gives up: a loan has its pins, its
// grant and its place from its one step to its other one, and its pages are what they were.
func TestLoansAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newModelRig(t)
		some := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "some") }
		t.Repeat(map[string]func(*rapid.T){
			"bring": func(*rapid.T) { d.addChunk(some(pagesMax)) },
			"evict": func(*rapid.T) { d.evictChunks() },
			"ask": func(*rapid.T) {
				d.count++
				d.lendPrefix(some(peers), 1+some(pagesMax), d.count)
			},
			"again": func(*rapid.T) { d.lendPrefix(some(peers), 1+some(pagesMax), 1+uint64(some(int(d.count+1)))) },
			"done": func(t *rapid.T) {
				if len(d.all) == 0 {
					t.Skip("nothing is out")
				}
				d.sendDone(some(peers), some(len(d.all)))
			},
			"proof": func(t *rapid.T) {
				if len(d.all) == 0 || d.leased {
					t.Skip("nothing is to be proven")
				}
				d.confirmRevocation(some(len(d.all)))
			},
			"time": func(*rapid.T) { d.advance(effects.Duration(some(60)) * effects.Millisecond) },
			"lost": func(t *rapid.T) {
				if d.leased {
					t.Skip("such planes do not tell")
				}
				d.loseLink(some(peers))
			},
			"": func(*rapid.T) { d.checkModel() },
		})
		d.advance(2 * ttl)
		for len(d.all) > 0 {
			d.confirmRevocation(0)
		}
		d.checkModel()
		if d.timers.Len() != 0 || d.v.Pool.LeasedPages() != 0 {
			t.Fatalf("%d deadlines and %d leased pages are left", d.timers.Len(), d.v.Pool.LeasedPages())
		}
	})
}
