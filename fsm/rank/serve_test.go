package rank

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"pgregory.net/rapid"
)

// A batch gets all of its pages or none, and while it waits it keeps nothing: no page,
// no entry that others could find.
func TestAllOrNothing(t *testing.T) {
	r := newServing(t, nil)
	who := r.connectPeer(1)
	first := r.requestPages(who, numberedKeys(0, 3), nil)
	r.wantGranted(first, 3)
	second := r.requestPages(who, numberedKeys(10, 2), nil)
	r.wantWaits(second)
	if r.pool.FreePages() != 1 || r.rooms.Store.CountEntries() != 3 {
		t.Fatalf("%d pages free and %d entries while it waits", r.pool.FreePages(), r.rooms.Store.CountEntries())
	}
	r.advance(allocTimeout - 1)
	r.wantWaits(second)
	r.advance(1)
	r.wantRefused(second, effects.NoMemory)
	if r.rooms.Pending.Len() != 0 || r.pool.FreePages() != 1 {
		t.Fatalf("%d waiters and %d free pages are left", r.rooms.Pending.Len(), r.pool.FreePages())
	}
}

// First in, first out within a peer: a small one behind a large one does not pass it,
// and who leaves lets the next go on.
func TestFirstInFirstOut(t *testing.T) {
	r := newServing(t, nil)
	who := r.connectPeer(1)
	r.requestPages(who, numberedKeys(0, 3), nil)
	large, small, third := r.requestPages(who, numberedKeys(10, 3), nil), r.requestPages(who, numberedKeys(20, 1), nil),
		r.requestPages(who, numberedKeys(30, 1),
			nil)
	r.wantWaits(large, small, third)
	r.step(&effects.ConnLost{Conn: effects.Conn(large)})
	r.wantGranted(small, 1)
	r.wantWaits(large, third)
	r.landPages(r.grants[0], r.grants[0].Pages) // Ready now, and claimed: nothing is free.
	r.wantWaits(third)
	got := r.get(0, numberedKeys(0, 3))
	if d := r.outcomes[got]; d.Code != effects.OK || d.Hits != 3 {
		t.Fatalf("got %+v", d)
	}
	if code := r.release(got); code != effects.OK {
		t.Fatalf("release: %v", code)
	}
	r.wantGranted(third, 1)
}

// In turn between peers, and one that needs much is passed a bounded number of times:
// then pages are kept together for it (M9).
func TestOvertakesAreBounded(t *testing.T) {
	r := newServing(t, nil)
	one, two := r.connectPeer(1), r.connectPeer(2)
	r.wantGranted(r.requestPages(one, numberedKeys(0, 2), nil), 2)
	r.wantGranted(r.requestPages(one, numberedKeys(2, 1), nil), 1)
	large := r.requestPages(two, numberedKeys(10, 3), nil)
	r.wantWaits(large)
	passed := 0
	for i := range 6 {
		small := r.requestPages(one, numberedKeys(100+10*i, 1), nil)
		if _, _, ok := r.grantedPages(small); !ok {
			break
		}
		passed++
		g := r.grants[len(r.grants)-1]
		r.landPages(g, g.Pages)
		r.release(r.get(0, numberedKeys(100+10*i, 1)))
	}
	if passed != 2 {
		t.Fatalf("the large request was passed %d times; the bound is 2", passed)
	}
	for _, g := range r.grants[:2] {
		r.landPages(g, g.Pages)
	}
	r.release(r.get(0, numberedKeys(0, 3)))
	r.wantGranted(large, 3)
}

