package store

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/draw"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/memory"
	"pgregory.net/rapid"
)

const (
	pagesMax   = 6
	entriesMax = 3
	claimsMax  = 5
	classes    = 2
	placesMax  = 5
	ttl        = 100 * effects.Millisecond
)

// crowd is one hash for all keys: whoever mixes up keys that collide is seen.
const crowd = 42

var ref = kernel.Ref{Owner: kernel.OwnerReceiver, Kind: 4}

// A belief is what the model knows of one key.
type belief struct {
	page   effects.Page
	fills  int
	pins   int
	claims []claimed
}

type claimed struct {
	request uint64
	ends    effects.Time
	class   int
	beyond  bool
}

func (b *belief) known() bool {
	return b.page.Generation != 0 || b.fills > 0 || b.pins > 0 || len(b.claims) > 0
}

// shelf is a store beside its model.
type shelf struct {
	t      *rapid.T
	store  Store
	pools  memory.Pools
	pool   *memory.Pool
	timers kernel.Timers
	out    effects.Effects
	now    effects.Time
	model  map[string]*belief
	lapsed map[uint64]effects.Time // until when it is remembered, by request: all keys have one hash
}

// fill gives the shelf its memory.
func (s *shelf) fill(pages uint32) {
	s.pools = memory.New(1, 1, draw.Shuffle{}, memory.PoolConfig{Pages: pages})
	s.pool = s.pools.Pool(0)
}

func (s *shelf) env() *env.Env {
	return &env.Env{Now: s.now, Out: &s.out, Pools: &s.pools, Pool: s.pool, Timers: &s.timers}
}

func (s *shelf) claims() (n int) {
	for _, b := range s.model {
		n += len(b.claims)
	}
	return n
}

// beyond counts a class's claims on what had one already.
func (s *shelf) beyond(class int) (n int) {
	for _, b := range s.model {
		for _, c := range b.claims {
			if c.beyond && c.class == class {
				n++
			}
		}
	}
	return n
}

// pick draws a key of which the model believes something.
func (s *shelf) pick(t *rapid.T, fits func(*belief) bool) (string, *belief) {
	var keys []string
	for k, b := range s.model {
		if fits(b) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		t.Skip("none")
	}
	slices.Sort(keys)
	k := rapid.SampledFrom(keys).Draw(t, "key")
	return k, s.model[k]
}

func (s *shelf) find(key string) Entry { return s.store.Find(crowd, []byte(key)) }

// settle is the rule for what goes when nothing keeps it.
func (b *belief) settle() {
	if b.pins == 0 && len(b.claims) == 0 {
		b.page = effects.Page{}
	}
}

func (s *shelf) claim(t *rapid.T, key string, b *belief) {
	request := rapid.Uint64Range(0, 2).Draw(t, "request")
	var earlier claimed
	var told bool
	if request != 0 {
		// Told twice, a request has one claim, from the second time on.
		if i := slices.IndexFunc(b.claims, func(c claimed) bool { return c.request == request }); i >= 0 {
			earlier, told = b.claims[i], true
			b.claims = slices.Delete(b.claims, i, i+1)
		}
	}
	class := rapid.IntRange(0, classes-1).Draw(t, "class")
	beyond := len(b.claims) > 0
	want := told || !beyond || s.beyond(class) < claimsMax-s.beyond(0)-s.beyond(1)
	if got := s.store.Claim(s.find(key), class, request, s.env(), ref); got != want {
		t.Fatalf("claim on %s: %v with %d of %d claims beyond the first", key, got, s.beyond(class), claimsMax)
	}
	if want {
		delete(s.lapsed, request)
		if told {
			class, beyond = earlier.class, earlier.beyond
		}
		b.claims = append(b.claims, claimed{request, s.now.Add(ttl), class, beyond})
	}
}

// pinned is the rule for whose claim a reader ends.
func (b *belief) pinned(request uint64) {
	if request == 0 {
		return
	}
	at := slices.IndexFunc(b.claims, func(c claimed) bool { return c.request == request })
	if at < 0 {
		at = slices.IndexFunc(b.claims, func(c claimed) bool { return c.request == 0 })
	}
	if at >= 0 {
		b.claims = slices.Delete(b.claims, at, at+1)
	}
}

