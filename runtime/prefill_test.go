package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

const (
	layers      = 3
	chunkTokens = 16
	tokenBytes  = 2 * 128 * 2 // of one layer
	layerBytes  = chunkTokens * tokenBytes
)

const layersText = `enable_pd: true
use_layerwise: true
pd_role: %s
transfer_channel: %s
chunk_size: 16
pd_buffer_size: %d
pd_buffer_device: cpu
pd_shutdown_timeout_sec: 60
%sextra_config:
  kvferry:
    layout: {num_layers: 3, num_kv_heads: 1, head_size: 128, dtype: bfloat16}
    peer_share_pct: 100
    layerwise: {%s}
`

func parseLayers(tb testing.TB, role, channel, more, layerwise string) *config.Config {
	tb.Helper()
	const chunks = 16
	text := fmt.Sprintf(layersText, role, channel, chunks*layers*layerBytes, more, layerwise)
	cfg, err := config.Parse("test", []byte(text), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return cfg
}

func layersSender(tb testing.TB, channel string, proxy effects.Addr, layerwise string) *config.Config {
	more := "pd_skip_proxy_notification: true\n"
	if proxy.Host != "" {
		more = fmt.Sprintf("pd_proxy_host: %s\npd_proxy_port: %d\n", proxy.Host, proxy.Port)
	}
	return parseLayers(tb, "sender", channel, more, layerwise)
}

func layersReceiver(tb testing.TB, channel, layerwise string) *config.Config {
	cfg := parseLayers(tb, "receiver", channel, "pd_peer_host: 127.0.0.1\npd_peer_init_port: 1\npd_peer_alloc_port: 2\n",
		layerwise)
	cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
	return cfg
}

func layerOf(key string, layer int) string { return fmt.Sprintf("%s#%d", key, layer) }

// A prefiller computes a request, step by step and layer by layer.
type prefiller struct {
	tb      testing.TB
	node    *runtime.Node
	request string
	keys    []string
	skip    int
	done    int            // tokens of the steps before
	pages   *runtime.Pages // of the whole request; nil: each step reserves its own
	handles []*runtime.Pages

	layerTime time.Duration // that a layer takes to compute at least
	computed  time.Time     // when the last one was, before it was saved
}

func begin(tb testing.TB, n *runtime.Node, peer runtime.Peer, request string, keys []string, skip int) *prefiller {
	tb.Helper()
	p := &prefiller{tb: tb, node: n, request: request, keys: keys, skip: skip, done: skip}
	if err := n.Sender().BeginPrefill(runtime.Prefill{Peer: peer, Request: request, Keys: keys, Skip: skip}); err != nil {
		tb.Fatal(err)
	}
	return p
}

// reserve has one handle for all chunks of the request.
func (p *prefiller) reserve() *prefiller {
	p.pages = mustReserve(p.tb, p.node, (len(p.keys)-p.skip/chunkTokens)*p.node.Layers())
	p.handles = append(p.handles, p.pages)
	return p
}

// step computes up to a token, in all layers or the first of them.
func (p *prefiller) step(until, layersDone int) error {
	p.tb.Helper()
	err := p.compute(until, 0, layersDone)
	p.done = until
	return err
}

func (p *prefiller) compute(until, layer, end int) error {
	p.tb.Helper()
	pages, first, layers := p.pages, p.skip/chunkTokens, p.node.Layers()
	if last := (until + chunkTokens - 1) / chunkTokens; pages == nil && last > p.done/chunkTokens {
		first = p.done / chunkTokens
		pages = mustReserve(p.tb, p.node, (last-first)*layers)
		p.handles = append(p.handles, pages)
	}
	for ; layer < end; layer++ {
		began := time.Now()
		for chunk := max(first, p.done/chunkTokens); chunk*chunkTokens < until; chunk++ {
			b, err := pages.Bytes((chunk-first)*layers + layer)
			if err != nil {
				p.tb.Fatal(err)
			}
			contentOf(b, layerOf(p.keys[chunk], layer))
		}
		// As a core that computes.
		for p.computed = time.Now(); p.computed.Sub(began) < p.layerTime; p.computed = time.Now() {
		}
		if err := p.node.Sender().SaveLayer(p.request, layer, until, pages); err != nil {
			return err
		}
	}
	return nil
}

func (p *prefiller) steps(until ...int) *prefiller {
	p.tb.Helper()
	for _, tokens := range until {
		if err := p.step(tokens, p.node.Layers()); err != nil {
			p.tb.Fatal(err)
		}
	}
	return p
}

func (p *prefiller) preempt() {
	p.tb.Helper()
	if err := p.node.Sender().PreemptPrefill(p.request); err != nil {
		p.tb.Fatal(err)
	}
	for _, h := range p.handles {
		if err := h.AwaitReturn(within(p.tb)); err != nil {
			p.tb.Fatal(err)
		}
	}
	p.done = p.skip
}

func (p *prefiller) finish() (runtime.PutResult, error) {
	return p.node.Sender().FinishPrefill(within(p.tb), p.request)
}

// arrives finishes it, and looks for all its chunks at the receiver.
func (p *prefiller) arrives(r *runtime.Node) {
	p.tb.Helper()
	res, err := p.finish()
	if want := len(p.keys) - p.skip/chunkTokens; err != nil || res.Sent != want {
		p.tb.Fatalf("%d chunks of %q have gone, want %d: %v", res.Sent, p.request, want, err)
	}
	p.releases()
	wantLayers(p.tb, r, p.request, p.keys[p.skip/chunkTokens:], p.done)
}

func (p *prefiller) releases() {
	p.tb.Helper()
	for _, h := range p.handles {
		mustRelease(p.tb, h)
	}
	p.handles = nil
}

// wantLayers gets chunks, the last of as many tokens as it has of all, and looks at each byte.
func wantLayers(tb testing.TB, r *runtime.Node, request string, keys []string, tokens int) {
	tb.Helper()
	got, err := r.Receiver().Get(within(tb), runtime.Get{Request: request, Keys: keys, Layered: true, Timeout: limit})
	if err != nil {
		tb.Fatal(err)
	}
	defer mustRelease(tb, got)
	layers, size := r.Layers(), int(r.Layout().TokenBytes())
	if got.Len() != len(keys)*layers {
		tb.Fatalf("%d pages for %d chunks", got.Len(), len(keys))
	}
	for i := range got.Len() {
		chunk, layer, want := i/layers, i%layers, chunkTokens*size
		if rest := tokens % chunkTokens; rest > 0 && chunk == len(keys)-1 {
			want = rest * size
		}
		b, err := got.Bytes(i)
		if err != nil {
			tb.Fatal(err)
		}
		if len(b) != want || !isContent(b, layerOf(keys[chunk], layer)) {
			tb.Errorf("layer %d of chunk %d, of %d bytes, is not what was computed", layer, chunk, len(b))
		}
	}
}

// wantEmpty says that neither end holds anything.
func wantEmpty(tb testing.TB, nodes ...*runtime.Node) {
	tb.Helper()
	for _, n := range nodes {
		waitFor(tb, n, "the end of all that is held", func(s rank.Stats) bool {
			return s.PagesFree == s.PagesTotal && s.Layers+s.Bundles+s.PagesPromised+s.Puts+s.Grants+s.Reserves+s.Gets == 0
		})
	}
}

// prompts are what is computed, in tokens: so many chunks, skip of which were there, by steps that end so far.
var prompts = map[string]struct {
	chunks, skip int
	steps        []int
}{
	"one step":    {3, 0, []int{48}},
	"steps":       {5, 0, []int{7, 20, 40, 71}},
	"prefix":      {5, 32, []int{48, 80}},
	"odd prefix":  {4, 37, []int{50, 63}},
	"only a tail": {1, 0, []int{5}},
	"all skipped": {2, 32, []int{32}},
}

// Prompts are computed in several steps, from the middle of a chunk on, behind a prefix, and end in the middle of one:
// every byte is right, and the proxy hears of each request once, behind it.
func TestPrefillGoesLayerByLayer(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		for _, whole := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/oneHandle=%v", channel, whole), func(t *testing.T) {
				proxy := startProxy(t)
				r := open(t, layersReceiver(t, channel, ""))
				defer mustClose(t, r)
				s := open(t, layersSender(t, channel, proxy.addr, ""))
				defer mustClose(t, s)
				for name, c := range prompts {
					p := begin(t, s, peerOf(r), name, keysOf(strings.ReplaceAll(name, " ", ""), c.chunks), c.skip)
					if whole && c.skip < 32*(c.chunks/2) {
						p.reserve()
					}
					if p.steps(c.steps...); c.skip == c.chunks*chunkTokens {
						if res, err := p.finish(); err != nil || res.Sent != 0 {
							t.Errorf("%s: %+v, %v", name, res, err)
						}
					} else {
						p.arrives(r)
					}
					if got := <-proxy.told; got != name {
						t.Errorf("the proxy was told of %q, want %q", got, name)
					}
				}
				wantEmpty(t, s, r)
			})
		}
	}
}

