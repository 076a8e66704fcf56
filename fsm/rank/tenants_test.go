package rank

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

const tenantA, tenantB = effects.Tenant(0xAAAAAAAAAAAAAAAA), effects.Tenant(0xB)

// keysOfTenant are keys of a tenant.
func keysOfTenant(tenant effects.Tenant, names ...string) (list [][]byte) {
	for _, name := range names {
		list = append(list, protocol.AppendTenant(key(name), uint64(tenant)))
	}
	return list
}

// newTenantRank is a rank that receives, serves recalls and shares, and holds what its engine stored under all keys.
func newTenantRank(t *testing.T, own *effects.Tenants) *serving {
	r := newServing(t, func(c *Config) {
		c.Role, c.Tenants, c.Recalls, c.Shares, c.Retention = RoleBoth, own, true, true, store.Cache
		c.LookupAddr, c.PeerDoneAddr = effects.Addr{Host: "r", Port: 5}, effects.Addr{Host: "r", Port: 6}
	})
	return r
}

// storeOwn has the engine store a chunk under a key, and returns the outcome.
func (r *serving) storeOwn(key []byte) effects.Code {
	r.t.Helper()
	ticket := r.command(&engine.Reserve{Count: 1})
	reserved := r.outcomes[ticket]
	if reserved.Code != effects.OK {
		r.t.Fatalf("nothing is reserved: %v", reserved.Code)
	}
	size, _ := layout.PageBytes()
	pages := append([]effects.Page(nil), reserved.Pages...)
	pages[0].Length = uint32(size)
	code := r.outcomes[r.command(&engine.Store{Reserved: ticket, Keys: [][]byte{key}, Pages: pages})].Code
	if code != effects.OK {
		r.command(&engine.Release{Reserved: ticket})
	}
	return code
}

// messagesOf are the messages that name keys, each under operation numbers of its own.
func messagesOf(peer effects.Incarnation, keys [][]byte, operation uint64) map[string]struct {
	channel effects.Channel
	body    []byte
} {
	type message = struct {
		channel effects.Channel
		body    []byte
	}
	from, to := protocol.UUID(peer), protocol.UUID(key1.InboundName(peer))
	carried := make([]byte, 0)
	size, _ := layout.PageBytes()
	for range keys {
		carried = append(carried, make([]byte, size)...)
	}
	offer := protocol.PullReadyNotif{SenderID: []byte("p:1"), SenderDoneURL: []byte("10.0.0.1:9"), Keys: keys,
		Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, LastChunkTokens: 4, PullID: protocol.PullID{1}, HasExt: true,
		Ext: protocol.PullReadyExt{Version: link.VersionMax, Incarnation: from, To: to, Operation: operation + 2, Attempt: 1, Grant: 5}}
	for i := range keys {
		offer.SenderUUIDs, offer.SenderIndexes = append(offer.SenderUUIDs, protocol.UUID{1}), append(offer.SenderIndexes, int64(i))
		offer.Ext.Generations = append(offer.Ext.Generations, 1)
	}
	query := protocol.CacheQueryRequest{Keys: keys, HasExt: true, Ext: protocol.CacheQueryExt{Version: link.VersionMax,
		Incarnation: from, To: to, Operation: operation + 3, Attempt: 1}}
	get := protocol.AscendBatchedLookupAndGetMsg{LookupID: []byte("l"), ReceiverID: []byte("p:1"), Keys: keys, PullMode: true, HasExt: true,
		Ext: protocol.P2PGetExt{Version: link.VersionMax, Incarnation: from, To: to, Operation: operation + 4, Attempt: 1}}
	return map[string]message{
		"a request": {effects.ChannelAlloc, requestOf(peer, operation, func(m *protocol.AllocRequest) { m.Keys = keys })},
		"a request with chunks": {effects.ChannelAlloc, requestOf(peer, operation+1, func(m *protocol.AllocRequest) {
			m.Keys, m.Ext.Carried = keys, carried
		})},
		"an offer": {effects.ChannelAlloc, offer.Append(nil)},
		"a query":  {effects.ChannelQuery, query.Append(nil)},
		"a get":    {effects.ChannelLookup, get.Append(nil)},
	}
}

