package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/secure"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// The tenants of these tests. marker is in each chunk of tenantA, and nowhere else.
var (
	tenantA = effects.TenantOfSalt("salt of a")
	tenantB = effects.TenantOfSalt("salt of b")
	marker  = []byte("only tenant A may read this chunk")
)

// tenantPolicy gives the identities named a, b and ab the tenants of their names.
var tenantPolicy = strings.NewReplacer("A", tenantA.String(), "B", tenantB.String()).Replace(`identities:
  - {name: spiffe://fleet/*/a, roles: [prefill, decode], tenants: [A]}
  - {name: spiffe://fleet/*/b, roles: [prefill, decode], tenants: [B]}
  - {name: spiffe://fleet/*/ab, roles: [prefill, decode], tenants: [A, B]}
`)

// tenantKey returns the key of a chunk of a tenant.
func tenantKey(tenant effects.Tenant, name string) string {
	return string(protocol.AppendTenant([]byte(keysOf(name, 1)[0]), uint64(tenant)))
}

// A node whose policy limits tenants leaves out the planes whose peers can read its whole pool, and does not start if none
// remains. What it cannot keep apart otherwise is refused, unless the configuration declares that pages are shared.
func TestPlanesOfTenants(t *testing.T) {
	f := newFleet(t, tenantPolicy)
	wantRefused := func(what string, cfg *config.Config, field string) {
		t.Helper()
		n, err := tryOpenRank(t, cfg, 0)
		if err == nil {
			mustClose(t, n)
			t.Errorf("%s is opened", what)
		} else if !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "security.shared_pages") {
			t.Errorf("%s: %v; want an error that names %s and the remedy", what, err, field)
		}
	}
	wantRefused("shm", f.secured(receiverConfig(t, "shm", nil), "decode/a"), "transfer_channel")
	shared := f.secured(receiverConfig(t, "shm", nil), "decode/a")
	shared.Security.SharedPages = true
	mustClose(t, open(t, shared))

	blocks := f.secured(receiverConfig(t, "tcp", nil), "decode/a")
	blocks.Register.Enabled = true
	wantRefused("registered blocks", blocks, "security.policy")

	r := open(t, f.secured(receiverConfig(t, "auto", nil), "decode/a"))
	defer mustClose(t, r)
	x := f.newIntruder("prefill/a")
	if hello := x.meet(peerOf(r)); len(hello.Ext.Planes) != 1 || string(hello.Ext.Planes[0]) != "tcp" {
		t.Errorf("the node offers the planes %q", hello.Ext.Planes)
	}
}

// lines passes on the lines of a log that contain a text.
type lines struct {
	text  string
	found chan struct{}
}

func (l lines) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(l.text)) {
		select {
		case l.found <- struct{}{}:
		default:
		}
	}
	return len(b), nil
}

// A policy that limits tenants while the node already serves its whole pool is an error that the log tells.
func TestTenantsAfterTheStart(t *testing.T) {
	f := newFleet(t, string(authority.FleetPolicy("fleet")))
	log := lines{"still serves whole pools", make(chan struct{}, 1)}
	n, err := runtime.Open(t.Context(), f.secured(receiverConfig(t, "shm", nil), "decode/1"), runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, shm.Open), runtime.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, n)
	policy := f.policy + "  - {name: spiffe://fleet/prefill/a, roles: [prefill], tenants: [" + tenantA.String() + "]}\n"
	replaceFile(t, filepath.Join(f.folderOf("decode/1"), authority.PolicyFile), policy)
	n.ReloadSecurity()
	select {
	case <-log.found:
	case <-within(t).Done():
		t.Error("the log does not tell of it")
	}
}

// An intruder is a process with a certificate of the fleet that sends what it likes.
type intruder struct {
	testing.TB
	*controltest.Endpoint
	self      effects.Incarnation
	to        protocol.UUID // what the node that it met calls itself
	operation uint64
}

