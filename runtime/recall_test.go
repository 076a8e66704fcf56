package runtime_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// recalledConfig lets itself be recalled from, where the system likes.
func recalledConfig(tb testing.TB, channel, more string) *config.Config {
	cfg := parse(tb, "receiver", channel, 8, "pd_peer_host: 127.0.0.1\npd_peer_init_port: 1\npd_peer_alloc_port: 2\n"+
		"pd_peer_query_port: 3\npd_bidirectional: true\n"+more)
	cfg.InitPorts[0], cfg.AllocPorts[0], cfg.QueryPorts[0] = 0, 0, 0
	return cfg
}

func recallingConfig(tb testing.TB, channel, more string) *config.Config {
	cfg := parse(tb, "sender", channel, 8, "pd_skip_proxy_notification: true\npd_bidirectional: true\n"+more)
	for i := range cfg.Pull.DonePorts {
		cfg.Pull.DonePorts[i] = 0
	}
	return cfg
}

func recallPeerOf(n *runtime.Node) runtime.RecallPeer {
	p := peerOf(n)
	at := runtime.RecallPeer{Host: p.Host, InitPort: p.InitPort, AllocPort: p.AllocPort}
	for _, s := range n.Servers() {
		if s.Channel == effects.ChannelQuery {
			at.QueryPort = s.Addr.Port
		}
	}
	return at
}

// bring has a receiver get chunks for a request, whose engine reads them; the last one has so many tokens, 0 all.
func bring(tb testing.TB, from, to *runtime.Node, request string, keys []string, tokens int) {
	tb.Helper()
	pages := mustReserve(tb, from, len(keys))
	fill(tb, pages, keys)
	res, err := from.Sender().Put(within(tb), runtime.Put{Peer: peerOf(to), Request: request, Keys: keys, Pages: pages,
		LastChunkTokens: tokens, Last: true})
	if err != nil {
		tb.Fatal(err)
	}
	got, err := to.Receiver().Get(within(tb), runtime.Get{Request: request, Keys: keys, Timeout: limit})
	if err != nil {
		tb.Fatal(err)
	}
	mustRelease(tb, got)
	<-res.Returned()
	mustRelease(tb, pages)
}

// wantRecalled recalls keys and checks that so many came, byte by byte, each of its length.
func wantRecalled(tb testing.TB, n *runtime.Node, from runtime.RecallPeer, keys []string, hits, lastBytes int) {
	tb.Helper()
	pages := mustReserve(tb, n, len(keys))
	defer mustRelease(tb, pages)
	res, err := n.Sender().Recall(within(tb), runtime.Recall{Peer: from, Request: "again", Keys: keys, Pages: pages})
	if err != nil {
		tb.Fatal(err)
	}
	if res.Hits != hits || len(res.Lengths) != hits {
		tb.Fatalf("recalled %d of %d chunks, of lengths %v; want %d", res.Hits, len(keys), res.Lengths, hits)
	}
	<-res.Returned()
	for i, key := range keys[:hits] {
		b, err := pages.Bytes(i)
		if err != nil {
			tb.Fatal(err)
		}
		want := pageBytes
		if i == hits-1 {
			want = lastBytes
		}
		if res.Lengths[i] != want || !isContent(b[:want], key) {
			tb.Errorf("chunk %d has %d bytes, want %d, or wrong ones", i, res.Lengths[i], want)
		}
	}
}

// What a receiver's engine has read is read back, over either plane and in either mode, the short tail in its length,
// and what is not there ends it. It is there for the next who asks, and nothing is pinned afterwards.
func TestRecall(t *testing.T) {
	for mode, keys := range map[string]string{"push": "", "pull": "pd_pull_mode: true\n"} {
		for _, channel := range []string{"shm", "tcp"} {
			t.Run(mode+" over "+channel, func(t *testing.T) {
				more := keys
				if mode == "pull" {
					more += "pd_peer_host: 127.0.0.1\npd_pull_done_port: 4\n"
				}
				s, r := open(t, recallingConfig(t, channel, more)), open(t, recalledConfig(t, channel, keys))
				chunks := keysOf("conversation", 3)
				bring(t, s, r, "first", chunks[:2], 3)
				wantRecalled(t, s, recallPeerOf(r), chunks, 2, 3*pageBytes/16)
				wantRecalled(t, s, recallPeerOf(r), chunks[:1], 1, pageBytes)
				wantRecalled(t, s, recallPeerOf(r), chunks[2:], 0, 0)
				got, err := r.Receiver().Get(within(t), runtime.Get{Keys: chunks[:2]})
				if err != nil {
					t.Errorf("a recall consumed what it read: %v", err)
				}
				mustRelease(t, got)
				wantNothingHeld(t, s)
				mustClose(t, s)
				wantNothingHeld(t, r)
				mustClose(t, r)
			})
		}
	}
}

