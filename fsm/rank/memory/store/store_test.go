package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"pgregory.net/rapid"
)

const (
	pagesMax     = 6
	entriesMax   = 3
	claimsMax    = 5
	classes      = 2
	locationsMax = 5
	ttl          = 100 * effects.Millisecond
)

var small = Config{
	Settings: Settings{LocationsMax: locationsMax, ClaimsMax: claimsMax, ClaimTTL: ttl}, Seed: 1, Entries: entriesMax,
	Pages: pagesMax, Classes: classes,
}

// sameHash is one hash for all keys: whoever mixes up keys that collide is seen.
const sameHash = 42

// A keyModel is what the model knows of one key.
type keyModel struct {
	page        effects.Page
	engineKept  bool // by the engine, who has a reference of its own
	withdrawing bool // the engine wants it back
	holds       int  // of its page, by somebody who has pinned it as well
	fills       int
	pins        int
	claims      []claimModel
}

type claimModel struct {
	request uint64
	ends    effects.Time
	class   int
	beyond  bool
}

func (b *keyModel) isKnown() bool {
	return b.page.Generation != 0 || b.fills > 0 || b.pins > 0 || len(b.claims) > 0
}

// storeModel is a store beside its model.
type storeModel struct {
	store          Store
	pools          memory.Pools
	pool           *memory.Pool
	timers         kernel.Timers
	out            effects.Effects
	now            effects.Time
	model          map[string]*keyModel
	lapsed         map[uint64]effects.Time // until when it is remembered, by request: all keys have one hash
	pages          uint32
	cache          bool           // the policy
	cached         []string       // what only the cache has, used longest ago first
	closed         bool           // nothing is kept any more
	cachedCount    uint64         // how often something came to the cache
	takenPages     uint64         // how many pages were ever taken
	droppedPages   []effects.Page // pages that the store has given up while somebody still held them
	enginePages    []effects.Page // pages of the engine, whatever the store has
	withdrawnCount int            // pages that the engine was to be told of
	reader         follower
}

// init gives the shelf its memory.
func (s *storeModel) init(pages uint32) {
	s.pages = pages
	s.pools = memory.New(1, 1, prng.Shuffle{}, memory.PoolConfig{Pages: pages})
	s.pool = s.pools.Pool(0)
}

func (s *storeModel) env() *env.Env {
	return &env.Env{Now: s.now, Out: &s.out, Pools: &s.pools, Pool: s.pool, Timers: &s.timers}
}

func (s *storeModel) claims() (n int) {
	for _, b := range s.model {
		n += len(b.claims)
	}
	return n
}

// extraClaims counts a class's claims on what had one already.
func (s *storeModel) extraClaims(class int) (n int) {
	for _, b := range s.model {
		for _, c := range b.claims {
			if c.beyond && c.class == class {
				n++
			}
		}
	}
	return n
}