// Whatever fills begin and end, claims come, expire and are given up, and readers do:
// no key is readable before its page is whole, a ready page stays as long as somebody
// expects or reads it and is given back when nobody does, and keys of one hash are
// told apart (M7).
func TestStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &shelf{
			t: t, store: New(1, entriesMax, placesMax, pagesMax, claimsMax, classes, ttl),
			timers: kernel.NewTimers(64), now: effects.Time(effects.Second),
			lapsed: map[uint64]effects.Time{}, model: map[string]*belief{"a": {}, "b": {}, "c": {}, "d": {}},
		}
		s.fill(pagesMax)
		all := func(*belief) bool { return true }
		filling := func(b *belief) bool { return b.fills > 0 }
		ready := func(b *belief) bool { return b.page.Generation != 0 }
		t.Repeat(map[string]func(*rapid.T){
			"fill": func(t *rapid.T) {
				k, b := s.pick(t, all)
				if !b.known() && !s.store.Room(1) {
					t.Skip("full")
				}
				s.store.BeginFill(crowd, []byte(k))
				b.fills++
			},
			"land": func(t *rapid.T) {
				if s.pool.Free() == 0 {
					t.Skip("no page")
				}
				k, b := s.pick(t, filling)
				page := s.pool.Take(1, nil)[0]
				took := s.store.EndFill(s.find(k), page, true)
				if took == ready(b) {
					t.Fatalf("%s was ready: %v; its new page was taken: %v", k, ready(b), took)
				}
				if took {
					b.page = page
				} else {
					s.pool.Unref(page)
				}
				b.fills--
				s.claim(t, k, b)
				s.store.Settle(s.find(k), s.env())
				b.settle()
			},
			"lose": func(t *rapid.T) {
				k, b := s.pick(t, filling)
				if s.store.EndFill(s.find(k), effects.Page{}, false) {
					t.Fatal("a fill that came to nothing gave a page")
				}
				s.store.Settle(s.find(k), s.env())
				b.fills--
				b.settle()
			},
			"trust": func(t *rapid.T) {
				k, b := s.pick(t, filling)
				if s.pool.Free() == 0 {
					t.Skip("no page")
				}
				page := s.pool.Take(1, nil)[0]
				if s.store.Trust(s.find(k), page) == ready(b) {
					t.Fatalf("%s was ready: %v, and was trusted all the same, or not", k, ready(b))
				}
				if ready(b) {
					s.pool.Unref(page)
					return
				}
				b.page = page
				s.claim(t, k, b)
				s.store.Settle(s.find(k), s.env())
				b.settle()
			},
			"claim": func(t *rapid.T) {
				k, b := s.pick(t, ready)
				s.claim(t, k, b)
			},
			"pin": func(t *rapid.T) {
				k, b := s.pick(t, ready)
				request := rapid.Uint64Range(0, 2).Draw(t, "reader")
				s.store.Pin(s.find(k), request, s.env(), ref)
				b.pinned(request)
				b.pins++
			},
			"unpin": func(t *rapid.T) {
				k, b := s.pick(t, func(b *belief) bool { return b.pins > 0 })
				s.store.Unpin(s.find(k), s.env())
				b.pins--
				b.settle()
			},
			"abandon": func(t *rapid.T) {
				request := rapid.Uint64Range(0, 2).Draw(t, "request")
				before := s.claims()
				for _, b := range s.model {
					b.claims = slices.DeleteFunc(b.claims, func(c claimed) bool { return c.request == request })
					b.settle()
				}
				if got := s.store.Abandon(request, s.env(), ref); int(got) != before-s.claims() {
					t.Fatalf("%d claims given up, want %d", got, before-s.claims())
				}
			},
			"wait": func(t *rapid.T) {
				s.now = s.now.Add(effects.Duration(rapid.Int64Range(0, int64(ttl)).Draw(t, "ns")))
				before, expired := s.claims(), 0
				for r, ok := s.timers.Pop(s.now); ok; r, ok = s.timers.Pop(s.now) {
					expired += int(s.store.Expire(r.Subject, s.env(), ref))
				}
				for _, b := range s.model {
					if len(b.claims) == 0 {
						continue
					}
					b.claims = slices.DeleteFunc(b.claims, func(c claimed) bool {
						if c.ends <= s.now {
							s.lapsed[c.request] = s.now.Add(ttl)
						}
						return c.ends <= s.now
					})
					b.settle()
				}
				if expired != before-s.claims() {
					t.Fatalf("%d claims expired, want %d", expired, before-s.claims())
				}
			},
			"": s.compare,
		})
	})
}

