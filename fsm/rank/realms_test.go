package rank

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/protocol"
)

// What a peer of another trust domain sends is not what a Get of this node's engine is answered with, nor a reason to
// tell a peer of this domain that a chunk is here already (S32). Whichever comes first, each domain has its own chunk.
func TestStrangersChunkIsNotGot(t *testing.T) {
	keys := keysOf("a")
	for _, strangerFirst := range []bool{true, false} {
		for how, put := range map[string]func(r *serving, who effects.Incarnation) (fresh bool){
			"written": func(r *serving, who effects.Incarnation) bool {
				q, n := r.requestPages(who, keys, nil), len(r.grants)
				if len(r.replies[q].AlreadySent) > 0 {
					return false
				}
				g := r.grants[n-1]
				r.landPages(g, g.Pages)
				return true
			},
			"carried": func(r *serving, who effects.Incarnation) bool {
				q := r.requestPages(who, keys, carryingBytes(0, chunkBytes))
				return len(r.replies[q].AlreadySent) == 0
			},
		} {
			r := newServing(t, func(c *Config) {
				withCarries(c)
				c.Retention = store.Cache
			})
			name := how
			if strangerFirst {
				name += ", the stranger first"
			}
			r.realm = effects.RealmUnproven
			stranger := r.connectPeer(1)
			r.realm = 0
			peer := r.connectPeer(2)
			send := func(who effects.Incarnation) bool {
				if r.realm = 0; who == stranger {
					r.realm = effects.RealmUnproven
				}
				return put(r, who)
			}
			got := func() effects.Deliver {
				ticket := r.get(0, keys)
				d := r.outcomes[ticket]
				if d.Code == effects.OK {
					r.release(ticket)
				}
				return d
			}
			if strangerFirst {
				if send(stranger); got().Code != effects.NotFound {
					t.Errorf("%s: a Get finds the stranger's chunk", name)
				}
				if _, ok := r.rooms.Store.ReadyAt(0); ok {
					t.Errorf("%s: the stranger's chunk is listed for directories", name)
				}
			}
			if !send(peer) {
				t.Errorf("%s: the peer is told that its chunk is here already", name)
			}
			first := got()
			if first.Code != effects.OK {
				t.Fatalf("%s: the peer's chunk is not got: %v", name, first.Code)
			}
			if fresh := send(stranger); fresh == strangerFirst {
				t.Errorf("%s: the stranger's chunk is fresh: %v", name, fresh)
			}
			if again := got(); again.Pages[0] != first.Pages[0] {
				t.Errorf("%s: a Get gives page %v, and before that %v", name, again.Pages[0], first.Pages[0])
			}
			if send(peer) {
				t.Errorf("%s: the peer's chunk is not known any more", name)
			}
		}
	}
}

// Layers of a chunk that a stranger sends make no chunk whole that this node's engine gets.
func TestStrangersLayersAreNotGot(t *testing.T) {
	r := newServing(t, func(c *Config) { c.Layers, c.BundlesMax, c.Pages = 3, 4, 12 })
	r.realm = 7
	stranger := r.connectPeer(1)
	r.grantOf(r.requestLayers(stranger, layerKeys(0), 8, 0))
	g := r.grants[0]
	r.landPages(g, g.Pages)
	r.wantGranted(r.requestLayers(stranger, layerKeys(1, 2), 9, g.ID), 2)
	g = r.grants[1]
	r.landPages(g, g.Pages)
	if d := r.outcomes[r.command(&engine.Get{Request: []byte("r"), Keys: keysOf("a"), Layered: true})]; d.Code != effects.NotFound {
		t.Errorf("a Get of the stranger's layers ends with %v", d.Code)
	}
	if d := r.outcomes[r.command(&engine.Get{Keys: keysOf("a"), Layered: true, Realm: 7})]; d.Code != effects.OK {
		t.Errorf("a Get of the layers that states the stranger's domain ends with %v", d.Code)
	}
	r.realm = 0
	if q := r.requestLayers(r.connectPeer(2), layerKeys(0), 8, 0); len(r.replies[q].AlreadySent) > 0 {
		t.Error("a peer is told that the stranger's layer is here")
	}
}

// A plain sender that proves nothing is a stranger where strangers are told apart.
func TestPlainSendersChunkIsNotGot(t *testing.T) {
	for _, realm := range []effects.Realm{0, effects.RealmUnproven} {
		r := newServing(t, func(c *Config) { c.Leased, c.Bearer, c.TrustUncommitted = true, true, true })
		r.realm = realm
		r.requestPages(effects.Incarnation{}, keysOf("a"), func(m *protocol.AllocRequest) { m.RequestID = []byte("r") })
		want := effects.OK
		if realm != 0 {
			want = effects.NotFound
		}
		if d := r.outcomes[r.get(0, keysOf("a"))]; d.Code != want {
			t.Errorf("realm %d: a Get ends with %v, want %v", realm, d.Code, want)
		}
	}
}

// A peer that proved nothing is not of this node's domain after a later hello either, because others may have heard its
// names.
func TestDomainIsNotRaised(t *testing.T) {
	r := newServing(t, nil)
	peer := effects.Incarnation{0xA0, 1}
	r.realm = effects.RealmUnproven
	r.sendAs(0, 0, effects.ChannelInit, helloOf(peer))
	r.realm = 0
	r.sendAs(alice, effects.RolePrefill, effects.ChannelInit, helloOf(peer))
	if realm := r.rank.links.RealmOf(r.rank.links.ClassByID(peer)); realm != effects.RealmUnproven {
		t.Errorf("the peer is of realm %d", realm)
	}
}