// What a batch says of itself is checked before anything is kept for it.
func TestRequestsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		name   string
		keys   [][]byte
		change func(*protocol.AllocRequest)
		want   effects.Code
	}{
		{"more than the pool", numberedKeys(0, pagesMax+1), nil, effects.TooLarge},
		{"more than a batch", numberedKeys(0, 9), nil, effects.TooLarge},
		{"another dtype", keysOf("a"), func(m *protocol.AllocRequest) { m.Dtype = protocol.DtypeBFloat16 }, effects.Mismatch},
		{"another format", keysOf("a"), func(m *protocol.AllocRequest) { m.Format = protocol.FormatKVMLA }, effects.Mismatch},
		{"another shape", keysOf("a"), func(m *protocol.AllocRequest) { m.Shape.Dims[3]++ }, effects.Mismatch},
		{"a short shape of many", keysOf("a", "b"), func(m *protocol.AllocRequest) {
			m.Shape.Dims[2], m.LastChunkTokens = 2,
				2
		}, effects.Mismatch},
		{"no tokens", keysOf("a"), func(m *protocol.AllocRequest) { m.LastChunkTokens = 0 }, effects.Invalid},
		{"more tokens than a chunk", keysOf("a"), func(m *protocol.AllocRequest) { m.LastChunkTokens = 5 }, effects.Invalid},
		{"a key that is none", [][]byte{[]byte("k")}, nil, effects.Malformed},
		{"another life of ours", keysOf("a"), func(m *protocol.AllocRequest) { m.Ext.To[3]++ }, effects.Stale},
		{"a name of ours for another", keysOf("a"),
			func(m *protocol.AllocRequest) { m.Ext.To = protocol.UUID(key1.InboundName(effects.Incarnation{9})) }, effects.Stale},
		{"no name of ours", keysOf("a"), func(m *protocol.AllocRequest) { m.Ext.To = protocol.UUID{} }, effects.Stale},
		{"nobody's incarnation", keysOf("a"), func(m *protocol.AllocRequest) { m.Ext.Incarnation[3]++ }, effects.Stale},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newServing(t, nil)
			r.wantRefused(r.requestPages(r.connectPeer(1), c.keys, c.change), c.want)
			if r.pool.FreePages() != pagesMax || r.rooms.Store.CountEntries() != 0 || r.rooms.Pending.Len() != 0 {
				t.Fatalf("%d pages free, %d entries, %d waiters", r.pool.FreePages(), r.rooms.Store.CountEntries(), r.rooms.Pending.Len())
			}
		})
	}
}

// A key that stands twice in a batch shares a page, as long as its longest place; one
// that is ready is not sent again; one that is only on its way is (M7).
func TestKeysInCommon(t *testing.T) {
	r := newServing(t, nil)
	who := r.connectPeer(1)
	q := r.requestPages(who, keysOf("a", "b", "a"), func(m *protocol.AllocRequest) { m.LastChunkTokens = 1 })
	r.wantGranted(q, 3)
	if pages, _, _ := r.grantedPages(q); pages[0] != pages[2] || pages[0] == pages[1] {
		t.Fatalf("pages %v for keys a, b, a", pages)
	}
	g := r.grants[0]
	if len(g.Pages) != 2 || g.Pages[0].Length != 32 {
		t.Fatalf("granted %+v; the repeated key is as long as its first place", g.Pages)
	}
	second := r.requestPages(who, keysOf("a"), nil)
	r.wantGranted(second, 1) // A foreign fill is not waited for.
	r.landPages(g, g.Pages)
	third := r.requestPages(who, keysOf("a", "c"), nil)
	r.wantGranted(third, 1)
	if m := r.replies[third]; !slices.Equal(m.AlreadySent, []int64{0}) {
		t.Fatalf("already sent: %v", m.AlreadySent)
	}
	free := r.pool.FreePages()
	r.landPages(r.grants[1], r.grants[1].Pages) // The second fill of a came too late: its page is free again.
	if r.pool.FreePages() != free+1 {
		t.Fatalf("%d pages free before the race was lost, %d after", free, r.pool.FreePages())
	}
}

