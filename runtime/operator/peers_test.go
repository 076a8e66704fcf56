package operator

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// getJSON decodes the answer of a path into x.
func getJSON(t *testing.T, s *Server, path string, x any) {
	t.Helper()
	status, body := get(t, client(t, &http.Transport{}), "http://"+s.Addr().String()+path)
	if err := json.Unmarshal([]byte(body), x); err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d %s: %v", path, status, body, err)
	}
}

// openSecured opens a node of a role, with an identity of an authority.
func openSecured(t *testing.T, role string, a *authority.Authority, identity, policy string) *runtime.Node {
	t.Helper()
	dir := t.TempDir()
	if err := a.WriteFolder(dir, identity, []byte(policy)); err != nil {
		t.Fatal(err)
	}
	return openConfigured(t, role, NewTimer(), 128, "security: {mode: strict, dir: "+dir+"}")
}

// Peers are listed with their addresses and proven identities, and found by each of these.
func TestPeers(t *testing.T) {
	a, err := authority.New(time.Hour, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	const policy = `identities:
  - {name: "spiffe://fleet/prefill", roles: [prefill]}
  - {name: "spiffe://fleet/decode", roles: [decode]}
`
	from := openSecured(t, "sender", a, "spiffe://fleet/prefill", policy)
	to := openSecured(t, "receiver", a, "spiffe://fleet/decode", policy)
	got := put(t, from, to, "r", "m@1@0@a@bfloat16")
	defer func() { _ = got.Release(t.Context()) }()
	fromID, toID, at := from.Incarnation(), to.Incarnation(), peerOf(to)
	address := fmt.Sprintf("127.0.0.1:%d", at.InitPort)
	for _, c := range []struct {
		of     *runtime.Node
		want   peer
		wanted []string
	}{
		{from, peer{Direction: "to", Incarnation: hex.EncodeToString(toID[:4]), Identity: "spiffe://fleet/decode", Address: address,
			Alloc: fmt.Sprintf("127.0.0.1:%d", at.AllocPort), Plane: "shm", State: "ready"},
			[]string{address, "127.0.0.1", "spiffe://fleet/decode", hex.EncodeToString(toID[:4]), hex.EncodeToString(toID[:])}},
		{to, peer{Direction: "from", Incarnation: hex.EncodeToString(fromID[:4]), Identity: "spiffe://fleet/prefill", State: "present"},
			[]string{"spiffe://fleet/prefill", hex.EncodeToString(fromID[:4])}},
	} {
		s := serve(t, Config{Sources: []Source{Node(c.of, nil)}})
		for _, wanted := range append(c.wanted, "") {
			var answer peersAnswer
			getJSON(t, s, "/peers?peer="+wanted, &answer)
			if len(answer.Peers) != 1 || answer.Count != 1 {
				t.Fatalf("%q: the peers are %+v", wanted, answer)
			}
			x := answer.Peers[0]
			if x.HeardSeconds == nil || *x.HeardSeconds < 0 || *x.HeardSeconds > testTimeout.Seconds() ||
				(x.StateSeconds == nil) != (x.Direction == "from") {
				t.Errorf("the times of a peer are %+v", x)
			}
			x.HeardSeconds, x.StateSeconds, x.Name = nil, nil, ""
			if x != c.want {
				t.Errorf("the peer is\n%+v, want\n%+v", x, c.want)
			}
		}
		var answer peersAnswer
		if getJSON(t, s, "/peers?peer=spiffe://fleet/other", &answer); answer.Count != 0 {
			t.Errorf("a peer that is none is %+v", answer)
		}
	}
}

// A peer that cannot be reached shows the reason and the time of the next attempt, and the answer is bounded.
func TestPeersInTrouble(t *testing.T) {
	n := openNode(t, "sender", NewTimer())
	s := serve(t, Config{Sources: []Source{Node(n, nil)}})
	if err := tryPut(t, n, runtime.Peer{Host: "127.0.0.1", InitPort: 1, AllocPort: 1}, time.Second, "r", "m@1@0@a@bfloat16"); err == nil {
		t.Fatal("a put to nobody succeeded")
	}
	var answer peersAnswer
	getJSON(t, s, "/peers", &answer)
	if len(answer.Peers) != 1 {
		t.Fatalf("the peers are %+v", answer)
	}
	if p := answer.Peers[0]; p.Failures == 0 || p.Code != effects.Unreachable.String() || p.Error == "" || p.Address != "127.0.0.1:1" {
		t.Errorf("a peer that is not there is %+v", p)
	}
	const at = effects.Time(100e9)
	breaker := func(trial bool, until effects.Time) rank.Peer {
		return rank.Peer{Outbound: true, Host: "h", State: "ready", Breaker: &rank.PeerBreaker{Trial: trial, Until: until}}
	}
	many := []rank.Peer{breaker(false, at+1e9), breaker(true, at-1e9), breaker(false, at-1e9)}
	for i := range 2 * rowsMax {
		many = append(many, rank.Peer{Outbound: true, Host: "h" + strconv.Itoa(i), InitPort: 7, State: "backoff", RetryAt: at + 2e9,
			Principal: 0xAB})
	}
	many[0].Link = 9
	all := listPeers(many, at, "", peerNames{func(effects.Principal) string { return "" }, func(l effects.Link, _ effects.Time) *communicator {
		return &communicator{State: "up", Epoch: uint64(l)}
	}})
	if all.Count != len(many) || len(all.Peers) != rowsMax {
		t.Errorf("of %d peers %d are counted, and %d listed", len(many), all.Count, len(all.Peers))
	}
	if p := all.Peers; p[0].Communicator.Epoch != 9 || p[1].Communicator != nil {
		t.Errorf("the communicators are %+v, %+v", p[0].Communicator, p[1].Communicator)
	}
	if p := all.Peers; p[0].Breaker.EndsSeconds != 1 || p[1].Breaker.EndsSeconds != -1 || p[2].Breaker != nil || *p[3].RetrySeconds != 2 ||
		p[3].Identity != "ab" {
		t.Errorf("the peers are %+v", p[:4])
	}
}

// Operations are listed from the oldest, and only those that are old enough and of the peer that is asked for.
func TestOperations(t *testing.T) {
	all := []rank.Operation{
		{Kind: "put", Stage: "wire", Peer: effects.Incarnation{1}, Addr: effects.Addr{Host: "h", Port: 7}, Since: 30e9, Until: 90e9},
		{Kind: "get", Since: 10e9}, {Kind: "receive"}}
	for query, want := range map[struct {
		older time.Duration
		peer  string
	}]string{{}: "receive get put", {time.Second, ""}: "get put", {15 * time.Second, ""}: "get", {0, "h:7"}: "put", {0, "h"}: "put",
		{0, "01000000"}: "put", {0, "x"}: ""} {
		var kinds []string
		got := listOperations(slices.Clone(all), 40e9, query.older, query.peer)
		for _, x := range got.Operations {
			kinds = append(kinds, x.Kind)
		}
		if strings.Join(kinds, " ") != want || got.Count != len(kinds) {
			t.Errorf("%+v: %v, want %q", query, kinds, want)
		}
	}
	got := listOperations(slices.Clone(all), 40e9, 0, "")
	if x := got.Operations; x[0].AgeSeconds != -1 || x[1].AgeSeconds != 30 || *x[2].EndsInSeconds != 50 {
		t.Errorf("the operations are %+v", x)
	}
	n := openNode(t, "receiver", NewTimer())
	s := serve(t, Config{Sources: []Source{Node(n, nil)}})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = n.Receiver().Get(t.Context(), runtime.Get{Request: "r", Keys: []string{"m@1@0@a@bfloat16"}, Timeout: 2 * time.Second})
	}()
	var answer operationsAnswer
	for deadline := time.Now().Add(testTimeout); len(answer.Operations) == 0 && time.Now().Before(deadline); {
		getJSON(t, s, "/operations", &answer)
	}
	if x := answer.Operations; len(x) != 1 || x[0].Kind != "get" || x[0].Stage != "waiting" || x[0].Chunks != 1 || *x[0].EndsInSeconds > 2 ||
		x[0].AgeSeconds < 0 {
		t.Errorf("the operations are %+v", answer)
	}
	<-ended
}

