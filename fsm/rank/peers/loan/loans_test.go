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

// lent is what the model knows of a loan that is out.
type lent struct {
	peer      int
	operation uint64
	pages     []effects.Page
	grant     uint64
	ends      effects.Time
	revoking  bool
	lost      bool
}

// desk is loans beside their model.
type desk struct {
	t      *rapid.T
	leased bool
	loans  Loans
	store  store.Store
	pools  memory.Pools
	timers kernel.Timers
	out    effects.Effects
	v      env.Env
	have   []effects.Page // by key; a zero one is not there
	all    []lent
	count  uint64
}

func who(peer int) effects.Incarnation { return effects.Incarnation{byte(peer + 1)} }

var us = effects.Incarnation{99}

func key(i int) []byte { return fmt.Appendf(nil, "model@1@0@%x", i+1) }

func newDesk(t *rapid.T) *desk {
	d := &desk{
		t: t, leased: rapid.Bool().Draw(t, "leased"),
		pools:  memory.New(64, peers+1, prng.Shuffle{}, memory.PoolConfig{Pages: pagesMax, Share: pagesMax}),
		timers: kernel.NewTimers(64), have: make([]effects.Page, pagesMax),
		store: store.New(store.Config{
			Settings: store.Settings{ClaimsMax: 4, ClaimTTL: ttl, Retention: store.Cache}, Seed: 1, Entries: 16,
			Pages: pagesMax, Classes: peers + 1,
		}),
	}
	d.loans = d.loans.Emptied(Config{
		Owner: kernel.OwnerRecallTarget, Kind: 3, LoansMax: loansMax, PagesMax: pagesMax, TTL: ttl, Leased: d.leased,
	}, peers+1)
	d.v = env.Env{Now: 1, Out: &d.out, Pools: &d.pools, Pool: d.pools.Pool(0), Timers: &d.timers}
	return d
}

// bring makes a chunk ready that nobody expects: the cache has it.
func (d *desk) bring(i int) {
	if d.have[i].Generation != 0 || d.v.Pool.Free() == 0 {
		return
	}
	page := d.v.Pool.Take(1, nil)[0]
	h := d.store.BeginFill(d.store.Hash(key(i)), key(i))
	d.store.EndFill(h, page, true)
	d.store.Settle(h, &d.v)
	d.have[i] = page
}

// evict has the cache give up what it can.
func (d *desk) evict() {
	d.store.LetGoFirst(&d.v)
	for i := range d.have {
		if _, ok := d.store.Ready(d.store.Find(d.store.Hash(key(i)), key(i))); !ok {
			if d.pinned(d.have[i]) {
				d.t.Fatalf("chunk %d is given up while it is lent", i)
			}
			d.have[i] = effects.Page{}
		}
	}
}

func (d *desk) pinned(page effects.Page) bool {
	return page.Generation != 0 && slices.ContainsFunc(d.all, func(x lent) bool { return slices.Contains(x.pages, page) })
}

func (d *desk) find(peer int, operation uint64) int {
	return slices.IndexFunc(d.all, func(x lent) bool { return x.peer == peer && x.operation == operation })
}

