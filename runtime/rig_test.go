package runtime_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/reserve"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// limit is far beyond what any step of a test takes; it only ends a test that hangs.
const limit = time.Minute

const pageBytes = 2 * 2 * 16 * 128 * 2 // of the layout below

const nodeText = `enable_pd: true
pd_role: %s
transfer_channel: %s
chunk_size: 16
pd_buffer_size: %d
pd_buffer_device: cpu
pd_shutdown_timeout_sec: 60
%sextra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}
    peer_share_pct: 100
`

func parse(tb testing.TB, role, channel string, pages int, more string) *config.Config {
	tb.Helper()
	cfg, err := config.Parse("test", fmt.Appendf(nil, nodeText, role, channel, pages*pageBytes, more), nil)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.Machine.Carries = 0 // What is small is to go over the planes, too, where a test does not say otherwise.
	return cfg
}

func senderConfig(tb testing.TB, channel string, proxy effects.Addr) *config.Config {
	more := "pd_skip_proxy_notification: true\n"
	if proxy.Host != "" {
		more = fmt.Sprintf("pd_proxy_host: %s\npd_proxy_port: %d\n", proxy.Host, proxy.Port)
	}
	return parse(tb, "sender", channel, 8, more)
}

// pullSenderConfig lends its pages and is told what was read where the system likes.
func pullSenderConfig(tb testing.TB, channel string, proxy effects.Addr) *config.Config {
	more := "pd_skip_proxy_notification: true\n"
	if proxy.Host != "" {
		more = fmt.Sprintf("pd_proxy_host: %s\npd_proxy_port: %d\n", proxy.Host, proxy.Port)
	}
	cfg := parse(tb, "sender", channel, 8, more+"pd_pull_mode: true\npd_peer_host: 127.0.0.1\npd_pull_done_port: 1\n")
	cfg.Pull.DonePorts[0] = 0
	return cfg
}

// renewingSenderConfig does so too, and takes renewals of what it lends.
func renewingSenderConfig(tb testing.TB, channel string) *config.Config {
	cfg := parse(tb, "sender", channel, 8,
		"pd_skip_proxy_notification: true\npd_pull_mode: true\npd_peer_host: 127.0.0.1\n"+
			"pd_peer_init_port: 1\npd_pull_done_port: 2\n")
	cfg.InitPorts[0], cfg.Pull.DonePorts[0] = 0, 0
	return cfg
}

// delayedConfig keeps what it is offered until its engine fetches it, through so many pages of staging.
func delayedConfig(tb testing.TB, channel string, staging uint32) *config.Config {
	cfg := receiverConfig(tb, channel, nil)
	cfg.Pull.Enabled, cfg.Pull.Delay, cfg.StagingPages = true, true, staging
	return cfg
}

// receiverConfig listens where the system likes; at says on which ports instead.
func receiverConfig(tb testing.TB, channel string, at *runtime.Peer) *config.Config {
	cfg := parse(tb, "receiver", channel, 8, "pd_peer_host: 127.0.0.1\npd_peer_init_port: 1\npd_peer_alloc_port: 2\n")
	cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
	if at != nil {
		cfg.InitPorts[0], cfg.AllocPorts[0] = at.InitPort, at.AllocPort
	}
	return cfg
}

func open(tb testing.TB, cfg *config.Config, more ...runtime.Option) *runtime.Node {
	tb.Helper()
	return openRank(tb, cfg, 0, more...)
}

// openRank opens one rank of a configuration, as a program does that has all of them.
func openRank(tb testing.TB, cfg *config.Config, rank int, more ...runtime.Option) *runtime.Node {
	tb.Helper()
	n, err := tryOpenRank(tb, cfg, rank, more...)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func tryOpenRank(tb testing.TB, cfg *config.Config, rank int, more ...runtime.Option) (*runtime.Node, error) {
	tb.Helper()
	at, ok := cfg.TCPEndpoint(rank)
	if !ok {
		tb.Fatalf("rank %d has no port for the tcp plane", rank)
	}
	more = append([]runtime.Option{runtime.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))}, more...)
	options := append(more, runtime.WithRank(rank),
		runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, shm.Open),
		runtime.WithPlane(tcp.Name, tcp.Config{Host: at.Host, Port: at.Port}.Open))
	if t, ok := tb.(*testing.T); ok { // Benchmarks measure nodes alone.
		options, cfg = append(options, audit(t, true)), recorded(t, cfg)
	}
	return runtime.Open(tb.Context(), cfg, options...)
}