func (f *fleet) newIntruder(identity string) *intruder {
	f.Helper()
	in := func(name string) string { return filepath.Join(f.folderOf(identity), name) }
	g, err := secure.Open(secure.Config{Mode: secure.Strict, Cert: in(authority.CertFile), Key: in(authority.KeyFile),
		CA: in(authority.CAFile), Policy: in(authority.PolicyFile), Recheck: time.Hour})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(g.Close)
	x := &intruder{TB: f.TB, Endpoint: controltest.Start(f.TB, zmq.Config{Guard: g}.Opener())}
	copy(x.self[:], identity+" intrudes here")
	return x
}

// ask sends a request and returns the reply, or nothing if the request is not answered.
func (x *intruder) ask(c effects.Channel, host string, port uint16, body []byte) []byte {
	x.Helper()
	opened := x.TryDial(c, effects.Addr{Host: host, Port: port})
	if opened.Code != effects.OK {
		x.Fatalf("a connection to %s: %v", c, opened.Code)
	}
	corr := x.SendRequest(opened.Conn, string(body))
	r := controltest.Await(x.TB, x.Recorder, func(e effects.Event) bool {
		switch e := e.(type) {
		case *effects.Replied:
			return e.Corr == corr
		case *effects.Unanswered:
			return e.Corr == corr
		}
		return false
	})
	x.Close(opened.Conn)
	if reply, ok := r.(*effects.Replied); ok {
		return slices.Clone(reply.Body)
	}
	return nil
}

// meet shakes hands as a sender with the layout of these tests.
func (x *intruder) meet(p runtime.Peer) protocol.HixlInitResponse {
	x.Helper()
	lim := protocol.DefaultLimits()
	var m protocol.HixlInitResponse
	q := protocol.HixlInitRequest{LocalID: []byte("intruder:1"), EngineID: []byte("intruder"), HasExt: true, Ext: protocol.HelloExt{
		ProtoMin: link.VersionMin, ProtoMax: link.VersionMax, Incarnation: protocol.UUID(x.self), PageBytes: pageBytes, Layout: testLayout,
		Planes: [][]byte{[]byte("tcp")}}}
	if err := m.Decode(x.ask(effects.ChannelInit, p.Host, p.InitPort, q.Append(nil)), &lim); err != nil || m.Ext.Code != 0 {
		x.Fatalf("the handshake: %v, %+v", err, m.Ext)
	}
	x.to = m.Ext.Incarnation
	return m
}

// testLayout is the layout of the nodes of this package's tests.
var testLayout = protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeBFloat16,
	Shape: protocol.Shape{Dims: [4]uint32{2, 2, 16, 128}, N: 4}}

// next returns a number for another operation.
func (x *intruder) next() uint64 { x.operation++; return x.operation }

func keyBytes(keys []string) (list [][]byte) {
	for _, k := range keys {
		list = append(list, []byte(k))
	}
	return list
}

func (x *intruder) allocRequest(keys ...string) *protocol.AllocRequest {
	return &protocol.AllocRequest{Keys: keyBytes(keys), Format: testLayout.Format, Shape: testLayout.Shape, Dtype: testLayout.Dtype,
		LastChunkTokens: 16, HasExt: true, Ext: protocol.AllocExt{Version: link.VersionMax, Incarnation: protocol.UUID(x.self), To: x.to,
			Operation: x.next(), Attempt: 1, PatienceNS: uint64(effects.Second), Request: []byte("request of a")}}
}

func (x *intruder) offer(keys ...string) []byte {
	m := protocol.PullReadyNotif{SenderID: []byte("intruder:1"), SenderDoneURL: []byte("127.0.0.1:9"), Keys: keyBytes(keys),
		Format: testLayout.Format, Shape: testLayout.Shape, Dtype: testLayout.Dtype, LastChunkTokens: 16, PullID: protocol.PullID{7},
		HasExt: true, Ext: protocol.PullReadyExt{Version: link.VersionMax, Incarnation: protocol.UUID(x.self), To: x.to,
			Operation: x.next(), Attempt: 1, Grant: 5}}
	for i := range keys {
		m.SenderUUIDs, m.SenderIndexes = append(m.SenderUUIDs, protocol.UUID{1}), append(m.SenderIndexes, int64(i))
		m.Ext.Generations = append(m.Ext.Generations, 1)
	}
	return m.Append(nil)
}

