package runtime_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
)

// Hosts are names or addresses. Their text with a port exists on the wire only: everywhere else host and port are two
// values, so that the colons of IPv6 mean nothing.
func TestPushToEachKindOfHost(t *testing.T) {
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
				testPushTo(t, h.written, h.host, h.url, channel)
			})
		}
	}
}

func testPushTo(t *testing.T, written, host, url, channel string) {
	proxy := startProxyAt(t, effects.Addr{Host: host})
	rCfg := parse(t, "receiver", channel, 8, "pd_peer_host: "+written+"\npd_peer_init_port: 1\npd_peer_alloc_port: 2\n")
	if e, _ := rCfg.InitEndpoint(0); e.String() != url {
		t.Fatalf("peers would be told %s", e)
	}
	rCfg.InitPorts[0], rCfg.AllocPorts[0] = 0, 0
	sCfg := parse(t, "sender", channel, 8, fmt.Sprintf("pd_peer_host: %s\npd_proxy_host: %s\npd_proxy_port: %d\n", written, written, proxy.addr.Port))
	if sCfg.Proxy != protocol.Endpoint(proxy.addr) || sCfg.Data.TCPHost != host {
		t.Fatalf("the proxy is at %v, the tcp plane at %q", sCfg.Proxy, sCfg.Data.TCPHost)
	}
	r, s := open(t, rCfg), open(t, sCfg)
	peer := peerOf(r)
	if peer.Host != host {
		t.Fatalf("the receiver listens at %+v", peer)
	}
	keys := keysOf("six", 3)
	pages := mustReserve(t, s, 3)
	fill(t, pages, keys)
	if res, err := s.Sender().Put(within(t), runtime.Put{Peer: peer, Request: "r6", Keys: keys, Pages: pages, Last: true}); err != nil || res.Sent != 3 {
		t.Fatalf("put: %+v, %v", res, err)
	}
	if got := <-proxy.told; got != "r6" {
		t.Errorf("the proxy was told of %q", got)
	}
	got, err := r.Receiver().Get(within(t), keys, 0)
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