// The ring of transfers is bounded, calls leave the puts in it, and failures that end at once count as one.
func TestTransfers(t *testing.T) {
	timer := NewTimer()
	ended := func(code effects.Code, took effects.Duration, peer byte) {
		report := effects.Report{Bytes: 10}
		report.Phases[effects.PhaseWire] = took
		e := &effects.Observe{Fact: effects.FactPutEnded, Code: code, Count: 2, Peer: effects.Incarnation{peer}, Report: &report}
		if code != effects.OK {
			e.Why = &effects.Why{Addr: effects.Addr{Host: "h", Port: 7}, Field: "reason"}
		}
		timer.transfers.recordReport(e)
	}
	ended(effects.OK, 5e6, 1)
	ended(effects.NoMemory, 3e9, 1)
	for range 1000 {
		ended(effects.BackedOff, 0, 1)
	}
	ended(effects.OK, 0, 2)
	for range 1000 {
		timer.Record("get", effects.OK, time.Second)
		timer.Record("*engine.Fetch", effects.OK, time.Second)
		timer.Record("reserve", effects.OK, time.Second)
	}
	got := timer.transfers.list(time.Now(), "")
	var puts []string
	for _, x := range got.Transfers {
		if x.Kind == "put" {
			puts = append(puts, fmt.Sprint(x.Outcome, " ", x.Times, " ", x.Seconds, " ", x.Address, " ", x.Stages))
		}
	}
	want := []string{"ok 0 0  []", "backed_off 1000 0 h:7 []", "no_memory 0 3 h:7 [{wire 3}]", "ok 0 0.005  [{wire 0.005}]"}
	if !slices.Equal(puts, want) || len(got.Transfers) != transfersMax+4 || got.Ended != 3003 || got.Transfers[0].Kind != "fetch" {
		t.Errorf("of %d transfers %d are kept, with the puts\n%s", got.Ended, len(got.Transfers), strings.Join(puts, "\n"))
	}
	if of := timer.transfers.list(time.Now(), "02000000"); len(of.Transfers) != 1 {
		t.Errorf("the transfers of a peer are %+v", of)
	}
	for range 2 * transfersMax {
		ended(effects.OK, 1e9, 3)
	}
	if of := timer.transfers.list(time.Now(), "03000000"); len(of.Transfers) != transfersMax {
		t.Errorf("%d puts are kept", len(of.Transfers))
	}
}