func (x *intruder) query(keys ...string) []byte {
	m := protocol.CacheQueryRequest{Keys: keyBytes(keys), HasExt: true, Ext: protocol.CacheQueryExt{Version: link.VersionMax,
		Incarnation: protocol.UUID(x.self), To: x.to, Operation: x.next(), Attempt: 1}}
	return m.Append(nil)
}

func (x *intruder) get(pull bool, keys ...string) []byte {
	m := protocol.AscendBatchedLookupAndGetMsg{LookupID: []byte("l"), ReceiverID: []byte("intruder:1"), Keys: keyBytes(keys), PullMode: pull,
		HasExt: true, Ext: protocol.P2PGetExt{Version: link.VersionMax, Incarnation: protocol.UUID(x.self), To: x.to, Operation: x.next(),
			Attempt: 1, PatienceNS: uint64(effects.Second)}}
	for i := range keys {
		if !pull {
			m.BufferUUIDs, m.MemIndexes = append(m.BufferUUIDs, protocol.UUID{1}), append(m.MemIndexes, int64(i))
			m.Ext.Generations, m.Ext.Grant = append(m.Ext.Generations, 1), 6
		}
	}
	return m.Append(nil)
}

// codeOfReply returns the code in a reply of any kind. NotFound stands for a plain reply that no chunk is there.
func codeOfReply(t *testing.T, body []byte) effects.Code {
	t.Helper()
	lim := protocol.DefaultLimits()
	var alloc protocol.AllocResponse
	var ack protocol.PullReadyDoneAck
	var end protocol.EndResponse
	var query protocol.CacheQueryResponse
	var get protocol.AscendBatchedLookupAndGetRetMsg
	switch {
	case query.Decode(body, &lim) == nil:
		return effects.Code(query.Ext.Code)
	case get.Decode(body, &lim) == nil:
		return effects.Code(get.Ext.Code)
	case end.Decode(body, &lim) == nil:
		return effects.Code(end.Code)
	case alloc.Decode(body, &lim) == nil:
		return effects.Code(alloc.Ext.Code)
	case ack.Decode(body, &lim) == nil:
		return effects.Code(ack.Ext.Code)
	}
	t.Fatalf("%q is no reply", body)
	return 0
}

// markPages writes the marker into every page.
func markPages(t *testing.T, p *runtime.Pages) {
	t.Helper()
	for i := range p.Len() {
		b, err := p.Bytes(i)
		if err != nil {
			t.Fatal(err)
		}
		clear(b)
		copy(b, marker)
	}
}

// putMarked puts the marked chunk of a key.
func putMarked(t *testing.T, s *runtime.Node, to runtime.Peer, request, key string) error {
	t.Helper()
	pages := mustReserve(t, s, 1)
	defer mustRelease(t, pages)
	markPages(t, pages)
	_, err := s.Sender().Put(within(t), runtime.Put{Peer: to, Request: request, Keys: []string{key}, Pages: pages})
	return err
}

// loadTenant sends chunks of a tenant from one node to the other one, without a pause, and compares what the engine of the
// other node gets. The returned function ends the load; it fails the test if a chunk was lost, changed or another
// tenant's, or if nothing was sent.
func loadTenant(t *testing.T, from, to *runtime.Node, tenant effects.Tenant) (stop func()) {
	t.Helper()
	var sent int
	transfer := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		request := fmt.Sprint("load of ", tenant, sent)
		// Both tenants send the same names, so that only the tenants distinguish the keys.
		keys, content := []string{tenantKey(tenant, fmt.Sprint("load-", sent))}, fmt.Sprint("chunk ", sent, " of ", tenant)
		pages, err := from.Sender().Reserve(ctx, 1)
		if err != nil {
			return err
		}
		page, err := pages.Bytes(0)
		copy(page, content)
		if err == nil {
			_, err = from.Sender().Put(ctx, runtime.Put{Peer: peerOf(to), Request: request, Keys: keys, Pages: pages, Last: true})
		}
		if err := errors.Join(err, pages.Release(ctx)); err != nil {
			return err
		}
		got, err := to.Receiver().Get(ctx, runtime.Get{Request: request, Keys: keys, Timeout: time.Minute})
		if err != nil {
			return err
		}
		page, err = got.Bytes(0)
		if err == nil && !bytes.HasPrefix(page, []byte(content)) {
			err = fmt.Errorf("request %q gets %.40q, want %q", request, page, content)
		}
		sent++
		return errors.Join(err, got.Release(ctx))
	}
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-end:
				ended <- nil
				return
			default:
			}
			if err := transfer(); err != nil {
				ended <- err
				return
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(end)
		if err := <-ended; err != nil || sent == 0 {
			t.Errorf("the load of %s: %v after %d chunks", tenant, err, sent)
		}
		t.Logf("%d chunks of %s were sent meanwhile", sent, tenant)
	})
	t.Cleanup(stop) // before the nodes are closed
	return stop
}

