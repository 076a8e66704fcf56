package plane

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
)

// publishLeased publishes pages 0 to n-1 of 100 bytes and leases them.
func publishLeased(p *Pool, id effects.GrantID, peer effects.Incarnation, n int) []effects.Page {
	var pages []effects.Page
	for i := range n {
		pages = append(pages, effects.Page{Index: uint32(i), Length: 100, Generation: effects.Generation(i) + 1})
	}
	p.Publish(pages)
	p.Grant(&effects.Grant{ID: id, Peer: peer, Read: true, Pages: pages})
	return pages
}

func TestRevokeWaitsForTheLastReader(t *testing.T) {
	var sink events
	p := testPool(t, &sink, 4, 100)
	defer p.Close()
	const id = 1<<48 - 1
	pages := publishLeased(p, id, alice, 3)
	one, code := p.ClaimRead(alice, id, pages)
	if code != effects.OK {
		t.Fatal(code)
	}
	two, _ := p.ClaimRead(alice, id, pages[:1])
	if one.Hold(2) == nil || one.Hold(0) == nil || two.Hold(0) == nil {
		t.Fatal("a hold under a grant in force failed")
	}
	p.Revoke(id)
	for i, l := range []*ReadClaim{one, two, one} {
		if n := sink.countRevoked(id); n != 0 {
			t.Fatalf("revoked with %d holders inside", 3-i)
		}
		if l.Hold(0) != nil {
			t.Fatal("a hold succeeded after Revoke")
		}
		if _, code := p.ClaimRead(alice, id, pages); code != effects.Withdrawn {
			t.Fatalf("a read under a grant that ends: %s", code)
		}
		l.Release()
	}
	if n := sink.countRevoked(id); n != 1 {
		t.Fatalf("revoked %d times after the last holder left", n)
	}
	// The pages are free.
	p.Grant(&effects.Grant{ID: 7, Peer: bob, Pages: []effects.Page{{Index: 0, Length: 100, Generation: 9}}})
	if one.Hold(0) != nil {
		t.Fatal("a page was read under a grant that is over, while another stores into it")
	}
}

// A machine that has failed revokes nothing any more. RevokeAll does, once for each grant: nobody reads or stores
// under one afterwards.
func TestRevokeAll(t *testing.T) {
	var sink events
	p := testPool(t, &sink, 4, 100)
	defer p.Close()
	pages := publishLeased(p, 5, alice, 2)
	permit, _ := testReadPermits(t, p, 4).Permit(5, alice, 0, 100)
	stored := []effects.Page{{Index: 3, Length: 100, Generation: 1}}
	p.Grant(&effects.Grant{ID: 6, Peer: bob, Pages: stored})
	p.Grant(&effects.Grant{ID: 7, Peer: bob, Read: true, Pages: pages[:1]})
	p.Revoke(7)
	if !permit.isValid() {
		t.Fatal("a grant to read in force has no permit")
	}
	for range 2 {
		p.RevokeAll()
	}
	if permit.isValid() {
		t.Error("who reads by itself may go on")
	}
	if _, code := p.ClaimRead(alice, 5, pages); code != effects.Withdrawn {
		t.Errorf("a read: %s", code)
	}
	if _, code := p.ClaimWrite(bob, 6, stored); code != effects.Withdrawn {
		t.Errorf("a push: %s", code)
	}
	for id := effects.GrantID(5); id <= 7; id++ {
		if n := sink.countRevoked(id); n != 1 {
			t.Errorf("grant %d was revoked %d times", id, n)
		}
	}
}

func TestReadClaimsAreChecked(t *testing.T) {
	var sink events
	p := testPool(t, &sink, 4, 100)
	defer p.Close()
	pages := publishLeased(p, 5, alice, 2)
	stored := effects.Page{Index: 3, Length: 100, Generation: 1}
	p.Grant(&effects.Grant{ID: 6, Peer: alice, Pages: []effects.Page{stored}})
	p.Publish([]effects.Page{{Index: 2, Length: 100, Generation: 7}})
	p.Grant(&effects.Grant{ID: 8, Read: true, Pages: []effects.Page{{Index: 2, Length: 100, Generation: 7}}})
	page := func(f func(*effects.Page)) []effects.Page {
		q := append([]effects.Page(nil), pages...)
		f(&q[1])
		return q
	}
	for _, c := range []struct {
		name  string
		peer  effects.Incarnation
		id    effects.GrantID
		pages []effects.Page
		want  effects.Code
	}{
		{"as granted", alice, 5, pages, effects.OK},
		{"less", alice, 5, page(func(q *effects.Page) { q.Length = 1 }), effects.OK},
		{"twice the same", alice, 5, page(func(q *effects.Page) { *q = pages[0] }), effects.OK},
		{"more", alice, 5, page(func(q *effects.Page) { q.Length++ }), effects.TooLarge},
		{"another life", alice, 5, page(func(q *effects.Page) { q.Generation++ }), effects.Stale},
		{"another page", alice, 5, page(func(q *effects.Page) { q.Index = 2 }), effects.Withdrawn},
		{"no page", alice, 5, page(func(q *effects.Page) { q.Index = 4 }), effects.NotFound},
		{"another pool", alice, 5, page(func(q *effects.Page) { q.Pool = 1 }), effects.NotFound},
		{"another peer", bob, 5, pages, effects.Refused},
		{"another grant", alice, 4, pages, effects.Withdrawn},
		{"a grant to store", alice, 6, []effects.Page{stored}, effects.Withdrawn},
		{"a bearer grant", effects.Incarnation{}, 8, []effects.Page{{Index: 2, Length: 100, Generation: 7}},
			effects.Withdrawn},
	} {
		if _, code := p.ClaimRead(c.peer, c.id, c.pages); code != c.want {
			t.Errorf("%s: %s, want %s", c.name, code, c.want)
		}
	}
	if _, code := p.ClaimWrite(alice, 5, pages); code != effects.Withdrawn {
		t.Errorf("a push under a grant to read: %s", code)
	}
	p.Revoke(8)
	if sink.countRevoked(8) != 1 {
		t.Error("no answer to Revoke of a bearer grant")
	}
}