// drawKey draws a key of which the model believes something.
func (s *storeModel) drawKey(t *rapid.T, fits func(*keyModel) bool) (string, *keyModel) {
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

func (s *storeModel) find(key string) Entry { return s.store.Find(sameHash, []byte(key)) }

// applyRetention is the rule for what goes when nothing keeps it, or is the cache's from now on.
func (s *storeModel) applyRetention(key string, b *keyModel) {
	switch {
	case b.pins > 0 || len(b.claims) > 0 || b.page.Generation == 0 || slices.Contains(s.cached, key):
	case b.engineKept && !b.withdrawing:
	case s.cache && !s.closed && b.holds == 0 && !b.engineKept:
		s.cached = append(s.cached, key)
		s.cachedCount++
	default:
		for range b.holds {
			s.droppedPages = append(s.droppedPages, b.page)
		}
		if b.withdrawing {
			s.withdrawnCount++
		}
		b.page, b.holds, b.engineKept, b.withdrawing = effects.Page{}, 0, false, false
	}
}

// uncache is the rule for what is not the cache's any more.
func (s *storeModel) uncache(key string) {
	s.cached = slices.DeleteFunc(s.cached, func(k string) bool { return k == key })
}

// makeRoom makes room for n pages, by the rule and by the store; the youngest stay chunks of the cache stay.
func (s *storeModel) makeRoom(t *rapid.T, n, stay uint32) bool {
	free, spare := s.pool.FreePages(), uint32(len(s.cached))
	want := free+spare-stay >= n || free >= n
	for ; want && free < n; free++ {
		s.model[s.cached[0]].page = effects.Page{}
		s.cached = s.cached[1:]
	}
	if got := s.store.MakeRoom(s.env(), s.pool, n, stay); got != want || s.pool.FreePages() != free {
		t.Fatalf("room for %d: %v with %d free; want %v with %d", n, got, s.pool.FreePages(), want, free)
	}
	return want
}

func (s *storeModel) claim(t *rapid.T, key string, b *keyModel) {
	request := rapid.Uint64Range(0, 2).Draw(t, "request")
	var earlier claimModel
	var told bool
	if request != 0 {
		// Told twice, a request has one claim, from the second time on.
		if i := slices.IndexFunc(b.claims, func(c claimModel) bool { return c.request == request }); i >= 0 {
			earlier, told = b.claims[i], true
			b.claims = slices.Delete(b.claims, i, i+1)
		}
	}
	class := rapid.IntRange(0, classes-1).Draw(t, "class")
	beyond := len(b.claims) > 0
	want := told || !beyond || s.extraClaims(class) < claimsMax-s.extraClaims(0)-s.extraClaims(1)
	if got := s.store.ClaimEntry(s.find(key), class, request, s.env()); got != want {
		t.Fatalf("claim on %s: %v with %d of %d claims beyond the first", key, got, s.extraClaims(class), claimsMax)
	}
	if want {
		s.uncache(key)
		delete(s.lapsed, request)
		if told {
			class, beyond = earlier.class, earlier.beyond
		}
		b.claims = append(b.claims, claimModel{request, s.now.Add(ttl), class, beyond})
	}
}

// useClaim is the rule for whose claim a reader ends.
func (b *keyModel) useClaim(request uint64) {
	if request == 0 {
		return
	}
	at := slices.IndexFunc(b.claims, func(c claimModel) bool { return c.request == request })
	if at < 0 {
		at = slices.IndexFunc(b.claims, func(c claimModel) bool { return c.request == 0 })
	}
	if at >= 0 {
		b.claims = slices.Delete(b.claims, at, at+1)
	}
}

func (s *storeModel) pin(k string, b *keyModel, request uint64) {
	s.store.PinEntry(s.find(k), request, s.env())
	s.uncache(k)
	b.useClaim(request)
	b.pins++
}

// Whatever fills begin and end, claims come, expire and are given up, and readers do:
// no key is readable before its page is whole, a ready page stays as long as somebody
// expects or reads it and is given back when nobody does, and keys of one hash are
// told apart (M7).
func TestStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &storeModel{
			timers: kernel.NewTimers(64), now: effects.Time(effects.Second), cache: rapid.Bool().Draw(t, "cache"),
			reader: follower{keys: map[string]bool{}}, lapsed: map[uint64]effects.Time{},
			model: map[string]*keyModel{"m@1@0@a@half": {}, "m@1@0@b@half": {}, "m@1@0@A@half": {}, "": {}},
		}
		s.init(rapid.Uint32Range(2, pagesMax).Draw(t, "pages"))
		cfg := small
		if s.cache {
			cfg.Retention = Cache
		}
		cfg.Journal = rapid.IntRange(1, 6).Draw(t, "journal")
		s.store = New(cfg)
		all := func(*keyModel) bool { return true }
		filling := func(b *keyModel) bool { return b.fills > 0 }
		ready := func(b *keyModel) bool { return b.page.Generation != 0 }
		t.Repeat(map[string]func(*rapid.T){
			"fill": func(t *rapid.T) {
				k, b := s.drawKey(t, all)
				if !b.isKnown() && !s.store.HasRoom(1) {
					t.Skip("full")
				}
				s.store.BeginFill(sameHash, []byte(k))
				b.fills++
			},
			"land": func(t *rapid.T) {
				k, b := s.drawKey(t, filling)
				if !s.makeRoom(t, 1, 0) {
					t.Skip("no page")
				}
				s.takenPages++
				page := s.pool.TakePages(1, nil)[0]
				took := s.store.EndFill(s.find(k), page, true)
				if took == ready(b) {
					t.Fatalf("%s was ready: %v; its new page was taken: %v", k, ready(b), took)
				}
				if took {
					b.page = page
				} else {
					s.pool.DropRef(page)
				}
				b.fills--
				s.claim(t, k, b)
				s.store.DropUnused(s.find(k), s.env())
				s.applyRetention(k, b)
			},
			"lose": func(t *rapid.T) {
				k, b := s.drawKey(t, filling)
				if s.store.EndFill(s.find(k), effects.Page{}, false) {
					t.Fatal("a fill that came to nothing gave a page")
				}
				s.store.DropUnused(s.find(k), s.env())
				b.fills--
				s.applyRetention(k, b)
			},
			"trust": func(t *rapid.T) {
				k, b := s.drawKey(t, filling)
				if !s.makeRoom(t, 1, 0) {
					t.Skip("no page")
				}
				s.takenPages++
				page := s.pool.TakePages(1, nil)[0]
				if s.store.TrustFill(s.find(k), page) == ready(b) {
					t.Fatalf("%s was ready: %v, and was trusted all the same, or not", k, ready(b))
				}
				if ready(b) {
					s.pool.DropRef(page)
					return
				}
				b.page = page
				s.claim(t, k, b)
				s.store.DropUnused(s.find(k), s.env())
				s.applyRetention(k, b)
			},
			"claim": func(t *rapid.T) {
				k, b := s.drawKey(t, ready)
				s.claim(t, k, b)
			},
			"pin": func(t *rapid.T) {
				k, b := s.drawKey(t, ready)
				s.pin(k, b, rapid.Uint64Range(0, 2).Draw(t, "reader"))
			},
			"unpin": func(t *rapid.T) {
				k, b := s.drawKey(t, func(b *keyModel) bool { return b.pins > 0 })
				s.store.UnpinEntry(s.find(k), s.env())
				b.pins--
				s.applyRetention(k, b)
			},
			"abandon": func(t *rapid.T) {
				request := rapid.Uint64Range(0, 2).Draw(t, "request")
				s.endClaimsBy(t, func(c claimModel) bool { return c.request == request }, func() int {
					return s.endClaims(func(of uint64) bool { return of == request })
				})
			},
			"wait": func(t *rapid.T) {
				s.now = s.now.Add(effects.Duration(rapid.Int64Range(0, int64(ttl)).Draw(t, "ns")))
				over := func(c claimModel) bool {
					if c.ends <= s.now {
						s.lapsed[c.request] = s.now.Add(ttl)
					}
					return c.ends <= s.now
				}
				s.endClaimsBy(t, over, func() (expired int) {
					for r, ok := s.timers.Pop(s.now); ok; r, ok = s.timers.Pop(s.now) {
						expired += int(s.store.expireClaims(r.Subject, s.env()))
					}
					return expired
				})
			},
			"read": func(t *rapid.T) { // to the end: nobody expects it any more
				k, b := s.drawKey(t, ready)
				held := rapid.Bool().Draw(t, "held")
				for request := range uint64(3) {
					for ended := true; ended; {
						before := len(b.claims)
						s.pin(k, b, request)
						ended = len(b.claims) < before
					}
				}
				if held {
					s.pool.HoldPage(b.page)
					b.holds++
				}
				for b.pins > 0 {
					s.store.UnpinEntry(s.find(k), s.env())
					b.pins--
				}
				s.applyRetention(k, b)
			},
			"room": func(t *rapid.T) {
				stay := rapid.Uint32Range(0, uint32(len(s.cached))).Draw(t, "stay")
				s.makeRoom(t, rapid.Uint32Range(0, s.pages+1).Draw(t, "pages"), stay)
			},
			"keep": func(t *rapid.T) {
				k, b := s.drawKey(t, all)
				if !b.isKnown() && !s.store.HasRoom(1) || !s.makeRoom(t, 1, 0) {
					t.Skip("full")
				}
				s.takenPages++
				page := s.pool.TakePages(1, nil)[0]
				s.enginePages = append(s.enginePages, page)
				had := ready(b)
				if _, took := s.store.KeepEnginePage(s.env(), sameHash, []byte(k), page); took == had {
					t.Fatalf("%s was ready: %v; the engine's page was taken: %v", k, had, took)
				}
				if !had {
					b.page, b.engineKept = page, true
				}
			},
			"withdraw": func(t *rapid.T) {
				k, b := s.drawKey(t, func(b *keyModel) bool { return b.engineKept && !b.withdrawing })
				used := b.pins > 0 || len(b.claims) > 0
				if s.store.WithdrawPage(s.find(k), s.env()) == used || s.store.IsWithdrawing(s.find(k)) != used {
					t.Fatalf("%s is withdrawn with %d pins and %d claims", k, b.pins, len(b.claims))
				}
				b.withdrawing = true
				if s.applyRetention(k, b); !used {
					s.withdrawnCount-- // It was told by the call.
				}
			},
			"release": func(t *rapid.T) {
				if len(s.enginePages) == 0 {
					t.Skip("none")
				}
				s.pool.DropRef(s.enginePages[0])
				s.enginePages = s.enginePages[1:]
			},
			"hear": func(t *rapid.T) {
				if got := len(s.store.WithdrawnKeys()); got != s.withdrawnCount {
					t.Fatalf("the engine has %d pages back, want %d", got, s.withdrawnCount)
				}
				s.store.ClearWithdrawnKeys()
				s.withdrawnCount = 0
			},
			"follow": func(t *rapid.T) { s.reader.follow(t, s) },
			"touch": func(t *rapid.T) {
				k, _ := s.drawKey(t, all)
				there := slices.Contains(s.cached, k)
				if got := s.store.TouchEntry(s.env(), s.find(k), s.pool) == 1; got != there {
					t.Fatalf("%s is in the cache: %v; want %v", k, got, there)
				}
				if there {
					s.uncache(k)
					s.cached = append(s.cached, k)
				}
			},
			"hold": func(t *rapid.T) {
				_, b := s.drawKey(t, func(b *keyModel) bool { return b.pins > 0 })
				s.pool.HoldPage(b.page)
				b.holds++
			},
			"unhold": func(t *rapid.T) {
				if len(s.droppedPages) > 0 {
					s.pool.ReleaseHold(s.droppedPages[0])
					s.droppedPages = s.droppedPages[1:]
					return
				}
				_, b := s.drawKey(t, func(b *keyModel) bool { return b.holds > 0 })
				s.pool.ReleaseHold(b.page)
				b.holds--
			},
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
					t.Skip("not yet")
				}
				s.closed = true
				for k, b := range s.model {
					if b.engineKept && len(b.claims) == 0 && !b.withdrawing {
						b.withdrawing = true
						s.applyRetention(k, b)
					}
					b.withdrawing = b.engineKept
				}
				s.endClaimsBy(t, func(claimModel) bool { return true }, func() int {
					before := s.store.CountClaims()
					s.dropAll()
					return before - s.store.CountClaims()
				})
			},
			"": s.compare,
		})
	})
}

