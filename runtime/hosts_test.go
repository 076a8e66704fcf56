package runtime_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
)

// Hosts are names or addresses. Their text with a port exists on the wire only: everywhere else host and port are two
// values, so that the colons of IPv6 mean nothing.
func TestEachKindOfHost(t *testing.T) {
	for _, h := range []struct{ written, host, url string }{
		{"localhost", "localhost", "localhost:1"},
		{`"::1"`, "::1", "[::1]:1"},
		{`"[::1]"`, "::1", "[::1]:1"},
	} {
		for _, channel := range []string{"shm", "tcp"} {
			t.Run(h.written+" "+channel, func(t *testing.T) {
				probe, err := net.Listen("tcp", net.JoinHostPort(h.host, "0"))
				if err != nil {
					t.Skipf("this machine has no loopback %s: %v", h.host, err)
				}
				_ = probe.Close()
				for _, pull := range []bool{false, true} {
					testHost(t, h.written, h.host, h.url, channel, pull)
				}
			})
		}
	}
}

func testHost(t *testing.T, written, host, url, channel string, pull bool) {
	mode := fmt.Sprintf("pd_peer_host: %s\npd_pull_mode: %t\n", written, pull)
	proxy := startProxyAt(t, effects.Addr{Host: host})
	rCfg := parse(t, "receiver", channel, 8, mode+"pd_peer_init_port: 1\npd_peer_alloc_port: 2\n")
	if e, _ := rCfg.InitEndpoint(0); e.String() != url {
		t.Fatalf("peers would be told %s", e)
	}
	rCfg.InitPorts[0], rCfg.AllocPorts[0] = 0, 0
	r, s := open(t, rCfg), openSenderSomewhere(t, host, func(port uint16) *config.Config {
		cfg := parse(t, "sender", channel, 8,
			mode+fmt.Sprintf("pd_pull_done_port: %d\npd_proxy_host: %s\npd_proxy_port: %d\n", port, written, proxy.addr.Port))
		if cfg.Proxy != protocol.Endpoint(proxy.addr) || cfg.Data.TCPHost != host {
			t.Fatalf("the proxy is at %v, the tcp plane at %q", cfg.Proxy, cfg.Data.TCPHost)
		}
		return cfg
	})
	peer := peerOf(r)
	if peer.Host != host {
		t.Fatalf("the receiver listens at %+v", peer)
	}
	keys := keysOf("six", 3)
	pages := mustReserve(t, s, 3)
	fill(t, pages, keys)
	if res, err := s.Sender().Put(within(t), runtime.Put{Peer: peer, Request: "r6", Keys: keys, Pages: pages,
		Last: true}); err != nil || res.Sent != 3 {
		t.Fatalf("put: %+v, %v", res, err)
	}
	if got := <-proxy.told; got != "r6" {
		t.Errorf("the proxy was told of %q", got)
	}
	got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r6", Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, got, keys, pageBytes)
	mustRelease(t, got)
	mustRelease(t, pages)
	for _, n := range []*runtime.Node{s, r} {
		wantNothingHeld(t, n)
		mustClose(t, n)
	}
}

// openSenderSomewhere opens a sender on a port that is free; whoever takes it in between only costs another try.
func openSenderSomewhere(t *testing.T, host string, with func(port uint16) *config.Config) *runtime.Node {
	t.Helper()
	for tries := 1; ; tries++ {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		port := uint16(l.Addr().(*net.TCPAddr).Port)
		_ = l.Close()
		n, err := tryOpenRank(t, with(port), 0)
		if err == nil {
			return n
		}
		var refused *control.Error
		if !errors.As(err, &refused) || refused.Code != effects.Refused || tries == 50 {
			t.Fatal(err)
		}
	}
}