// A get that comes early waits for all layers.
func TestGetWaitsForLayers(t *testing.T) {
	r := open(t, layersReceiver(t, "shm", ""))
	defer mustClose(t, r)
	s := open(t, layersSender(t, "shm", effects.Addr{}, ""))
	defer mustClose(t, s)
	keys := keysOf("early", 2)
	got := make(chan struct{})
	go func() {
		defer close(got)
		wantLayers(t, r, "early", keys, 32)
	}()
	waitFor(t, r, "the get", func(s rank.Stats) bool { return s.Gets == 1 })
	p := begin(t, s, peerOf(r), "early", keys, 0).reserve()
	if err := p.compute(32, 0, layers-1); err != nil {
		t.Fatal(err)
	}
	waitFor(t, r, "the first layers", func(s rank.Stats) bool { return s.Bundles == 2 })
	if n, err := r.Receiver().Get(within(t), runtime.Get{Keys: keys, Layered: true}); runtime.CodeOf(err) !=
		effects.NotFound || n.Len() != 0 {
		t.Errorf("%d pages are given while a layer is missing, %v", n.Len(), err)
	}
	if err := p.compute(32, layers-1, layers); err != nil {
		t.Fatal(err)
	}
	if _, err := p.finish(); err != nil {
		t.Fatal(err)
	}
	<-got
	p.releases()
	wantEmpty(t, s, r)
}

