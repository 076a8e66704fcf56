package runtime_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// A layersOrder is what is said to a process whose node pushes or takes layers: it opens with a configuration's text,
// and takes "prefill", "has", "take", "abandon" and "idle".
type layersOrder struct {
	Text  string
	Rank  int
	Alone bool // nobody watches what the node does

	// Of prefill; Tokens of take as well.
	Request   string
	Skip      int
	Steps     []int // of how many tokens is computed at each end
	Preempt   bool  // in the last step, once
	LayerTime time.Duration
	Tokens    int
}

func (l *layersOrder) config(tb testing.TB) *config.Config {
	cfg, err := config.Parse("test", []byte(l.Text), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return cfg
}

// carryOutLayers does what the process is told. Chunks that are not as they were computed end it.
func (c *child) carryOutLayers(tb testing.TB, o *order) (w reply) {
	l := o.Layers
	switch o.Op {
	case "prefill":
		p := begin(tb, c.node, o.Peer, l.Request, o.Keys, l.Skip).reserve()
		p.layerTime = l.LayerTime
		if l.Preempt {
			p.steps(l.Steps[:len(l.Steps)-1]...)
			if err := p.compute(l.Steps[len(l.Steps)-1], 0, c.node.Layers()-1); err != nil {
				tb.Fatal(err)
			}
			p.preempt()
		}
		res, err := p.steps(l.Steps...).finish()
		w = reply{Code: runtime.CodeOf(err), Hits: res.Sent, Exposed: time.Since(p.computed)}
		p.releases()
	case "has":
		hits, err := c.node.Receiver().Contains(within(tb), o.Keys)
		w = reply{Code: runtime.CodeOf(err), Hits: hits}
	case "take":
		wantLayers(tb, c.node, l.Request, o.Keys, l.Tokens)
		w.Hits = len(o.Keys)
	case "abandon":
		w.Code = runtime.CodeOf(c.node.Receiver().Abandon(l.Request))
	case "idle":
		wantEmpty(tb, c.node)
	}
	return w
}

const rankLayersText = `enable_pd: true
use_layerwise: true
pd_role: %s
transfer_channel: %s
chunk_size: 16
pd_buffer_size: 4MiB
pd_buffer_device: cpu
pd_shutdown_timeout_sec: 60
%sextra_config:
  kvferry:
    layout: %s
    peer_share_pct: 100
`

// Each rank of a prefill is a process of its own, and so is each of the decode's. All ranks compute the same request at
// the same time, and push the layers of their own share of the heads to their counterpart. One is killed half-way then.
func TestRanksPushLayersFromTheirOwnProcesses(t *testing.T) {
	for name, layout := range map[string]string{
		"two stripes a layer": "{num_layers: 3, num_kv_heads: 2, head_size: 64, dtype: bfloat16}",
		"one stripe a layer":  "{num_layers: 4, head_size: 576, dtype: bfloat16, mla: true}",
	} {
		for _, channel := range []string{"shm", "tcp"} {
			t.Run(name+" "+channel, func(t *testing.T) { testLayersOfRanks(t, channel, layout) })
		}
	}
}

// layersOf are the keys of one rank's chunks.
func layersOf(request string, rank, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s@%d@%d@1%x@bfloat16", request, ranks, rank, i)
	}
	return keys
}