// A lease of a peer on shared chunks is a hold with its age, until the peer gives it up.
func TestHoldOfALease(t *testing.T) {
	open := func(more string) *runtime.Node {
		cfg, err := config.Parse("sharer", []byte(`
enable_p2p: true
p2p_host: 127.0.0.1
p2p_init_ports: [1]
p2p_lookup_ports: [2]
p2p_pull_mode: true
chunk_size: 16
pd_buffer_size: 1MiB
pd_buffer_device: cpu
`+more+`extra_config: {kvferry: {layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}}}
`), nil)
		if err != nil {
			t.Fatal(err)
		}
		cfg.InitPorts[0], cfg.Share.LookupPorts[0] = 0, 0
		n, err := runtime.Open(t.Context(), cfg, runtime.WithControl(zmq.Config{}.Opener()), runtime.WithPlane(shm.Name, shm.Open),
			runtime.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeNode(t, n) })
		return n
	}
	owner, reader := open(""), open("p2p_delay_pull: true\np2p_npu_buffer_size: 32KiB\n")
	pages, err := owner.Sharing().Reserve(t.Context(), 1)
	if err == nil {
		err = owner.Sharing().Store(t.Context(), []string{"m@1@0@a@bfloat16"}, pages, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := pages.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	from := runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(owner).InitPort}
	if kept, err := reader.Sharing().Lease(t.Context(), runtime.SharedGet{Request: "r", From: from,
		Keys: []string{"m@1@0@a@bfloat16"}}); kept != 1 || err != nil {
		t.Fatalf("%d chunks are leased: %v", kept, err)
	}
	s, id := serve(t, Config{Sources: []Source{Node(owner, nil)}}), reader.Incarnation()
	var holds holdsAnswer
	getJSON(t, s, "/holds?older=1ns", &holds)
	if len(holds.Holds) != 1 {
		t.Fatalf("the holds are %+v", holds)
	}
	if h := holds.Holds[0]; h.Kind != "shared" || h.Peer != hex.EncodeToString(id[:4]) || h.Pages != 1 || h.AgeSeconds < 0 ||
		h.AgeSeconds > testTimeout.Seconds() || h.EndsInSeconds == nil || *h.EndsInSeconds <= 0 {
		t.Errorf("the hold of a lease is %+v", h)
	}
	var peers peersAnswer
	if getJSON(t, s, "/peers", &peers); len(peers.Peers) != 1 || peers.Peers[0].PagesGranted != 1 {
		t.Errorf("the peers are %+v", peers)
	}
	var operations operationsAnswer
	getJSON(t, serve(t, Config{Sources: []Source{Node(reader, nil)}}), "/operations", &operations)
	if x := operations.Operations; len(x) != 1 || x[0].Kind != "shared get" || x[0].Stage != "loan kept" || !x[0].Delivered {
		t.Errorf("the operations of the reader are %+v", operations)
	}
	if err := reader.Receiver().Abandon("r"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(testTimeout); holds.Count > 0; {
		if getJSON(t, s, "/holds", &holds); time.Now().After(deadline) {
			t.Fatalf("a lease that was given up is still a hold: %+v", holds)
		}
	}
}