// A message that names a chunk of a tenant that its sender lacks is refused as a whole, whether the chunk is here or not,
// and changes nothing (S31). The same messages of a sender with the tenant are served.
func TestTenantIsRequired(t *testing.T) {
	const roles = effects.RolePrefill | effects.RoleDecode
	r := newTenantRank(t, nil)
	peer := effects.Incarnation{0xA0, 1}
	if code := r.storeOwn(keysOfTenant(tenantA, "1")[0]); code != effects.OK {
		t.Fatalf("the engine's chunk: %v", code)
	}
	r.sendAs(alice, roles, effects.ChannelInit, helloOf(peer))
	layers := keysOfTenant(tenantA, "1")
	layers[0] = protocol.AppendLayerKey(nil, layers[0], 1)
	forbidden := map[string]struct {
		may  *effects.Tenants
		keys [][]byte
	}{
		"the chunk that is here":      {effects.NewTenants(tenantB, 0), keysOfTenant(tenantA, "1")},
		"a chunk that is not here":    {effects.NewTenants(tenantB, 0), keysOfTenant(tenantA, "2")},
		"another tenant's chunk last": {effects.NewTenants(tenantB), append(keysOfTenant(tenantB, "1"), keysOfTenant(tenantA, "1")...)},
		"a layer":                     {effects.NewTenants(tenantB), layers},
		"a chunk of no tenant":        {effects.NewTenants(tenantA), keysOf("1")},
		"a sender without tenants":    {effects.NewTenants(), keysOf("1")},
	}
	operation := uint64(100)
	for what, x := range forbidden {
		r.tenants = x.may
		for of, m := range messagesOf(peer, x.keys, operation) {
			r.now++
			r.wantForbidden(of+" that names "+what, alice, roles, m.channel, m.body)
		}
		operation += 100
	}
	for _, may := range []*effects.Tenants{nil, effects.NewTenants(tenantA), effects.NewTenants(0, tenantA, tenantB)} {
		r.tenants = may
		for of, m := range messagesOf(peer, keysOfTenant(tenantA, "1"), operation) {
			r.now++
			if replies := r.sendAs(alice, roles, m.channel, m.body); len(replies) > 0 && codeOf(t, replies[0]) == effects.Forbidden {
				t.Errorf("%s of a sender with tenants %v is forbidden", of, may)
			}
		}
		operation += 100
	}
	// A retry of an operation that was served is judged by what its sender may now.
	r.tenants = effects.NewTenants(tenantB)
	for of, m := range messagesOf(peer, keysOfTenant(tenantA, "1"), operation-100) {
		r.now++
		r.wantForbidden(of+" again", alice, roles, m.channel, m.body)
	}
}