// endClaimsBy is the rule for claims that end together; whatever ends them says how many. In which order their keys
// come to the cache is the store's affair.
func (s *storeModel) endClaimsBy(t *rapid.T, ends func(claimModel) bool, do func() int) {
	before, kept := s.claims(), slices.Clone(s.cached)
	if s.closed {
		for _, k := range s.cached {
			s.model[k].page = effects.Page{}
		}
		s.cached, kept = nil, nil
	}
	for k, b := range s.model {
		if len(b.claims) > 0 {
			b.claims = slices.DeleteFunc(b.claims, ends)
			s.applyRetention(k, b)
		}
	}
	if n := do(); n != before-s.claims() {
		t.Fatalf("%d claims ended, want %d", n, before-s.claims())
	}
	got := s.cacheOrder()
	if len(got) < len(kept) || !slices.Equal(got[:len(kept)], kept) ||
		!slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(s.cached))) {
		t.Fatalf("the cache has %v; want %v, then what else there is of %v", got, kept, s.cached)
	}
	s.cached = got
}

// cacheOrder is what the cache has, used longest ago first.
func (s *storeModel) cacheOrder() (keys []string) {
	for h := s.store.cached[s.pool.Index()].Front(); h != 0; h = s.store.entries.Next(h) {
		keys = append(keys, string(s.store.names.keyText(s.store.entries.Get(h).shape, s.store.entries.Get(h).digits)))
	}
	return keys
}