func mustClose(tb testing.TB, n *runtime.Node) {
	tb.Helper()
	if err := n.Close(within(tb)); err != nil {
		tb.Errorf("close: %v", err)
	}
}

// within is a context that ends a hanging test; unlike a test's own, it stands in clean-up too.
func within(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	tb.Cleanup(cancel)
	return ctx
}

func peerOf(n *runtime.Node) runtime.Peer {
	var p runtime.Peer
	for _, s := range n.Servers() {
		p.Host = s.Addr.Host
		switch s.Channel {
		case effects.ChannelInit:
			p.InitPort = s.Addr.Port
		case effects.ChannelAlloc:
			p.AllocPort = s.Addr.Port
		case effects.ChannelProxy, effects.ChannelDone:
		}
	}
	return p
}

// reservedPeer is where a receiver of this test may listen, also a second time.
func reservedPeer(tb testing.TB) runtime.Peer {
	tb.Helper()
	var ports [2]uint16
	for i := range ports {
		p, err := reserve.Open("127.0.0.1")
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = p.Close() })
		ports[i] = p.Addr().Port
	}
	return runtime.Peer{Host: "127.0.0.1", InitPort: ports[0], AllocPort: ports[1]}
}

func keysOf(name string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s@1@0@1%x@bfloat16", name, i)
	}
	return keys
}

// fill gives each page content that follows from its key.
func fill(tb testing.TB, p *runtime.Pages, keys []string) {
	tb.Helper()
	for i, key := range keys {
		b, err := p.Bytes(i)
		if err != nil {
			tb.Fatal(err)
		}
		contentOf(b, key)
	}
}

func contentOf(b []byte, key string) {
	for round := byte(0); len(b) > 0; round++ {
		n := min(len(b), len(key))
		for j := range n {
			b[j] = key[j] + round
		}
		b = b[n:]
	}
}

// isContent says whether a chunk has what fill gave its key.
func isContent(b []byte, key string) bool {
	for round := byte(0); len(b) > 0; round++ {
		n := min(len(b), len(key))
		for j := range n {
			if b[j] != key[j]+round {
				return false
			}
		}
		b = b[n:]
	}
	return true
}

// wantContent checks pages against their keys, the last with lastBytes bytes.
func wantContent(tb testing.TB, p *runtime.Pages, keys []string, lastBytes int) {
	tb.Helper()
	if p.Len() != len(keys) {
		tb.Fatalf("%d pages, want %d", p.Len(), len(keys))
	}
	for i, key := range keys {
		b, err := p.Bytes(i)
		if err != nil {
			tb.Fatal(err)
		}
		want := pageBytes
		if i == len(keys)-1 {
			want = lastBytes
		}
		if len(b) != want {
			tb.Fatalf("chunk %d has %d bytes, want %d", i, len(b), want)
		}
		if !isContent(b, key) {
			tb.Fatalf("chunk %d has wrong bytes", i)
		}
	}
}

func mustReserve(tb testing.TB, n *runtime.Node, count int) *runtime.Pages {
	tb.Helper()
	p, err := n.Sender().Reserve(within(tb), count)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func mustRelease(tb testing.TB, p *runtime.Pages) {
	tb.Helper()
	if err := p.Release(within(tb)); err != nil {
		tb.Errorf("release: %v", err)
	}
}

// A proxy is told which requests ended.
type proxy struct {
	addr effects.Addr
	told chan string
}

func (p *proxy) Post(ev effects.Event) {
	if r, ok := ev.(*effects.Received); ok {
		var m protocol.ProxyNotif
		lim := protocol.DefaultLimits()
		if err := m.Decode(r.Body, &lim); err == nil {
			p.told <- string(m.RequestID)
		}
	}
}

func startProxy(tb testing.TB) *proxy {
	tb.Helper()
	return startProxyAt(tb, effects.Addr{Host: "127.0.0.1"})
}

func startProxyAt(tb testing.TB, at effects.Addr) *proxy {
	tb.Helper()
	p := &proxy{told: make(chan string, 64)}
	tr, err := zmq.Listen(zmq.Config{}, []control.Server{{Channel: effects.ChannelProxy, Addr: at}}, p)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := tr.Shutdown(within(tb)); err != nil {
			tb.Errorf("proxy: %v", err)
		}
	})
	p.addr = effects.Addr{Host: at.Host, Port: tr.Servers()[0].Addr.Port}
	return p
}