// A rank takes no chunk of a tenant that is not among its own, neither of a peer that may have all nor of its engine, and
// does not tell the peer which tenants are its own.
func TestOwnTenants(t *testing.T) {
	const roles = effects.RolePrefill | effects.RoleDecode
	r := newTenantRank(t, effects.NewTenants(tenantA))
	peer := effects.Incarnation{0xA0, 1}
	r.sendAs(alice, roles, effects.ChannelInit, helloOf(peer))
	for of, m := range messagesOf(peer, keysOfTenant(tenantB, "1"), 1) {
		r.now++
		r.wantForbidden(of, alice, roles, m.channel, m.body)
		if replies := r.sendAs(alice, roles, m.channel, m.body); strings.Contains(string(replies[0]), tenantA.String()) {
			t.Errorf("the refusal of %s names another tenant: %q", of, replies[0])
		}
	}
	for tenant, want := range map[effects.Tenant]effects.Code{tenantA: effects.OK, tenantB: effects.Forbidden, 0: effects.Forbidden} {
		keys := keysOfTenant(tenant, "7")
		if code := r.storeOwn(keys[0]); code != want {
			t.Errorf("a Store of tenant %v ends with %v", tenant, code)
		}
		for what, command := range map[string]effects.CommandBody{
			"get": &engine.Get{Keys: keys}, "contains": &engine.Contains{Keys: keys}, "locate": &p2p.Locate{Keys: keys},
			"bring": &p2p.Bring{Keys: keys, From: p2p.Peer{Host: "p", InitPort: 1}},
		} {
			if want != effects.Forbidden {
				continue
			}
			if d, ended := r.outcomes[r.command(command)]; !ended || d.Code != want || d.Why == nil || d.Why.Field != "Keys[0]" {
				t.Errorf("a %s of tenant %v ends with %v, %+v", what, tenant, d.Code, d.Why)
			}
		}
	}
}

// A batch of chunks of two tenants is refused, whether a peer asks for pages or offers the chunks, or the engine puts them: its
// pages count in the share of one tenant.
func TestBatchOfTwoTenants(t *testing.T) {
	const roles = effects.RolePrefill | effects.RoleDecode
	r := newTenantRank(t, nil)
	peer := effects.Incarnation{0xA0, 1}
	r.sendAs(alice, roles, effects.ChannelInit, helloOf(peer))
	keys := append(keysOfTenant(tenantA, "1"), keysOfTenant(tenantB, "3")...)
	for of, m := range messagesOf(peer, keys, 1) {
		if m.channel != effects.ChannelAlloc || of == "a request with chunks" {
			continue // A query or a get takes no pages, and this rank takes no chunks with a request.
		}
		r.now++
		replies := r.sendAs(alice, roles, m.channel, m.body)
		if len(replies) == 0 || codeOf(t, replies[0]) != effects.Malformed || !strings.Contains(string(replies[0]), "keys[1]") {
			t.Errorf("%s of two tenants is answered by %q", of, replies)
		}
	}
	put := &engine.Put{Peer: engine.Peer{Host: "r", InitPort: 1, AllocPort: 2}, Request: []byte("r"), Keys: keys, Layout: layout,
		LastChunkTokens: 4,
		Pages:           append([]effects.Page(nil), r.outcomes[r.command(&engine.Reserve{Count: 2})].Pages...)}
	for i := range put.Pages {
		put.Pages[i].Length = 32
	}
	d := r.outcomes[r.command(put)]
	if d.Code != effects.Invalid || d.Why == nil || d.Why.Field != "Keys[1]" || !strings.Contains(d.Why.Theirs, "keys of one tenant") {
		t.Errorf("a put of two tenants ends with %v, %+v", d.Code, d.Why)
	}
}

// Layers of one message are of one tenant, as the chunks of a batch are.
func TestLayersOfTwoTenants(t *testing.T) {
	r := newServing(t, func(c *Config) { c.Layers, c.BundlesMax, c.Pages = 3, 4, 12 })
	who := r.connectPeer(1)
	of := func(tenant effects.Tenant, layer uint32) []byte {
		return protocol.AppendLayerKey(nil, keysOfTenant(tenant, "a")[0], layer)
	}
	r.wantRefused(r.requestLayers(who, [][]byte{of(tenantA, 0), of(tenantB, 1)}, 7, 0), effects.Malformed)
	opened := r.grantOf(r.requestLayers(who, [][]byte{of(tenantA, 0)}, 8, 0))
	r.wantGranted(r.requestLayers(who, [][]byte{of(tenantB, 0)}, 9, 0), 1)
	r.wantGranted(r.requestLayers(who, [][]byte{of(tenantA, 1)}, 10, opened), 1)
}