// What was half sent goes again after a preemption, in another step, and what was whole does not; pages are back before
// they are written again.
func TestPreemptedPrefillGoesAgain(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			r := open(t, layersReceiver(t, channel, ""))
			defer mustClose(t, r)
			s := open(t, layersSender(t, channel, effects.Addr{}, ""))
			defer mustClose(t, s)
			keys := keysOf("preempted", 4)
			p := begin(t, s, peerOf(r), "r", keys, 0).reserve().steps(20)
			waitFor(t, r, "the first chunk", func(s rank.Stats) bool { return s.Entries == 1 && s.Bundles == 0 })
			waitFor(t, s, "the word of that", func(s rank.Stats) bool { return s.Puts == 0 })
			if err := p.step(50, 2); err != nil {
				t.Fatal(err)
			}
			sent := 0
			s.Watch(func(e effects.Event) {
				if c, ok := e.(*effects.Command); ok {
					if _, ok := c.Body.(*layerwise.Preempt); ok {
						sent = 0
					}
				}
			}, func(e effects.Effect) {
				if e, ok := e.(*effects.Transfer); ok {
					sent += len(e.Pairs)
				}
			})
			p.preempt()
			for at := range layers { // Garbage in the pages does not matter: it is computed again.
				b, _ := p.pages.Bytes(at)
				clear(b)
			}
			p.steps(33, 64).arrives(r)
			s.Stats() // Behind all that was watched.
			if want := 3 * layers; sent != want {
				t.Errorf("%d layers have gone after the preemption, want %d: the first chunk was whole", sent, want)
			}
			wantEmpty(t, s, r)
		})
	}
}

