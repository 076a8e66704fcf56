package runtime_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

const ranks = 2

// A portLayout is how a deployment may number the ports of its ranks.
type portLayout struct {
	name             string
	host             string
	init, alloc, tcp string // a receiver's lists as a file has them; tcp may be empty
	done             string // a sender's, for pull mode
}

// ownHost is a loopback address that no other process has: fixed ports below the ephemeral ones are free there,
// whatever else runs on the machine.
func ownHost() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255)
}

func portLayouts() []portLayout {
	return []portLayout{
		{"side by side", ownHost(), "[7300, 7301]", "[7400, 7401]", "", "[7200, 7201]"},
		{"interleaved", ownHost(), "[7501, 7503]", "7502,7504", "[7511, 7512]", "7505,7507"},
		{"downwards", ownHost(), "[7609, 7601]", "[7605, 7607]", "[7602, 7600]", "[7608, 7606]"},
	}
}

// Two ranks of a prefill and two of a decode instance live in one process. Each rank talks to its counterpart alone,
// over the ports that the lists give it.
func TestRanksOfOneProcess(t *testing.T) {
	for _, mode := range []string{"push", "pull"} {
		for _, channel := range []string{"shm", "tcp", "auto"} {
			for _, l := range portLayouts() {
				t.Run(mode+" "+channel+" "+l.name, func(t *testing.T) { testRanks(t, mode == "pull", channel, l) })
			}
		}
	}
}

func testRanks(t *testing.T, pull bool, channel string, l portLayout) {
	proxy := startProxyAt(t, effects.Addr{Host: l.host})
	mode := fmt.Sprintf("pd_peer_host: %s\npd_pull_mode: %t\n", l.host, pull)
	sCfg := parse(t, "sender", channel, 8,
		mode+fmt.Sprintf("pd_pull_done_port: %s\npd_proxy_host: %s\npd_proxy_port: %d\n", l.done, l.host, proxy.addr.Port))
	rCfg := l.receiver(t, channel, mode)
	var senders, receivers [ranks]*runtime.Node
	for i := range ranks {
		receivers[i], senders[i] = openRank(t, rCfg, i), openRank(t, sCfg, i)
		wantBound(t, receivers[i], rCfg, i)
	}

	t.Log("# all ranks push their share of one request at the same time")
	var pages [ranks]*runtime.Pages
	ended := make(chan error, ranks)
	for i := range ranks {
		pages[i] = mustReserve(t, senders[i], 3)
		fill(t, pages[i], rankKeys(i))
		put := runtime.Put{Peer: peerOf(receivers[i]), Request: "r1", Keys: rankKeys(i), Pages: pages[i], Last: true}
		go func() {
			_, err := senders[i].Sender().Put(within(t), put)
			ended <- err
		}()
	}
	for range ranks {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	for range ranks { // The proxy waits for one word of each.
		if got := <-proxy.told; got != "r1" {
			t.Errorf("the proxy was told of %q", got)
		}
	}

	t.Log("# each rank has its own chunks, and nothing of the other")
	for i := range ranks {
		if hits, err := receivers[i].Receiver().Contains(within(t), rankKeys(1-i)); err != nil || hits != 0 {
			t.Errorf("rank %d has %d chunks of rank %d (%v)", i, hits, 1-i, err)
		}
		got, err := receivers[i].Receiver().Get(within(t), runtime.Get{Request: "r1", Keys: rankKeys(i)})
		if err != nil {
			t.Fatal(err)
		}
		wantContent(t, got, rankKeys(i), pageBytes)
		mustRelease(t, got)
		mustRelease(t, pages[i])
	}

	t.Log("# one rank ends, the other goes on")
	mustClose(t, senders[0])
	mustClose(t, receivers[0])
	again := mustReserve(t, senders[1], 1)
	key := keysOf("alone", 1)
	fill(t, again, key)
	if res, err := senders[1].Sender().Put(within(t), runtime.Put{Peer: peerOf(receivers[1]), Request: "r2", Keys: key,
		Pages: again, Last: true}); err != nil || res.Sent != 1 {
		t.Errorf("put: %+v, %v", res, err)
	}
	mustRelease(t, again)
	for _, n := range []*runtime.Node{senders[1], receivers[1]} {
		wantNothingHeld(t, n)
		mustClose(t, n)
	}
}

// rankKeys are LMCache's: model, world size, rank, hash, dtype.
func rankKeys(rank int) []string {
	keys := make([]string, 3)
	for i := range keys {
		keys[i] = fmt.Sprintf("m@%d@%d@1%x@bfloat16", ranks, rank, i)
	}
	return keys
}

// receiver is the configuration of all ranks of a decode instance.
func (l portLayout) receiver(t *testing.T, channel, mode string) *config.Config {
	t.Helper()
	more := mode + fmt.Sprintf("pd_peer_init_port: %s\npd_peer_alloc_port: %s\n", l.init, l.alloc)
	text := fmt.Sprintf(nodeText, "receiver", channel, 8*pageBytes, more)
	if l.tcp != "" {
		text += "    data: {tcp_port: " + l.tcp + "}\n" // Below extra_config.kvferry, which ends the text.
	}
	cfg, err := config.Parse("test", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// wantBound checks that a rank listens where the lists say.
func wantBound(t *testing.T, n *runtime.Node, cfg *config.Config, rank int) {
	t.Helper()
	hello, _ := cfg.InitEndpoint(rank)
	alloc, _ := cfg.AllocEndpoint(rank)
	if got := peerOf(n); got.Host != hello.Host || got.InitPort != hello.Port || got.AllocPort != alloc.Port {
		t.Errorf("rank %d listens at %+v, want %v and %v", rank, got, hello, alloc)
	}
	if cfg.Channel.String() == shm.Name {
		return
	}
	if at, _ := cfg.TCPEndpoint(rank); at.Port != 0 {
		c, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Errorf("rank %d has no tcp plane at %v: %v", rank, at, err)
			return
		}
		_ = c.Close()
	}
}

// A rank that the lists do not reach is refused when it opens.
func TestRankWithoutPortsIsRefused(t *testing.T) {
	cfg := portLayouts()[0].receiver(t, "shm", "pd_peer_host: 127.0.0.1\n")
	n, err := runtime.Open(t.Context(), cfg, runtime.WithRank(ranks),
		runtime.WithControl(zmq.Config{}.Opener()), runtime.WithPlane(shm.Name, shm.Open))
	if err == nil {
		mustClose(t, n)
	}
	if err == nil || !strings.Contains(err.Error(), "rank 2 has no port in pd_peer_init_port") {
		t.Errorf("got %v", err)
	}
}