// Requests of two tenants with one id are two requests: the end of one ends no Get of the other, and prevents no end of
// it. A peer that ends a request is told which chunk is awaited here only if the request is of the tenant of the chunk, and
// the engine is told only of chunks of that tenant.
func TestRequestsOfTenantsAreApart(t *testing.T) {
	const roles = effects.RolePrefill
	onlyA, onlyB, both := effects.NewTenants(tenantA), effects.NewTenants(tenantB), effects.NewTenants(tenantA, tenantB)
	a, b := keysOfTenant(tenantA, "aa0aa0aa0"), keysOfTenant(tenantB, "bbbb")
	for _, x := range []struct {
		what   string
		hello  *effects.Tenants // the tenants of the peer when it says hello
		may    *effects.Tenants // and afterwards
		sent   [][]byte
		states effects.Tenant // in its end-of-request message
		ends   bool           // the Get
		told   bool           // the peer is told the awaited key
		self   bool           // the engine is told the key that was sent
	}{
		{"a peer of the tenant", onlyA, onlyA, keysOfTenant(tenantA, "cccc"), tenantA, true, true, true},
		{"a peer that did not have the tenant before", onlyB, onlyA, keysOfTenant(tenantA, "cccc"), tenantA, true, false, true},
		{"a peer of another tenant", onlyB, onlyB, b, tenantB, false, false, false},
		{"a peer of another tenant that sent nothing", onlyB, onlyB, nil, tenantB, false, false, false},
		{"a peer that states a tenant that it lacks", onlyB, onlyB, b, tenantA, false, false, false},
		{"a peer of both that sent the other's", both, both, b, tenantA, true, true, false},
		{"a peer of both that ends the other's", both, both, b, tenantB, false, false, false},
	} {
		for _, early := range []bool{true, false} {
			r := newServing(t, nil)
			peer := effects.Incarnation{0xA0, 1}
			r.tenants = x.hello
			r.sendAs(alice, roles, effects.ChannelInit, helloOf(peer))
			r.tenants = x.may
			if x.sent != nil {
				r.sendAs(alice, roles, effects.ChannelAlloc, requestOf(peer, 1, func(m *protocol.AllocRequest) { m.Keys = x.sent }))
			}
			end := func(operation uint64) string {
				m := protocol.EndRequest{Version: link.VersionMax, Incarnation: protocol.UUID(peer), To: protocol.UUID(key1.InboundName(peer)),
					Operation: operation, Request: []byte("r"), Tenant: uint64(x.states)}
				return string(r.sendAs(alice, roles, effects.ChannelAlloc, m.Append(nil))[0])
			}
			var got effects.Ticket
			told := ""
			if early {
				got = r.get(effects.Second, a)
				told = end(9)
			} else {
				told = end(9)
				got = r.get(effects.Second, a)
			}
			r.advance(effects.Millisecond)
			told += end(10)
			if strings.Contains(told, "aa0aa0aa0") != x.told {
				t.Errorf("%s, early %v: the peer is told %q", x.what, early, told)
			}
			d, over := r.outcomes[got]
			if !x.ends {
				if over {
					t.Errorf("%s, early %v: the get has ended: %v, %v", x.what, early, d.Code, d.Why)
				}
				genuine := protocol.EndRequest{Version: link.VersionMax, Operation: 1, Request: []byte("r"), Tenant: uint64(tenantA)}
				r.tenants = nil
				r.sendAs(mallory, roles, effects.ChannelAlloc, genuine.Append(nil))
				d = r.outcomes[got]
			}
			if d.Code != effects.NotSent || d.Why == nil {
				t.Fatalf("%s: the engine is told %v, %v", x.what, d.Code, d.Why)
			}
			if why := d.Why.Reason(); strings.Contains(string(why), "cccc") != x.self || strings.Contains(string(why), "bbbb") {
				t.Errorf("%s, early %v: the engine is told %q", x.what, early, why)
			}
		}
	}
}