func (s *shelf) compare(t *rapid.T) {
	entries, pages := 0, map[uint32]bool{}
	var deadlines []effects.Time
	for k, b := range s.model {
		h := s.find(k)
		if (h != 0) != b.known() {
			t.Fatalf("%s is in the table: %v; want %v", k, h != 0, b.known())
		}
		if h == 0 {
			continue
		}
		entries++
		if page, ok := s.store.Ready(h); ok != (b.page.Generation != 0) || page != b.page {
			t.Fatalf("%s is ready: %v with %+v; want %+v", k, ok, page, b.page)
		}
		key, _, fills, pins, claims, ok := s.store.Inspect(h.Slot())
		if !ok || string(key) != k || int(fills) != b.fills || int(pins) != b.pins || claims != len(b.claims) {
			t.Fatalf("%s shows key %s, %d fills, %d pins, %d claims; want %+v", k, key, fills, pins, claims, b)
		}
		if b.page.Generation != 0 {
			pages[b.page.Index] = true
		}
		if len(b.claims) > 0 {
			deadlines = append(deadlines, b.claims[0].ends)
		}
	}
	if s.store.Entries() != entries || s.store.Claims() != s.claims() {
		t.Fatalf("%d entries and %d claims; want %d and %d", s.store.Entries(), s.store.Claims(), entries, s.claims())
	}
	if int(s.pool.Free())+len(pages) != pagesMax {
		t.Fatalf("%d pages free of %d with %d ready", s.pool.Free(), pagesMax, len(pages))
	}
	for reader := range uint64(4) {
		want := false
		for request, until := range s.lapsed {
			want = want || until > s.now && (reader == 0 || request == 0 || request == reader)
		}
		if got := s.store.Lapsed(s.now, crowd, reader); got != want {
			t.Fatalf("request %d is told of a lapse: %v; want %v of %v at %d", reader, got, want, s.lapsed, s.now)
		}
	}
	at, ok := s.timers.Next()
	if ok != (len(deadlines) > 0) || ok && at != slices.Min(deadlines) || s.timers.Len() != len(deadlines) {
		t.Fatalf("%d deadlines, the next at %d; want %v", s.timers.Len(), at, deadlines)
	}
}

// When the rank drains, nobody's expectation keeps a page; readers keep theirs.
func TestDropAll(t *testing.T) {
	s := &shelf{store: New(1, 4, 1, 4, 8, 2, ttl), timers: kernel.NewTimers(8), now: 1}
	s.fill(4)
	for _, k := range []string{"read", "expected"} {
		h := s.store.BeginFill(crowd, []byte(k))
		s.store.EndFill(h, s.pool.Take(1, nil)[0], true)
		s.store.Claim(h, 1, 1, s.env(), ref)
		s.store.Claim(h, 1, 2, s.env(), ref)
	}
	s.store.Pin(s.find("read"), 1, s.env(), ref)
	s.store.DropAll(s.env(), ref)
	if s.find("expected") != 0 || s.store.Claims() != 0 || s.timers.Len() != 0 {
		t.Errorf("a claim was left: %d, %d deadlines", s.store.Claims(), s.timers.Len())
	}
	if _, ok := s.store.Ready(s.find("read")); !ok || s.pool.Free() != 3 {
		t.Errorf("the page of a reader went: %d free", s.pool.Free())
	}
	s.store.Unpin(s.find("read"), s.env())
	if s.store.Entries() != 0 || s.pool.Free() != 4 {
		t.Errorf("%d entries and %d free pages at the end", s.store.Entries(), s.pool.Free())
	}
}

// What only our own defect can cause is found at once.
func TestStoreMisused(t *testing.T) {
	for name, misuse := range map[string]func(*shelf, Entry){
		"a fill ends twice": func(s *shelf, h Entry) {
			s.store.EndFill(h, effects.Page{}, false)
			s.store.EndFill(h, effects.Page{}, false)
		},
		"unpinned unread":       func(s *shelf, h Entry) { s.store.Unpin(h, s.env()) },
		"pinned before it came": func(s *shelf, h Entry) { s.store.Pin(h, 0, s.env(), ref) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &shelf{store: New(1, 4, 1, 4, 8, 2, ttl), timers: kernel.NewTimers(8), now: 1}
			s.fill(4)
			h := s.store.BeginFill(crowd, []byte("a"))
			defer func() {
				if recover() == nil {
					t.Error("it went unnoticed")
				}
			}()
			misuse(s, h)
		})
	}
}