// A Get pins nothing while it waits, is served when the last key it misses is whole,
// and takes what there is at its deadline.
func TestGets(t *testing.T) {
	r := newServing(t, nil)
	who := r.connectPeer(1)
	r.requestPages(who, keysOf("a"), nil)
	r.requestPages(who, keysOf("b"), nil)
	a, b := r.grants[0], r.grants[1]
	whole, part, none := r.get(5*effects.Second, keysOf("a", "b")), r.get(2*effects.Second, keysOf("a", "b", "c")),
		r.get(effects.Second, keysOf("d"))
	r.landPages(b, b.Pages)
	if len(r.outcomes) != 0 {
		t.Fatalf("delivered %v before the first key was ready", r.outcomes)
	}
	r.landPages(a, a.Pages)
	if d := r.outcomes[whole]; d.Code != effects.OK || d.Hits != 2 || len(d.Pages) != 2 {
		t.Fatalf("the Get of both: %+v", d)
	}
	if _, early := r.outcomes[part]; early {
		t.Fatal("a Get that still waits was served")
	}
	r.advance(2 * effects.Second)
	if d := r.outcomes[part]; d.Code != effects.NotFound || d.Hits != 2 {
		t.Fatalf("the Get of three at its deadline: %+v", d)
	}
	if d := r.outcomes[none]; d.Code != effects.NotFound || d.Hits != 0 {
		t.Fatalf("the Get of nothing: %+v", d)
	}
	for got, want := range map[effects.Ticket]effects.Code{whole: effects.OK, none: effects.NotFound,
		999: effects.NotFound} {
		if code := r.release(got); code != want {
			t.Errorf("release of %d: %v, want %v", got, code, want)
		}
	}
	if code := r.release(whole); code != effects.NotFound {
		t.Errorf("the second release: %v", code)
	}
	if r.pool.FreePages() != pagesMax-2 {
		t.Errorf("%d pages free while one reader is left", r.pool.FreePages())
	}
	r.release(part)
	if r.pool.FreePages() != pagesMax {
		t.Errorf("%d pages free at the end", r.pool.FreePages())
	}
}

// A grant whose time is over stays in quarantine until the driver proves that nobody
// can touch it; what landed before that proof counts.
func TestQuarantine(t *testing.T) {
	r := newServing(t, nil)
	who := r.connectPeer(1)
	r.requestPages(who, keysOf("a", "b"), nil)
	g := r.grants[0]
	r.advance(leaseTTL)
	if len(r.revokes) != 1 || r.pool.QuarantinedPages() != 2 || r.pool.FreePages() != 2 {
		t.Fatalf("%d revokes, %d in quarantine, %d free", len(r.revokes), r.pool.QuarantinedPages(), r.pool.FreePages())
	}
	r.landPages(g, g.Pages[:1])
	if got := r.get(0, keysOf("a", "b")); r.outcomes[got].Hits != 1 || r.confirms[0] != effects.Faulted {
		t.Fatalf("hits %d, confirmed %v", r.outcomes[got].Hits, r.confirms)
	}
	r.confirmRevokes()
	if r.pool.QuarantinedPages() != 0 || r.pool.FreePages() != 3 || r.rank.pools.CountGrants() != 0 {
		t.Fatalf("%d in quarantine, %d free, %d grants", r.pool.QuarantinedPages(), r.pool.FreePages(), r.rank.pools.CountGrants())
	}
	r.landPages(g, g.Pages[1:])
	if r.confirms[1] != effects.Withdrawn || r.pool.FreePages() != 3 {
		t.Fatalf("a landing under a grant that is over: %v, %d free", r.confirms[1], r.pool.FreePages())
	}
}