// A stranger that recalls chunks or gets shared ones is lent those of its own domain.
func TestStrangerIsLentItsOwn(t *testing.T) {
	const roles = effects.RolePrefill | effects.RoleDecode
	r := newTenantRank(t, nil)
	peer := effects.Incarnation{0xA0, 1}
	if code := r.storeOwn(key("1")); code != effects.OK {
		t.Fatalf("the engine's chunk: %v", code)
	}
	for _, realm := range []effects.Realm{7, 0} {
		peer[1]++
		r.realm = realm
		r.sendAs(alice, roles, effects.ChannelInit, helloOf(peer))
		all := messagesOf(peer, keysOf("1"), 1)
		var query protocol.CacheQueryResponse
		var get protocol.AscendBatchedLookupAndGetRetMsg
		lim := protocol.DefaultLimits()
		if err := query.Decode(r.sendAs(alice, roles, effects.ChannelQuery, all["a query"].body)[0], &lim); err != nil {
			t.Fatal(err)
		}
		if err := get.Decode(r.sendAs(alice, roles, effects.ChannelLookup, all["a get"].body)[0], &lim); err != nil {
			t.Fatal(err)
		}
		want := 0
		if realm == 0 {
			want = 1
		}
		if len(query.CachedKeys) != want || int(get.HitChunks) != want {
			t.Errorf("realm %d: %d chunks are recalled and %d are got, want %d", realm, len(query.CachedKeys), get.HitChunks, want)
		}
	}
}

// An engine that states another trust domain gets the chunks that peers of that domain sent, and no others: in a Get,
// also in one that waits, in a Contains and in a Fetch.
func TestStatedDomain(t *testing.T) {
	const other effects.Realm = 7
	r := newServing(t, func(c *Config) {
		withCarries(c)
		c.Retention, c.FetchesMax, c.FetchTimeout = store.Cache, 4, effects.Second
	})
	r.realm = other
	stranger := r.connectPeer(1)
	r.realm = 0
	peer := r.connectPeer(2)
	send := func(who effects.Incarnation, name string) {
		if r.realm = 0; who == stranger {
			r.realm = other
		}
		r.wantCarried(r.requestPages(who, keysOf(name), carryingBytes(0, chunkBytes)), 1, 0)
	}
	get := func(realm effects.Realm, wait effects.Duration, name string) effects.Ticket {
		return r.command(&engine.Get{Keys: keysOf(name), Realm: realm, Wait: wait})
	}
	send(stranger, "a")
	for realm, want := range map[effects.Realm]effects.Code{other: effects.OK, 0: effects.NotFound, effects.RealmUnproven: effects.NotFound} {
		if d := r.outcomes[get(realm, 0, "a")]; d.Code != want {
			t.Errorf("a Get of realm %d ends with %v, want %v", realm, d.Code, want)
		}
		hits := uint32(0)
		if want == effects.OK {
			hits = 1
		}
		if d := r.outcomes[r.command(&engine.Contains{Keys: keysOf("a"), Realm: realm})]; d.Hits != hits {
			t.Errorf("a Contains of realm %d counts %d, want %d", realm, d.Hits, hits)
		}
		if fetch := r.command(&engine.Fetch{Keys: keysOf("a"), Realm: realm}); r.rank.IsFetching(fetch) != (want == effects.OK) {
			t.Errorf("a Fetch of realm %d has begun: %v", realm, r.rank.IsFetching(fetch))
		}
	}
	theirs, ours := get(other, effects.Second, "b"), get(0, effects.Second, "b")
	send(peer, "b")
	if _, over := r.outcomes[theirs]; over || r.outcomes[ours].Code != effects.OK {
		t.Errorf("with the own domain's chunk the Get of the other is over: %v, and that of the own ends with %v", over, r.outcomes[ours].Code)
	}
	send(stranger, "b")
	if d := r.outcomes[theirs]; len(d.Pages) != 1 || d.Pages[0] == r.outcomes[ours].Pages[0] {
		t.Errorf("the Gets of the two domains end with pages %v and %v", d.Pages, r.outcomes[ours].Pages)
	}
}

// An engine gives up the chunks of the domain that it states, and keeps those of its own.
func TestChunksOfDomainAreGivenUp(t *testing.T) {
	r := newServing(t, withCarries)
	send := func(realm effects.Realm, n byte) {
		r.realm = realm
		r.requestPages(r.connectPeer(n), keysOf("a"), func(m *protocol.AllocRequest) {
			carryingBytes(0, chunkBytes)(m)
			m.RequestID = []byte("r")
		})
	}
	send(7, 1)
	send(0, 2)
	r.command(&engine.GiveUp{Request: []byte("r"), Keys: keysOf("a"), Realm: 7})
	for realm, want := range map[effects.Realm]effects.Code{7: effects.NotFound, 0: effects.OK} {
		if d := r.outcomes[r.command(&engine.Get{Keys: keysOf("a"), Realm: realm})]; d.Code != want {
			t.Errorf("a Get of realm %d ends with %v, want %v", realm, d.Code, want)
		}
	}
}