func (s *storeModel) compare(t *rapid.T) {
	entries, pages := 0, map[uint32]bool{}
	var deadlines []effects.Time
	for k, b := range s.model {
		h := s.find(k)
		if (h != 0) != b.isKnown() {
			t.Fatalf("%s is in the table: %v; want %v", k, h != 0, b.isKnown())
		}
		if h == 0 {
			continue
		}
		entries++
		if page, ok := s.store.ReadyPage(h); ok != (b.page.Generation != 0) || page != b.page {
			t.Fatalf("%s is ready: %v with %+v; want %+v", k, ok, page, b.page)
		}
		key, _, fills, pins, claims, ok := s.store.InspectAt(h.Slot())
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
	if s.store.CountEntries() != entries || s.store.CountClaims() != s.claims() {
		t.Fatalf("%d entries and %d claims; want %d and %d", s.store.CountEntries(), s.store.CountClaims(), entries, s.claims())
	}
	loose := map[uint32]bool{}
	for _, page := range slices.Concat(s.droppedPages, s.enginePages) {
		loose[page.Index] = true
	}
	for page := range pages {
		delete(loose, page)
	}
	if int(s.pool.FreePages())+len(pages)+len(loose) != int(s.pages) {
		t.Fatalf("%d pages free of %d with %d ready and %d held", s.pool.FreePages(), s.pages, len(pages), len(loose))
	}
	// Who waits for memory looks again when this moves: pages became free, or could.
	if freed := s.pools.FreedCount(); freed != s.cachedCount+s.takenPages-uint64(s.pages-s.pool.FreePages()) {
		t.Fatalf("room was made %d times; want %d to the cache, and pages of %d that are free again", freed, s.cachedCount, s.takenPages)
	}
	if got := s.cacheOrder(); !slices.Equal(got, s.cached) || int(s.store.EvictablePages(s.pool)) != len(s.cached) {
		t.Fatalf("the cache has %v, of which %d can go; want %v", got, s.store.EvictablePages(s.pool), s.cached)
	}
	for reader := range uint64(4) {
		want := false
		for request, until := range s.lapsed {
			want = want || until > s.now && (reader == 0 || request == 0 || request == reader)
		}
		if got := s.store.HasLapsed(s.now, sameHash, reader); got != want {
			t.Fatalf("request %d is told of a lapse: %v; want %v of %v at %d", reader, got, want, s.lapsed, s.now)
		}
	}
	at, ok := s.timers.NextDeadline()
	if ok != (len(deadlines) > 0) || ok && at != slices.Min(deadlines) || s.timers.Len() != min(1, len(deadlines)) {
		t.Fatalf("%d deadlines, the next at %d; want %v", s.timers.Len(), at, deadlines)
	}
}

// four is room for four of everything.
var four = Config{
	Settings: Settings{LocationsMax: 1, ClaimsMax: 8, ClaimTTL: ttl}, Seed: 1, Entries: 4, Pages: 4, Classes: 2,
}

// When the rank drains, nobody's expectation keeps a page; readers keep theirs.
// endClaims ends the claims of requests as sweeps do, and counts them.
func (s *storeModel) endClaims(of func(request uint64) bool) (ended int) {
	for slot, more := int32(0), true; more; slot++ {
		var request uint64
		var is bool
		if request, is, more = s.store.ClaimAt(slot); is && of(request) {
			s.store.EndClaimAt(slot, s.env())
			ended++
		}
	}
	return ended
}

// dropAll ends and gives up everything, as a drain does.
func (s *storeModel) dropAll() {
	s.store.StopCaching()
	s.endClaims(func(uint64) bool { return true })
	for slot := int32(0); s.store.WithdrawAt(slot, s.env()); slot++ {
	}
	for s.store.EvictFirst(s.env()) {
	}
}

func TestDropAll(t *testing.T) {
	s := &storeModel{store: New(four), timers: kernel.NewTimers(8), now: 1}
	s.init(4)
	for _, k := range []string{"read", "expected"} {
		h := s.store.BeginFill(sameHash, []byte(k))
		s.store.EndFill(h, s.pool.TakePages(1, nil)[0], true)
		s.store.ClaimEntry(h, 1, 1, s.env())
		s.store.ClaimEntry(h, 1, 2, s.env())
	}
	s.store.PinEntry(s.find("read"), 1, s.env())
	s.dropAll()
	if s.find("expected") != 0 || s.store.CountClaims() != 0 || s.timers.Len() != 0 {
		t.Errorf("a claim was left: %d, %d deadlines", s.store.CountClaims(), s.timers.Len())
	}
	if _, ok := s.store.ReadyPage(s.find("read")); !ok || s.pool.FreePages() != 3 {
		t.Errorf("the page of a reader went: %d free", s.pool.FreePages())
	}
	s.store.UnpinEntry(s.find("read"), s.env())
	if s.store.CountEntries() != 0 || s.pool.FreePages() != 4 {
		t.Errorf("%d entries and %d free pages at the end", s.store.CountEntries(), s.pool.FreePages())
	}
}

// What only our own defect can cause is found at once.
func TestStoreMisused(t *testing.T) {
	for name, misuse := range map[string]func(*storeModel, Entry){
		"a fill ends twice": func(s *storeModel, h Entry) {
			s.store.EndFill(h, effects.Page{}, false)
			s.store.EndFill(h, effects.Page{}, false)
		},
		"unpinned unread":       func(s *storeModel, h Entry) { s.store.UnpinEntry(h, s.env()) },
		"pinned before it came": func(s *storeModel, h Entry) { s.store.PinEntry(h, 0, s.env()) },
		"evicted while it is held": func(s *storeModel, h Entry) {
			s.store.cfg.Retention = Cache
			page := s.pool.TakePages(4, nil)[0]
			s.store.EndFill(h, page, true)
			s.store.DropUnused(h, s.env())
			s.pool.HoldPage(page)
			s.store.MakeRoom(s.env(), s.pool, 1, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &storeModel{store: New(four), timers: kernel.NewTimers(8), now: 1}
			s.init(4)
			h := s.store.BeginFill(sameHash, []byte("a"))
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "BUG: ") {
					t.Errorf("it went unnoticed, but for %q", text)
				}
			}()
			misuse(s, h)
		})
	}
}