// Whatever is asked for, lands, ends and is read: every request is answered exactly
// once, a reader gets the very pages that its keys' writer was told to store into and
// did, and in the end no page is missing.
func TestReceiver(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	rapid.Check(t, func(t *rapid.T) {
		r := newServing(t, nil)
		peers := []effects.Incarnation{{}, r.connectPeer(1), r.connectPeer(2)}
		asks, gets := map[effects.Request][]string{}, map[effects.Ticket][]string{}
		content := map[effects.Generation]string{} // of lives of pages that landed
		draw := func(t *rapid.T) []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID[string]).Draw(t, "keys")
		}
		// store notes what a writer stores, by the answer that it got.
		store := func(g effects.Grant) {
			for q, m := range r.replies {
				if m.Ext.Grant != uint64(g.ID) {
					continue
				}
				next := 0
				for i, name := range asks[q] {
					if !slices.Contains(m.AlreadySent, int64(i)) {
						content[effects.Generation(m.Ext.Generations[next])] = name
						next++
					}
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				list := draw(t)
				asks[r.requests+1] = list
				r.requestPages(rapid.SampledFrom(peers).Draw(t, "peer"), keysOf(list...), nil)
			},
			"land": func(t *rapid.T) {
				if len(r.grants) == 0 {
					t.Skip("none")
				}
				g := rapid.SampledFrom(r.grants).Draw(t, "grant")
				if g.Peer == (effects.Incarnation{}) {
					t.Skip("a plain sender, whom no fenced plane lets in")
				}
				store(g)
				r.landPages(g, g.Pages)
			},
			"get": func(t *rapid.T) {
				list := draw(t)
				gets[r.get(effects.Duration(rapid.IntRange(0, 2).Draw(t, "s"))*effects.Second, keysOf(list...))] = list
			},
			"release": func(t *rapid.T) {
				r.release(effects.Ticket(rapid.Uint64Range(1, uint64(r.tickets)+1).Draw(t, "ticket")))
			},
			"revoked": func(*rapid.T) { r.confirmRevokes() },
			"wait":    func(t *rapid.T) { r.advance(effects.Duration(rapid.IntRange(1, 6).Draw(t, "s")) * effects.Second) },
			"": func(t *rapid.T) {
				for ticket, list := range gets {
					for i, page := range r.outcomes[ticket].Pages {
						if content[page.Generation] != list[i] {
							t.Fatalf("ticket %d was given %q for %s", ticket, content[page.Generation], list[i])
						}
					}
				}
				used := 0
				for i := range r.pool.TotalPages() {
					if s := r.rank.pools.InspectPage(r.pool, i); s.Refs+s.Holds > 0 || s.Grant != 0 {
						used++
					}
				}
				if used+int(r.pool.FreePages()) != pagesMax {
					t.Fatalf("%d pages used and %d free", used, r.pool.FreePages())
				}
			},
		})
		// Leases end, then readers and claims, and then nothing keeps anything.
		r.advance(leaseTTL + allocTimeout)
		r.confirmRevokes()
		for ticket := range r.tickets + 1 {
			r.release(ticket)
		}
		r.advance(200 * effects.Second)
		r.confirmRevokes()
		if len(r.replies) != len(asks) {
			t.Fatalf("%d of %d requests were answered", len(r.replies), len(asks))
		}
		if r.pool.FreePages() != pagesMax || r.rooms.Store.CountEntries() != 0 || r.rooms.Store.CountClaims() != 0 ||
			r.rooms.Pending.Len() != 0 || r.rooms.Gets.Len() != 0 || r.rank.timers.Len() != 0 {
			t.Fatalf("left: %d of %d pages, %d entries, %d claims, %d waiters, %d gets, %d deadlines", pagesMax-r.pool.FreePages(),
				pagesMax,
				r.rooms.Store.CountEntries(), r.rooms.Store.CountClaims(), r.rooms.Pending.Len(), r.rooms.Gets.Len(), r.rank.timers.Len())
		}
	})
}

// What a request lacks is not looked up each time that pages become free. It is served all the same as soon as it fits,
// because chunks that it names came from elsewhere.
func TestPendingRequestServedWhenChunksArrive(t *testing.T) {
	r := newServing(t, nil)
	first, second := r.connectPeer(1), r.connectPeer(2)
	r.wantGranted(r.requestPages(first, keysOf("a", "b", "c"), nil), 3)
	g := r.grants[0]
	mine := r.requestPages(second, keysOf("a", "b", "d"), nil)
	r.wantWaits(mine)
	// Only some of them land: two of them are lacking still.
	r.step(&effects.Landed{Landing: 1, Grant: g.ID, Peer: first, Pages: g.Pages[:1], Complete: true})
	r.wantWaits(mine)
	r.step(&effects.Landed{Landing: 2, Grant: g.ID, Peer: first, Pages: g.Pages[1:2], Complete: true})
	r.wantGranted(mine, 1)
	if sent := r.replies[mine].AlreadySent; len(sent) != 2 {
		t.Errorf("chunks %v were here; want two", sent)
	}
}