// A receiver that takes whole chunks only, and a request that is soon computed, have all layers at the end.
func TestPrefillGoesAsAWhole(t *testing.T) {
	for name, c := range map[string]struct {
		ofSender, ofReceiver string
		layerTime            time.Duration
	}{
		"whole chunks":    {"", "bundles: 0", 0},
		"quicker so":      {"link_bytes: 1GiB, batch_time: 10ms", "", time.Microsecond},
		"layers are tiny": {"link_bytes: 1MiB, batch_time: 1s", "bundles: 0", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, layersReceiver(t, "shm", c.ofReceiver))
			defer mustClose(t, r)
			s := open(t, layersSender(t, "shm", effects.Addr{}, c.ofSender))
			defer mustClose(t, s)
			keys := keysOf("whole", 5)
			if err := s.Sender().BeginPrefill(runtime.Prefill{Peer: peerOf(r), Request: "r", Keys: keys,
				LayerTime: c.layerTime}); err != nil {
				t.Fatal(err)
			}
			p := (&prefiller{tb: t, node: s, request: "r", keys: keys}).reserve().steps(20)
			var moved atomic.Bool
			s.Watch(func(effects.Event) {}, func(e effects.Effect) {
				if _, is := e.(*effects.Transfer); is {
					moved.Store(true)
				}
			})
			waitFor(t, r, "the handshake", func(s rank.Stats) bool { return s.InboundPeers > 0 })
			p.steps(40, 70)
			if s.Stats(); moved.Load() {
				t.Error("layers went before the prefill was finished")
			}
			p.arrives(r)
			wantEmpty(t, s, r)
		})
	}
}