// ask lends a peer what there is of so many chunks, from the first on.
func (d *desk) ask(peer, keys int, operation uint64) {
	var named [][]byte
	want := 0
	for i := range keys {
		named = append(named, key(i))
	}
	for want < keys && d.have[want].Generation != 0 {
		want++
	}
	if x := d.loans.Find(&d.store, who(peer), operation); x != nil || d.find(peer, operation) >= 0 {
		at := d.find(peer, operation)
		if x == nil || at < 0 || x.Grant() != d.all[at].grant || !slices.Equal(x.Pages(), d.all[at].pages) {
			d.t.Fatalf("an operation that is asked for again does not have the loan that it has")
		}
		y := &d.all[at]
		if stands := d.loans.Stands(&d.v, x); stands != (!y.revoking && !y.lost && d.v.Now < y.ends) {
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
	found := d.loans.Prefix(&d.v, &d.store, class, named)
	if found != min(want, most) {
		d.t.Fatalf("a prefix of %d where there are %d, and the class may have %d more", found, want, most)
	}
	if found == 0 || !d.loans.May(&d.v, class) {
		return
	}
	x := d.loans.Lend(&d.v, &d.store, For{To: lease.Reader{Who: who(peer), Us: us, Keeps: true}, Class: class,
		Operation: operation})
	if x.Left(d.v.Now) != ttl || !slices.Equal(x.Pages(), d.have[:found]) {
		d.t.Fatalf("lent %v for %v", x.Pages(), x.Left(d.v.Now))
	}
	d.all = append(d.all, lent{
		peer: peer, operation: operation, pages: slices.Clone(d.have[:found]), grant: x.Grant(), ends: d.v.Now.Add(ttl),
	})
}

// ended notes that a loan's end was asked for: on leased planes that is its end.
func (d *desk) ended(at int) {
	if d.leased {
		d.all = slices.Delete(d.all, at, at+1)
		return
	}
	d.all[at].revoking = true
}

// done takes the word of a peer about somebody's grant.
func (d *desk) done(peer, at int) {
	grant := d.all[at].grant
	d.loans.Done(&d.v, &d.store, who(peer), us, grant)
	if d.all[at].peer == peer && !d.all[at].revoking {
		d.ended(at)
	}
}

// passes lets time pass, and deadlines come.
func (d *desk) passes(by effects.Duration) {
	d.v.Now = d.v.Now.Add(by)
	for ref, ok := d.timers.Pop(d.v.Now); ok; ref, ok = d.timers.Pop(d.v.Now) {
		d.loans.Due(&d.v, &d.store, ref)
	}
	for at := len(d.all) - 1; at >= 0; at-- {
		if !d.all[at].revoking && d.v.Now >= d.all[at].ends {
			d.ended(at)
		}
	}
}

// proves proves an end that was asked for.
func (d *desk) proves(at int) {
	ref := d.pools.Owner(effects.GrantID(d.all[at].grant))
	d.loans.Revoked(&d.v, &d.store, ref)
	if d.all[at].revoking {
		d.all = slices.Delete(d.all, at, at+1)
	}
}

// loses has a peer's link lost, and its loans swept; fenced planes alone do so.
func (d *desk) loses(peer int) {
	d.loans.Lose(peer + 1)
	for i := range d.all {
		d.all[i].lost = d.all[i].lost || d.all[i].peer == peer
	}
	for slot := int32(0); d.loans.LostAt(&d.v, slot) == kernel.NextSlot; slot++ {
	}
	for i := range d.all {
		d.all[i].revoking = d.all[i].revoking || d.all[i].lost
	}
}

// check compares what is out with the model, and pages with what is out.
func (d *desk) check() {
	if d.loans.Len() != len(d.all) || d.pools.Grants() != len(d.all) {
		d.t.Fatalf("%d loans and %d grants are out instead of %d", d.loans.Len(), d.pools.Grants(), len(d.all))
	}
	var busy [peers + 1]uint32
	d.loans.Busy(busy[:])
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
		s := d.pools.Inspect(d.v.Pool, page.Index)
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
	if free := int(d.v.Pool.Free()); free != pagesMax-ready {
		d.t.Fatalf("%d pages are free beside %d of chunks", free, ready)
	}
}

// However peers ask, say that they have read, and are lost, and whatever the cache gives up: a loan has its pins, its
// grant and its place from its one step to its other one, and its pages are what they were.
func TestLoansAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDesk(t)
		some := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "some") }
		t.Repeat(map[string]func(*rapid.T){
			"bring": func(*rapid.T) { d.bring(some(pagesMax)) },
			"evict": func(*rapid.T) { d.evict() },
			"ask": func(*rapid.T) {
				d.count++
				d.ask(some(peers), 1+some(pagesMax), d.count)
			},
			"again": func(*rapid.T) { d.ask(some(peers), 1+some(pagesMax), 1+uint64(some(int(d.count+1)))) },
			"done": func(t *rapid.T) {
				if len(d.all) == 0 {
					t.Skip("nothing is out")
				}
				d.done(some(peers), some(len(d.all)))
			},
			"proof": func(t *rapid.T) {
				if len(d.all) == 0 || d.leased {
					t.Skip("nothing is to be proven")
				}
				d.proves(some(len(d.all)))
			},
			"time": func(*rapid.T) { d.passes(effects.Duration(some(60)) * effects.Millisecond) },
			"lost": func(t *rapid.T) {
				if d.leased {
					t.Skip("such planes do not tell")
				}
				d.loses(some(peers))
			},
			"": func(*rapid.T) { d.check() },
		})
		d.passes(2 * ttl)
		for len(d.all) > 0 {
			d.proves(0)
		}
		d.check()
		if d.timers.Len() != 0 || d.v.Pool.Lent() != 0 {
			t.Fatalf("%d deadlines and %d leased pages are left", d.timers.Len(), d.v.Pool.Lent())
		}
	})
}