// What only a defective machine can ask for panics.
func TestReadLeasesExcludeStores(t *testing.T) {
	one := []effects.Page{{Length: 100, Generation: 1}}
	two := []effects.Page{{Length: 100, Generation: 2}}
	for name, bug := range map[string]func(p *Pool){
		"published while lent": func(p *Pool) { publishLeased(p, 5, alice, 1); p.Publish(two) },
		"granted while lent":   func(p *Pool) { publishLeased(p, 5, alice, 1); p.Grant(&effects.Grant{ID: 6, Peer: bob, Pages: two}) },
		"lent while granted": func(p *Pool) {
			p.Grant(&effects.Grant{ID: 6, Peer: bob, Pages: one})
			p.Grant(&effects.Grant{ID: 7, Peer: bob, Read: true, Pages: one})
		},
		"lent in another life": func(p *Pool) {
			p.Publish(one)
			p.Grant(&effects.Grant{ID: 7, Peer: bob, Read: true,
				Pages: two})
		},
		"a grant given twice": func(p *Pool) {
			publishLeased(p, 5, alice, 1)
			p.Grant(&effects.Grant{ID: 5, Peer: alice, Read: true, Pages: one})
		},
		"two grants in a slot": func(p *Pool) {
			publishLeased(p, 5, alice, 1)
			p.Grant(&effects.Grant{ID: 5 + readSlots, Peer: alice, Read: true, Pages: one})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var sink events
			p := testPool(t, &sink, 2, 100)
			defer p.Close()
			defer func() {
				if recover() == nil {
					t.Error("nothing was said")
				}
			}()
			bug(p)
		})
	}
}

// Read leases, claims, holds and revocations interleave in any order: no page is held after its lease was reported as
// revoked, each Revoke is answered once, and the published length of a page is that of its leases, for as long as
// they stand.
func TestReadLeasesAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var sink events
		const n = 3
		p := testPool(rt, &sink, n, 16)
		defer p.Close()
		peer, err := MapReadPermits(p.ReadPermitsFile().Fd(), n)
		if err != nil {
			rt.Fatal(err)
		}
		defer peer.Unmap()
		var pages [n]effects.Page
		for i := range pages {
			pages[i] = effects.Page{Index: uint32(i), Length: 16, Generation: effects.Generation(i) + 1}
		}
		p.Publish(pages[:])
		type held struct {
			grant effects.GrantID
			loan  *ReadClaim
		}
		var (
			id      effects.GrantID
			covers  = map[effects.GrantID]int{} // the page that a lease covers
			revoked = map[effects.GrantID]bool{}
			loans   []held
			holds   []held
		)
		inside := func(g effects.GrantID) (c int) {
			for _, h := range holds {
				if h.grant == g {
					c++
				}
			}
			return c
		}
		anyGrant := func(rt *rapid.T) effects.GrantID {
			return effects.GrantID(rapid.Uint64Range(1, uint64(id)+1).Draw(rt, "grant"))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {
				var want [n]uint32
				for g, i := range covers {
					over := revoked[g] && inside(g) == 0
					if got := sink.countRevoked(g); (got == 1) != over || got > 1 {
						rt.Fatalf("grant %d: %d holders inside, asked to end %v, revoked %d times", g, inside(g), revoked[g], got)
					}
					if !over {
						want[i] = 16
					}
					if _, code := peer.Permit(g, alice, uint32(i), 16); (code == effects.OK) == revoked[g] {
						rt.Fatalf("grant %d, revoked %v: peers find %s", g, revoked[g], code)
					}
				}
				for i := range want {
					if got := p.readPermits.leasedBytes(uint32(i)); got != want[i] {
						rt.Fatalf("%d bytes of page %d are said to be lent; want %d", got, i, want[i])
					}
				}
			},
			"lend": func(rt *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(rt, "page")
				id++
				covers[id] = i
				p.Grant(&effects.Grant{ID: id, Peer: alice, Read: true, Pages: pages[i : i+1]})
			},
			"loan": func(rt *rapid.T) {
				g := anyGrant(rt)
				i, given := covers[g]
				l, code := p.ClaimRead(alice, g, pages[i:i+1])
				if (code == effects.OK) != (given && !revoked[g]) {
					rt.Fatalf("a loan under grant %d, given %v, revoked %v: %s", g, given, revoked[g], code)
				}
				if code == effects.OK {
					loans = append(loans, held{g, l})
				}
			},
			"hold": func(*rapid.T) {
				for _, h := range loans {
					if b := h.loan.Hold(0); (b == nil) != revoked[h.grant] {
						rt.Fatalf("hold under grant %d: got bytes %v, revoked %v", h.grant, b != nil, revoked[h.grant])
					} else if b != nil {
						holds = append(holds, h)
					}
				}
			},
			"unhold": func(*rapid.T) {
				if len(holds) > 0 {
					h := holds[0]
					holds = holds[1:]
					h.loan.Release()
				}
			},
			"revoke": func(rt *rapid.T) {
				if g := anyGrant(rt); !revoked[g] && g <= id {
					revoked[g] = true
					p.Revoke(g)
				}
			},
		})
	})
}