// When a receiver is gone a SaveLayer says so, and the proxy is told once, of what is missing.
func TestSaveLayerAfterItsRequestFailed(t *testing.T) {
	proxy := startProxy(t)
	r := open(t, layersReceiver(t, "tcp", ""))
	s := open(t, layersSender(t, "tcp", proxy.addr, ""))
	defer mustClose(t, s)
	p := begin(t, s, peerOf(r), "r", keysOf("gone", 4), 0)
	p.pages = mustReserve(t, s, 3*layers) // None for the last one.
	p.handles = append(p.handles, p.pages)
	p.steps(32)
	if err := p.pages.AwaitReturn(within(t)); err != nil { // They are there, and it is known here.
		t.Fatal(err)
	}
	mustClose(t, r)
	save := func(layer int) error { return s.Sender().SaveLayer("r", layer, 56, p.pages) }
	for layer := range layers - 1 { // The second one is refused, and nobody waits to hear it.
		if err := save(layer); err != nil {
			t.Fatal(err)
		}
		if err := p.pages.AwaitReturn(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	err := save(layers - 1)
	for ctx := within(t); err == nil; err = save(layers - 1) { // Pages are back before the outcome is.
		if ctx.Err() != nil {
			t.Fatal("all layers were saved, and nobody is there")
		}
	}
	if again := save(0); runtime.CodeOf(again) != runtime.CodeOf(err) {
		t.Errorf("%v, and then %v", err, again)
	}
	if err := s.Sender().PreemptPrefill("r"); err == nil {
		t.Error("a request that failed was preempted")
	}
	res, err := p.finish()
	var e *runtime.Error
	if !errors.As(err, &e) || res.Sent != 2 || e.Count < 1 {
		t.Errorf("%+v, %v", res, err)
	}
	if got := <-proxy.told; got != "r" {
		t.Errorf("the proxy was told of %q", got)
	}
	if _, err := p.finish(); runtime.CodeOf(err) != effects.NotFound {
		t.Errorf("finished twice: %v", err)
	}
	p.releases()
	wantEmpty(t, s)
	// Nothing more is said of it: the next word is of the next request.
	if err := s.Sender().BeginPrefill(runtime.Prefill{Peer: reservedPeer(t), Request: "next", Keys: keysOf("n",
		1)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Sender().FinishPrefill(ctx, "next"); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	if got := <-proxy.told; got != "next" {
		t.Errorf("the proxy was told of %q", got)
	}
}

// SaveLayer returns also where the loop stands still.
func TestSaveLayerNeverWaits(t *testing.T) {
	r := open(t, layersReceiver(t, "shm", ""))
	defer mustClose(t, r)
	s := open(t, layersSender(t, "shm", effects.Addr{}, ""))
	defer mustClose(t, s)
	p := begin(t, s, peerOf(r), "r", keysOf("stands", 4), 0).reserve()
	goOn, standing, once := make(chan struct{}), make(chan struct{}), false
	s.Watch(func(effects.Event) {
		if !once {
			once = true
			close(standing)
			<-goOn
		}
	}, func(effects.Effect) {})
	if err := p.compute(16, 0, 1); err != nil { // Which, or something before it, the loop stops at.
		t.Fatal(err)
	}
	<-standing
	if err := p.compute(16, 1, layers); err != nil {
		t.Error(err)
	}
	p.done = 16
	p.steps(40, 64)
	close(goOn)
	p.arrives(r)
}

// A dropped request leaves nothing at either end, and the proxy is not told.
func TestDroppedPrefillLeavesNothing(t *testing.T) {
	proxy := startProxy(t)
	r := open(t, layersReceiver(t, "shm", "bundle_ttl: 500ms"))
	defer mustClose(t, r)
	s := open(t, layersSender(t, "shm", proxy.addr, ""))
	defer mustClose(t, s)
	p := begin(t, s, peerOf(r), "dropped", keysOf("dropped", 4), 0).reserve()
	if err := p.step(64, 2); err != nil {
		t.Fatal(err)
	}
	waitFor(t, r, "the layers", func(s rank.Stats) bool { return s.Bundles == 4 })
	if err := s.Sender().DropPrefill("dropped"); err != nil {
		t.Fatal(err)
	}
	p.releases()
	wantEmpty(t, s, r)
	begin(t, s, peerOf(r), "told", keysOf("told", 1), 0).reserve().steps(16).arrives(r)
	if got := <-proxy.told; got != "told" {
		t.Errorf("the proxy was told of %q", got)
	}
}

// A request without a destination keeps no page, and sends nothing.
func TestPrefillToNowhere(t *testing.T) {
	proxy := startProxy(t)
	s := open(t, layersSender(t, "shm", proxy.addr, ""))
	defer mustClose(t, s)
	p := begin(t, s, runtime.Peer{}, "r", keysOf("nowhere", 3), 16).reserve().steps(20, 40)
	p.releases()
	res, err := p.finish()
	if err != nil || res.Sent != 0 || res.Skipped != 2 {
		t.Errorf("%+v, %v", res, err)
	}
	wantEmpty(t, s)
	if got := s.Stats(); got.OutboundPeers != 0 || got.Requests != 0 {
		t.Errorf("%+v", got)
	}
}

// What does not fit is refused at once, by name, and changes nothing.
func TestLimitsOfPrefills(t *testing.T) {
	s := open(t, layersSender(t, "shm", effects.Addr{}, "runs: 1, saves: 2, chunks: 3"))
	defer mustClose(t, s)
	nobody := reservedPeer(t)
	refused := func(what string, err error, code effects.Code, field string) {
		t.Helper()
		var e *runtime.Error
		if !errors.As(err, &e) || e.Code != code || e.Field != field {
			t.Errorf("%s: got %v, want %v of %s and what helps", what, err, code, field)
		}
	}
	p := begin(t, s, nobody, "r", keysOf("limits", 3), 0).reserve()
	refused("two runs", s.Sender().BeginPrefill(runtime.Prefill{Peer: nobody, Request: "other", Keys: keysOf("o", 1)}),
		effects.TooMany, "layerwise.runs")
	refused("the same", s.Sender().BeginPrefill(runtime.Prefill{Peer: nobody, Request: "r", Keys: keysOf("o", 1)}),
		effects.Invalid, "Request")
	refused("chunks", s.Sender().BeginPrefill(runtime.Prefill{Peer: nobody, Request: "o", Keys: keysOf("o", 4)}),
		effects.TooLarge, "Keys")
	refused("saves", p.step(16, layers), effects.TooMany, "layerwise.saves")
	refused("saves again", s.Sender().SaveLayer("r", 2, 16, p.pages), effects.TooMany, "layerwise.saves")
	if err := s.Sender().PreemptPrefill("r"); err != nil {
		t.Fatal(err)
	}
	if err := p.pages.AwaitReturn(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := p.step(16, 2); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := s.Sender().DropPrefill("r"); err != nil {
		t.Fatal(err)
	}
	p.releases()
	wantEmpty(t, s)
}

// A call that makes no sense is told so, and the request goes on.
func TestArgumentsOfPrefills(t *testing.T) {
	r := open(t, layersReceiver(t, "shm", ""))
	defer mustClose(t, r)
	s := open(t, layersSender(t, "shm", effects.Addr{}, ""))
	defer mustClose(t, s)
	sender, keys := s.Sender(), keysOf("arguments", 3)
	p := begin(t, s, peerOf(r), "r", keys, 0).reserve().steps(20)
	begin(t, s, peerOf(r), "other", keysOf("other", 2), 0)
	begin(t, s, peerOf(r), "early", keysOf("early", 2), 0)
	odd, short := mustReserve(t, s, layers+1), mustReserve(t, s, layers)
	got, err := r.Receiver().Get(within(t), runtime.Get{Keys: keys[:1], Layered: true, Timeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	ordinary := open(t, senderConfig(t, "shm", effects.Addr{}))
	defer mustClose(t, ordinary)
	_, early := sender.FinishPrefill(within(t), "early")
	for what, c := range map[string]struct {
		err   error
		code  effects.Code
		field string
	}{
		"nobody's":        {sender.SaveLayer("nobody", 0, 16, p.pages), effects.NotFound, "request"},
		"layer":           {sender.SaveLayer("r", layers, 20, p.pages), effects.Invalid, "layer"},
		"negative":        {sender.SaveLayer("r", -1, 20, p.pages), effects.Invalid, "layer"},
		"fewer tokens":    {sender.SaveLayer("r", 0, 19, p.pages), effects.Invalid, "tokensDone"},
		"more than keys":  {sender.SaveLayer("r", 0, 49, p.pages), effects.Invalid, "tokensDone"},
		"no pages":        {sender.SaveLayer("r", 0, 40, nil), effects.Invalid, "p"},
		"odd pages":       {sender.SaveLayer("r", 0, 40, odd), effects.Invalid, "p.Len()"},
		"too few pages":   {sender.SaveLayer("r", 0, 48, short), effects.Invalid, "p"},
		"another's pages": {sender.SaveLayer("other", 0, 32, p.pages), effects.Invalid, "p"},
		"of a get":        {sender.SaveLayer("r", 0, 40, got), effects.Invalid, "p"},
		"half a peer": {sender.BeginPrefill(runtime.Prefill{Peer: runtime.Peer{Host: "h"}, Request: "x", Keys: keys}),
			effects.Invalid, "Peer.InitPort"},
		"no request": {sender.BeginPrefill(runtime.Prefill{Keys: keys}), effects.Invalid, "Request"},
		"no keys":    {sender.BeginPrefill(runtime.Prefill{Request: "x"}), effects.Invalid, "Keys"},
		"no key": {sender.BeginPrefill(runtime.Prefill{Request: "x", Keys: []string{"x"}}), effects.Invalid,
			"Keys[0]"},
		"skip": {sender.BeginPrefill(runtime.Prefill{Request: "x", Keys: keys, Skip: 49}), effects.Invalid, "Skip"},
		"a receiver": {r.Sender().BeginPrefill(runtime.Prefill{Request: "x", Keys: keys}), effects.Unsupported,
			"pd_role"},
		"an ordinary sender": {ordinary.Sender().BeginPrefill(runtime.Prefill{Request: "x", Keys: keys}),
			effects.Unsupported, "use_layerwise"},
		"nothing saved": {early, effects.OK, ""},
	} {
		var e *runtime.Error
		if c.code == effects.OK {
			if c.err != nil {
				t.Errorf("%s: %v", what, c.err)
			}
		} else if !errors.As(c.err, &e) || e.Code != c.code || e.Field != c.field {
			t.Errorf("%s: got %v, want %v of %s", what, c.err, c.code, c.field)
		}
	}
	// Not all layers, and a tail without pages.
	if err := p.step(40, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := p.finish(); runtime.CodeOf(err) != effects.Invalid || !strings.Contains(err.Error(), "layer 1") {
		t.Errorf("a finish without all layers: %v", err)
	}
	mustRelease(t, got)
	p.steps(40).arrives(r)
	for _, h := range []*runtime.Pages{odd, short} {
		mustRelease(t, h)
	}
	third := begin(t, s, peerOf(r), "third", keysOf("third", 2), 0)
	tailless := mustReserve(t, s, layers)
	for layer := range layers {
		if err := sender.SaveLayer("third", layer, 20, tailless); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := third.finish(); runtime.CodeOf(err) != effects.Invalid || !strings.Contains(err.Error(), "chunk 1") {
		t.Errorf("a tail without pages: %v", err)
	}
	if err := sender.DropPrefill("third"); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, tailless)
	if err := sender.DropPrefill("other"); err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, s)
}
