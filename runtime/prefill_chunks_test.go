package runtime_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// Prefills whose receiver has all layers of a chunk in one page.

// wholeReceiver is layersReceiver without use_layerwise: a page of its has all layers of a chunk.
func wholeReceiver(tb testing.TB, channel string) *config.Config {
	tb.Helper()
	const chunks = 16
	text := strings.Replace(fmt.Sprintf(layersText, "receiver", channel, chunks*layers*layerBytes,
		"pd_peer_host: 127.0.0.1\npd_peer_init_port: 1\npd_peer_alloc_port: 2\n", ""), "use_layerwise: true\n", "", 1)
	cfg, err := config.Parse("test", []byte(text), nil)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
	return cfg
}

// wantWhole gets chunks from who has all layers of each in a page, and looks at each byte: the keys of all layers, and
// then their values.
func wantWhole(tb testing.TB, r *runtime.Node, request string, keys []string, tokens int) {
	tb.Helper()
	got, err := r.Receiver().Get(within(tb), runtime.Get{Request: request, Keys: keys, Timeout: limit})
	if err != nil {
		tb.Fatal(err)
	}
	defer mustRelease(tb, got)
	if got.Len() != len(keys) {
		tb.Fatalf("%d pages for %d chunks", got.Len(), len(keys))
	}
	for i, key := range keys {
		size := layerBytes
		if rest := tokens % chunkTokens; rest > 0 && i == len(keys)-1 {
			size = rest * tokenBytes
		}
		want := bundledChunk(key, layers, 2, size)
		b, err := got.Bytes(i)
		if err != nil {
			tb.Fatal(err)
		}
		if !bytes.Equal(b, want) {
			tb.Errorf("chunk %d, of %d bytes, is not what was computed, of %d", i, len(b), len(want))
		}
	}
}

// bundledChunk is a chunk of layers of so many bytes, each of which has so many pieces: the first piece of all, and so
// on.
func bundledChunk(key string, layers, pieces, size int) (chunk []byte) {
	for piece := range pieces {
		for layer := range layers {
			all := make([]byte, size)
			contentOf(all, layerOf(key, layer))
			chunk = append(chunk, all[piece*size/pieces:(piece+1)*size/pieces]...)
		}
	}
	return chunk
}

// A receiver without use_layerwise has all layers of a chunk in one page: it gets each chunk when its last layer is
// computed, and under the key that any other sender gives it.
func TestPrefillGoesChunkByChunk(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			proxy := startProxy(t)
			r := open(t, wholeReceiver(t, channel))
			defer mustClose(t, r)
			s := open(t, layersSender(t, channel, proxy.addr, ""))
			defer mustClose(t, s)
			for name, c := range prompts {
				keys := keysOf(strings.ReplaceAll(name, " ", ""), c.chunks)
				p := begin(t, s, peerOf(r), name, keys, c.skip).steps(c.steps...)
				if res, err := p.finish(); err != nil || res.Sent != len(keys)-c.skip/chunkTokens {
					t.Fatalf("%s: %d chunks have gone, %v", name, res.Sent, err)
				}
				p.releases()
				if there := c.skip / chunkTokens; there < len(keys) {
					wantWhole(t, r, name, keys[there:], p.done)
				}
				if got := <-proxy.told; got != name {
					t.Errorf("the proxy was told of %q, want %q", got, name)
				}
			}
			wantEmpty(t, s, r)
		})
	}
}

// A chunk goes before the request is finished, and none of which a layer is missing; after a preemption none goes again
// that was there.
func TestChunksGoAsTheyAreComputed(t *testing.T) {
	r := open(t, wholeReceiver(t, "shm"))
	defer mustClose(t, r)
	s := open(t, layersSender(t, "shm", effects.Addr{}, ""))
	defer mustClose(t, s)
	keys := keysOf("chunks", 3)
	p := begin(t, s, peerOf(r), "r", keys, 0).reserve().steps(20)
	waitFor(t, r, "the first chunk", func(s rank.Stats) bool { return s.Entries == 1 && s.Grants == 0 })
	waitFor(t, s, "the word of that", func(s rank.Stats) bool { return s.Puts == 0 })
	sent := 0
	s.Watch(func(effects.Event) {}, func(e effects.Effect) {
		if e, ok := e.(*effects.Transfer); ok {
			sent += len(e.Pairs)
		}
	})
	if err := p.step(40, layers-1); err != nil {
		t.Fatal(err)
	}
	p.preempt()
	if s.Stats(); sent != 0 {
		t.Errorf("%d chunks went without their last layer", sent)
	}
	p.steps(40)
	if _, err := p.finish(); err != nil {
		t.Fatal(err)
	}
	if s.Stats(); sent != 2 {
		t.Errorf("%d chunks have gone after the preemption, want 2: the first one was there", sent)
	}
	p.releases()
	wantWhole(t, r, "r", keys, 40)
	wantEmpty(t, s, r)
}

// A peer whose pages hold neither layers nor chunks of this model is told apart, with what to do.
func TestPrefillToAnotherModel(t *testing.T) {
	r := open(t, receiverConfig(t, "shm", nil))
	defer mustClose(t, r)
	s := open(t, layersSender(t, "shm", effects.Addr{}, ""))
	defer mustClose(t, s)
	p := begin(t, s, peerOf(r), "r", keysOf("plain", 2), 0).reserve()
	refused := func(err error) {
		t.Helper()
		if code := runtime.CodeOf(err); code != effects.Mismatch && code != effects.Unsupported {
			t.Fatalf("got %v", err)
		}
		if !strings.Contains(err.Error(), "set use_layerwise to the same at both ends") {
			t.Errorf("%q does not say what is wrong", err)
		}
	}
	// The peer may answer before the last layer is saved: then its save says the same.
	if err := p.step(32, s.Layers()); err != nil {
		refused(err)
	}
	_, err := p.finish()
	refused(err)
	p.releases()
	wantEmpty(t, s)
}