// More chunks than a command takes come in parts.
func TestRecallInParts(t *testing.T) {
	cfg := recallingConfig(t, "shm", "")
	cfg.Limits.ArrayLen = 2
	s, r := open(t, cfg), open(t, recalledConfig(t, "shm", ""))
	chunks := keysOf("long", 6)
	bring(t, s, r, "first", chunks[:5], 0)
	wantRecalled(t, s, recallPeerOf(r), chunks, 5, pageBytes)
	mustClose(t, s)
	mustClose(t, r)
}

// What cannot be recalled says why: nobody there, a receiver without recalls, one that is no receiver of ours, a caller
// who does not wait, and arguments that make no sense.
func TestRecallSaysWhyNot(t *testing.T) {
	s, plain, r := open(t, recallingConfig(t, "shm", "")), open(t, receiverConfig(t, "shm", nil)),
		open(t, recalledConfig(t, "shm", ""))
	other := open(t, senderConfig(t, "shm", effects.Addr{}))
	pages, at := mustReserve(t, s, 1), recallPeerOf(r)
	bring(t, s, r, "one", keysOf("one", 1), 0)
	got, err := r.Receiver().Get(within(t), runtime.Get{Keys: keysOf("one", 1)})
	if err != nil {
		t.Fatal(err)
	}
	try := func(ctx context.Context, change func(*runtime.Recall)) error {
		c := runtime.Recall{Peer: at, Keys: keysOf("why", 1), Pages: pages}
		change(&c)
		_, err := s.Sender().Recall(ctx, c)
		return err
	}
	for _, c := range []struct {
		field  string
		code   effects.Code
		change func(*runtime.Recall)
	}{
		{"Peer.QueryPort", effects.Invalid, func(c *runtime.Recall) { c.Peer.QueryPort = 0 }},
		{"Peer.Host", effects.Invalid, func(c *runtime.Recall) { c.Peer.Host = "" }},
		{"Keys", effects.Invalid, func(c *runtime.Recall) { c.Keys = nil }},
		{"len(Keys)", effects.Invalid, func(c *runtime.Recall) { c.Keys = keysOf("why", 2) }},
		{"Pages", effects.Invalid, func(c *runtime.Recall) { c.Pages = nil }},
		{"Pages", effects.Invalid, func(c *runtime.Recall) { c.Pages = got }},
		{"First", effects.Invalid, func(c *runtime.Recall) { c.First = 1 }},
		{"Timeout", effects.Invalid, func(c *runtime.Recall) { c.Timeout = -time.Second }},
		{"Request", effects.TooLarge, func(c *runtime.Recall) { c.Request = string(make([]byte, 1<<12)) }},
		{"Keys[0]", effects.Invalid, func(c *runtime.Recall) { c.Keys = []string{"no key"} }},
		{"pd_peer_query_port", effects.Unreachable, func(c *runtime.Recall) { c.Peer.QueryPort = 1 }},
		{"pd_bidirectional", effects.Unsupported, func(c *runtime.Recall) {
			c.Peer = recallPeerOf(plain)
			c.Peer.QueryPort = at.QueryPort
		}},
	} {
		err := try(within(t), c.change)
		var e *runtime.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Field != c.field || e.Remedy == "" {
			t.Errorf("of %s: %v; want %v with what helps", c.field, err, c.code)
		}
	}
	gone, cancel := context.WithCancel(within(t))
	cancel()
	wantCode(t, try(gone, func(*runtime.Recall) {}), effects.Cancelled)
	_, err = other.Sender().Recall(within(t), runtime.Recall{Peer: at, Keys: keysOf("why", 1), Pages: pages})
	wantCode(t, err, effects.Unsupported)
	mustRelease(t, got)
	mustRelease(t, pages)
	_, err = s.Sender().Recall(within(t), runtime.Recall{Peer: at, Keys: keysOf("why", 1), Pages: pages})
	wantCode(t, err, effects.Invalid)
	for _, n := range []*runtime.Node{s, plain, r, other} {
		mustClose(t, n)
	}
}