func testLayersOfRanks(t *testing.T, channel, layout string) {
	proxy := startProxy(t)
	at := [ranks]runtime.Peer{reservedPeer(t), reservedPeer(t)}
	text := func(role, more string) string { return fmt.Sprintf(rankLayersText, role, channel, more, layout) }
	decode := text("receiver", fmt.Sprintf("pd_peer_host: %s\npd_peer_init_port: [%d, %d]\npd_peer_alloc_port: [%d, %d]\n",
		at[0].Host, at[0].InitPort, at[1].InitPort, at[0].AllocPort, at[1].AllocPort))
	prefill := text("sender", fmt.Sprintf("pd_proxy_host: %s\npd_proxy_port: %d\n", proxy.addr.Host, proxy.addr.Port))
	begins := func(text string, rank int, at strike) (*process, runtime.Peer) {
		t.Helper()
		return startNode(t, order{Layers: &layersOrder{Text: text, Rank: rank}, Strike: at})
	}
	var from, to [ranks]*process
	for i := range ranks {
		var listens runtime.Peer
		if to[i], listens = begins(decode, i, strike{}); listens != at[i] {
			t.Fatalf("rank %d listens at %+v, want %+v", i, listens, at[i])
		}
		from[i], _ = begins(prefill, i, strike{})
	}
	const chunks, tokens, skipped = 5, 71, 1
	computes := func(request string, rank int, preempt bool) order {
		return order{Op: "prefill", Peer: at[rank], Keys: layersOf(request, rank, chunks), Layers: &layersOrder{
			Request: request, Skip: skipped * chunkTokens, Steps: []int{20, 40, tokens}, Preempt: preempt}}
	}
	ends := func(p *process) {
		t.Helper()
		if w := p.readReply(); w.Code != effects.OK || w.Hits != chunks-skipped {
			t.Fatalf("%d chunks have gone: %v", w.Hits, w.Code)
		}
		<-proxy.told // Each rank tells it.
	}
	has := func(rank int, keys []string, want int) {
		t.Helper()
		w := to[rank].perform(order{Op: "has", Keys: keys, Layers: &layersOrder{}})
		if w.Hits != want || w.Code != effects.OK && w.Code != effects.NotFound {
			t.Errorf("rank %d has %d chunks of %v, want %d: %v", rank, w.Hits, keys, want, w.Code)
		}
	}
	takes := func(request string, rank int) {
		t.Helper()
		to[rank].perform(order{Op: "take", Keys: layersOf(request, rank, chunks)[skipped:],
			Layers: &layersOrder{Request: request, Tokens: tokens}})
	}

	for i := range ranks {
		from[i].SendJSON(computes("both", i, i == 1))
	}
	for i := range ranks {
		ends(from[i])
	}
	for i := range ranks {
		has(i, layersOf("both", 1-i, chunks)[skipped:], 0)
		takes("both", i)
	}

	from[1].closeNode()
	// A page at a time: behind the first one there are more.
	from[1], _ = begins(prefill+"    layerwise: {batches: 1, merge_bytes: 1}\n", 1,
		strike{After: "*effects.TransferDone", At: "*effects.Transfer", Signal: syscall.SIGKILL})
	for i := range ranks {
		from[i].SendJSON(computes("killed", i, false))
	}
	ends(from[0])
	if line, ok := from[1].NextLine(nil); ok {
		t.Fatalf("it was to be killed in the middle, and said %s", line)
	}
	if status := from[1].ExitStatus(); status.Signal() != syscall.SIGKILL {
		t.Fatalf("it was to be killed in the middle, and ended with %#x", status)
	}
	takes("killed", 0)
	dead := order{Op: "abandon", Layers: &layersOrder{Request: "killed"}}
	if w := to[1].perform(dead); w.Code != effects.OK {
		t.Errorf("abandon: %v", w.Code)
	}
	from[1], _ = begins(prefill, 1, strike{})
	from[1].SendJSON(computes("again", 1, false))
	ends(from[1])
	takes("again", 1)

	if got := len(proxy.told); got > 0 {
		t.Errorf("the proxy was told %d times more", got)
	}
	for i := range ranks {
		for _, p := range []*process{from[i], to[i]} {
			p.perform(order{Op: "idle", Layers: &layersOrder{}})
			p.closeNode()
		}
	}
}

// What a receiver cannot do is said by name, by each call, and a node of both sides has no such limit.
func TestReceiverSavesNoLayers(t *testing.T) {
	r := open(t, layersReceiver(t, "shm", ""))
	defer mustClose(t, r)
	s, keys := r.Sender(), keysOf("consumer", 1)
	_, finished := s.FinishPrefill(within(t), "r")
	for what, err := range map[string]error{
		"begin":   s.BeginPrefill(runtime.Prefill{Peer: reservedPeer(t), Request: "r", Keys: keys}),
		"save":    s.SaveLayer("r", 0, chunkTokens, nil),
		"preempt": s.PreemptPrefill("r"), "finish": finished, "drop": s.DropPrefill("r"),
	} {
		for _, want := range []string{"pd_role", "receiver", "sender"} {
			if runtime.CodeOf(err) != effects.Unsupported || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", what, err, want)
			}
		}
	}
}

// Two nodes that are prefill and decode push layers to each other at the same time, each out of the pool in which the
// other one's land; one of them is preempted while it receives.
func TestBothSidesPushLayers(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			proxy := startProxy(t)
			var nodes [2]*runtime.Node
			for i := range nodes {
				cfg := parseLayers(t, "both", channel, fmt.Sprintf("pd_proxy_host: %s\npd_proxy_port: %d\n"+
					"pd_peer_host: 127.0.0.1\npd_peer_init_port: 1\npd_peer_alloc_port: 2\n", proxy.addr.Host, proxy.addr.Port), "")
				cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
				nodes[i] = open(t, cfg)
				defer mustClose(t, nodes[i])
			}
			for round := range 3 {
				var p [2]*prefiller
				ended := make(chan error, len(p))
				for i := range p {
					name := fmt.Sprintf("of%d-%d", i, round)
					p[i] = begin(t, nodes[i], peerOf(nodes[1-i]), name, keysOf(name, 5), 0).reserve()
				}
				for _, until := range []int{7, 20, 50} {
					p[0].steps(until)
					p[1].steps(until)
				}
				if round > 0 {
					p[round%2].preempt()
					p[round%2].steps(30)
				}
				for i := range p {
					p[i].steps(71)
					go func() {
						_, err := p[i].finish()
						ended <- err
					}()
				}
				for range p {
					if err := <-ended; err != nil {
						t.Fatal(err)
					}
					<-proxy.told
				}
				for i := range p {
					p[i].releases()
					wantLayers(t, nodes[1-i], p[i].request, p[i].keys, 71)
				}
			}
			wantEmpty(t, nodes[:]...)
		})
	}
}