// Two tenants share a cluster of real nodes over TLS, and both use it all the time. A process with the certificate of
// tenant B, which knows the keys, request ids and names of tenant A, tries in every way to see, replace or learn of a
// chunk of A, and fails; the same message of a process of tenant A is served, so that each try would have worked.
func TestTenantsAreApart(t *testing.T) {
	f := newFleet(t, tenantPolicy)
	open := func(cfg *config.Config, identity string) *runtime.Node {
		cfg.DrainTimeout = time.Millisecond // What the intruders hold stays until it expires.
		n := open(t, f.secured(cfg, identity))
		t.Cleanup(func() { _ = n.Close(within(t)) })
		return n
	}
	receiver := open(recalledConfig(t, "tcp", ""), "decode/ab")
	puller := open(delayedConfig(t, "tcp", 2), "decode/ab")
	sharer := open(sharerConfig(t, "tcp", "", config.MonitorPorts{}), "decode/ab")
	prefill := open(senderConfig(t, "tcp", effects.Addr{}), "prefill/a")

	// What A has: a chunk that a prefill sent, and one that an instance shares.
	present, absent := tenantKey(tenantA, "chunk-of-a"), tenantKey(tenantA, "awaited-chunk")
	if err := putMarked(t, prefill, peerOf(receiver), "request of a", present); err != nil {
		t.Fatal(err)
	}
	pages, err := sharer.Sharing().Reserve(within(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	markPages(t, pages)
	if err := sharer.Sharing().Store(within(t), []string{present}, pages, 0); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, pages)

	stopLoad := []func(){loadTenant(t, prefill, receiver, tenantA), loadTenant(t, open(senderConfig(t, "tcp", effects.Addr{}), "prefill/b"),
		receiver, tenantB)}
	a, b := f.newIntruder("prefill/a"), f.newIntruder("prefill/b")
	port := func(n *runtime.Node, c effects.Channel) uint16 {
		for _, s := range n.Servers() {
			if s.Channel == c {
				return s.Addr.Port
			}
		}
		t.Fatalf("the node does not serve %v", c)
		return 0
	}
	own, other := tenantKey(tenantB, "chunk-of-a"), keysOf("chunk-of-a", 1)[0]
	carrying := func(x *intruder, key string) []byte {
		m := x.allocRequest(key)
		m.Ext.Carried = make([]byte, pageBytes)
		return m.Append(nil)
	}
	for _, way := range []struct {
		name    string
		at      *runtime.Node
		channel effects.Channel
		body    func(x *intruder) []byte
	}{
		{"an allocation for the chunk that is here", receiver, effects.ChannelAlloc,
			func(x *intruder) []byte { return x.allocRequest(present).Append(nil) }},
		{"an allocation for a chunk that is not here", receiver, effects.ChannelAlloc,
			func(x *intruder) []byte { return x.allocRequest(absent).Append(nil) }},
		{"bytes in the name of the chunk", receiver, effects.ChannelAlloc, func(x *intruder) []byte { return carrying(x, absent) }},
		{"an offer of the chunk", puller, effects.ChannelAlloc, func(x *intruder) []byte { return x.offer(present) }},
		{"a recall of the chunk", receiver, effects.ChannelQuery, func(x *intruder) []byte { return x.query(present) }},
		{"a recall of a chunk that is not here", receiver, effects.ChannelQuery, func(x *intruder) []byte { return x.query(absent) }},
		{"a get of the shared chunk", sharer, effects.ChannelLookup, func(x *intruder) []byte { return x.get(true, present) }},
		{"a get into pages of the asker", sharer, effects.ChannelLookup, func(x *intruder) []byte { return x.get(false, present) }},
		{"the chunk of no tenant", receiver, effects.ChannelQuery, func(x *intruder) []byte {
			if x == a {
				return x.query(present)
			}
			return x.query(other)
		}},
	} {
		for _, x := range []*intruder{b, a} {
			x.meet(peerOf(way.at))
			reply := x.ask(way.channel, "127.0.0.1", port(way.at, way.channel), way.body(x))
			code := codeOfReply(t, reply)
			if forbidden := code == effects.Forbidden; forbidden != (x == b) {
				t.Errorf("%s by %s: %v", way.name, x.self[:9], code)
			}
			// A refusal names the tenant, which the message itself stated, and nothing else.
			if x == b && (bytes.Contains(reply, marker) || bytes.Contains(reply, []byte("chunk-of-a"))) {
				t.Errorf("%s: the refusal is %q", way.name, reply)
			}
		}
	}

	t.Run("a chunk of B and one of A in one message", func(t *testing.T) {
		b.meet(peerOf(receiver))
		for _, keys := range [][]string{{own, present}, {present, own}} {
			if code := codeOfReply(t, b.ask(effects.ChannelQuery, "127.0.0.1", port(receiver, effects.ChannelQuery), b.query(keys...))); code ==
				effects.OK {
				t.Errorf("a recall of %q: %v", keys, code)
			}
		}
	})
	t.Run("other spellings of A's key", func(t *testing.T) {
		b.meet(peerOf(receiver))
		lim := protocol.DefaultLimits()
		plain, digest := keysOf("chunk-of-a", 1)[0], tenantA.String()
		for _, key := range []string{
			plain + "@kvft%" + digest + "@x%1", plain + "@kvft%" + digest + "@kvft%" + digest, plain + "@kvft%" + strings.ToUpper(digest),
			plain + "@kvft%" + digest[:15], plain + "@kvft%0000000000000000", plain + "@KVFT%" + digest, plain + "@kvft%" + digest + " ",
			plain + "@kvft%" + tenantB.String() + "@kvft%" + digest, plain + "@kvft%" + digest + "@kvft%" + tenantB.String(),
		} {
			reply := b.ask(effects.ChannelQuery, "127.0.0.1", port(receiver, effects.ChannelQuery), b.query(key))
			var m protocol.CacheQueryResponse
			if err := m.Decode(reply, &lim); err != nil || len(m.CachedKeys) > 0 || m.Ext.Grant != 0 {
				t.Errorf("a recall of %q is answered %+v, %v", key, m, err)
			}
		}
	})
	t.Run("in the names of A", func(t *testing.T) {
		a.meet(peerOf(receiver))
		thief := *b
		thief.self, thief.to = a.self, a.to
		for what, body := range map[string][]byte{"its own key": thief.query(own), "A's key": thief.query(present)} {
			if code := codeOfReply(t, thief.ask(effects.ChannelQuery, "127.0.0.1", port(receiver, effects.ChannelQuery), body)); code !=
				effects.Forbidden {
				t.Errorf("a recall of %s in the names of A: %v", what, code)
			}
		}
	})
	t.Run("again what was served to A", func(t *testing.T) {
		a.meet(peerOf(receiver))
		m := a.allocRequest(absent)
		if code := codeOfReply(t, a.ask(effects.ChannelAlloc, "127.0.0.1", port(receiver, effects.ChannelAlloc), m.Append(nil))); code != 0 {
			t.Fatalf("A's request: %v", code)
		}
		b.meet(peerOf(receiver))
		m.Ext.Incarnation, m.Ext.To = protocol.UUID(b.self), b.to
		if code := codeOfReply(t, b.ask(effects.ChannelAlloc, "127.0.0.1", port(receiver, effects.ChannelAlloc), m.Append(nil))); code !=
			effects.Forbidden {
			t.Errorf("the repetition by B: %v", code)
		}
	})
	t.Run("the end of A's request", func(t *testing.T) {
		b.meet(peerOf(receiver))
		m := protocol.EndRequest{Version: link.VersionMax, Incarnation: protocol.UUID(b.self), To: b.to, Operation: b.next(),
			Request: []byte("awaited by a")}
		got := make(chan error, 1)
		ctx, cancel := context.WithCancel(within(t))
		defer cancel()
		go func() {
			pages, err := receiver.Receiver().Get(ctx, runtime.Get{Request: "awaited by a", Keys: []string{absent}})
			if pages != nil {
				_ = pages.Release(context.Background())
			}
			got <- err
		}()
		for range 50 {
			if reply := b.ask(effects.ChannelAlloc, "127.0.0.1", port(receiver, effects.ChannelAlloc), m.Append(nil)); bytes.Contains(reply,
				[]byte("awaited-chunk")) || bytes.Contains(reply, []byte(tenantA.String())) {
				t.Fatalf("the sender of the end is told %q", reply)
			}
			m.Operation = b.next()
		}
		cancel()
		<-got
	})
	t.Run("an engine of B at a node of B", func(t *testing.T) {
		cfg := sharerConfig(t, "tcp", "", config.MonitorPorts{})
		cfg.Machine.Tenants = effects.NewTenants(tenantB)
		n := open(cfg, "decode/b")
		from := runtime.SharedGet{Request: "r", Keys: []string{present},
			From: runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(sharer).InitPort}}
		if _, err := n.Sharing().Get(within(t), from); runtime.CodeOf(err) !=
			effects.Forbidden {
			t.Errorf("a get: %v", err)
		}
		pages, err := n.Sharing().Reserve(within(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		defer mustRelease(t, pages)
		if err := n.Sharing().Store(within(t), []string{present}, pages, 0); runtime.CodeOf(err) != effects.Forbidden {
			t.Errorf("a store: %v", err)
		}
		if err := n.Sharing().Store(within(t), []string{own}, pages, 0); err != nil {
			t.Errorf("a store of its own: %v", err)
		}
	})
	t.Run("a put to a node without the tenant", func(t *testing.T) {
		onlyB := open(receiverConfig(t, "tcp", nil), "decode/b")
		if err := putMarked(t, prefill, peerOf(onlyB), "r", present); runtime.CodeOf(err) != effects.Forbidden {
			t.Errorf("A's chunk to a node of B: %v", err)
		}
	})
	t.Run("what A has is as it was", func(t *testing.T) {
		got, err := receiver.Receiver().Get(within(t), runtime.Get{Request: "request of a", Keys: []string{present}})
		if err != nil {
			t.Fatal(err)
		}
		defer mustRelease(t, got)
		if chunk, err := got.Bytes(0); err != nil || !bytes.HasPrefix(chunk, marker) {
			t.Errorf("A's chunk is %.40q, %v", chunk, err)
		}
	})
	for _, stop := range stopLoad {
		stop()
	}
	t.Run("the policy takes A from its owner", func(t *testing.T) {
		a.meet(peerOf(receiver))
		policy := filepath.Join(f.folderOf("decode/ab"), authority.PolicyFile)
		if err := os.WriteFile(policy, []byte(strings.ReplaceAll(tenantPolicy, tenantA.String(), tenantB.String())), 0o600); err != nil {
			t.Fatal(err)
		}
		receiver.ReloadSecurity()
		for ctx := within(t); ctx.Err() == nil; {
			// The connection may end before it is answered, because its peer's tenants have changed.
			reply := a.ask(effects.ChannelQuery, "127.0.0.1", port(receiver, effects.ChannelQuery), a.query(present))
			if len(reply) > 0 && codeOfReply(t, reply) == effects.Forbidden {
				return
			}
		}
		t.Error("A is served after the policy took its tenant away")
	})
}
