package gateway_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/gateway"
)

// An fixedReply is a side channel that replies with a fixed message, or does not reply if the message is nil.
type fixedReply struct {
	transport control.Transport
	ready     chan struct{} // closed when that is set
	reply     []byte
	queries   chan []byte
}

func (a *fixedReply) Post(ev effects.Event) {
	r, ok := ev.(*effects.Received)
	if !ok {
		return
	}
	<-a.ready
	question, _, _ := effects.CutPart(r.Body)
	a.queries <- question
	if a.reply != nil {
		a.transport.Reply(&effects.Reply{Request: r.Request, Body: effects.AppendPart(nil, a.reply)})
	}
}

func listenWithReply(t *testing.T, says []byte) (a *fixedReply, port uint16) {
	t.Helper()
	a = &fixedReply{reply: says, ready: make(chan struct{}), queries: make(chan []byte, 8)}
	at := control.Server{Channel: effects.ChannelMeta, Addr: effects.Addr{Host: "127.0.0.1"}}
	var err error
	if a.transport, err = zmq.Listen(zmq.Config{}, []control.Server{at}, a); err != nil {
		t.Fatal(err)
	}
	close(a.ready)
	t.Cleanup(func() { _ = a.transport.Shutdown(context.Background()) })
	return a, a.transport.Servers()[0].Addr.Port
}

// Describe returns the side channel's reply unchanged.
func TestDescribe(t *testing.T) {
	m := protocol.NixlMetadata{EngineID: []byte("E"), NumBlocks: 7, Layout: []byte("LBHNC"), BlockSize: 4,
		BaseAddrs: []uint64{1 << 20}, BlockLens: []uint64{64}, BlockStrides: []uint64{64}, Backend: []byte("CPU_ATTN"),
		PerLogical: 1, DCPSize: 1, PCPSize: 1}
	hello := protocol.NixlHello{Hash: []byte("a hash"), Metadata: m.Append(nil)}
	a, port := listenWithReply(t, hello.Append(nil))
	d, err := gateway.Describe(t.Context(), zmq.Config{}.Opener(), "127.0.0.1", port, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	if d.CompatibilityHash != "a hash" || string(d.Metadata.EngineID) != "E" || d.Metadata.NumBlocks != 7 ||
		d.Metadata.BlockLens[0] != 64 {
		t.Errorf("told %q, %+v", d.CompatibilityHash, d.Metadata)
	}
	q, limits := protocol.NixlMetadataRequest{}, protocol.DefaultLimits()
	if err := q.Decode(<-a.queries, &limits); err != nil || q.PPRank != 2 || q.TPRank != 3 {
		t.Errorf("asked for %+v, %v", q, err)
	}
}

// An engine with an unsupported version of the connector is refused, and the error names the version.
func TestDescribeOtherVersion(t *testing.T) {
	m := protocol.NixlMetadata{EngineID: []byte("E"), DCPSize: 1, PCPSize: 1}
	older := bytes.Replace(m.Append(nil), []byte("ple_block_len"), []byte("ple_block_lem"), 1)
	hello := protocol.NixlHello{Hash: []byte("a hash"), Metadata: older}
	_, port := listenWithReply(t, hello.Append(nil))
	_, err := gateway.Describe(t.Context(), zmq.Config{}.Opener(), "127.0.0.1", port, 0, 0)
	const want = "has an unsupported NIXL connector, an older one: it sends no ple_block_len; want 14 (vLLM 0.32) or 15 (vLLM 0.33)"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want that it %s", err, want)
	}
}

// For a peer that is not a side channel, is silent or does not listen, the error names the address and the remedy.
func TestDescribeUnreachable(t *testing.T) {
	_, other := listenWithReply(t, []byte("HTTP/1.1 400"))
	mute, silent := listenWithReply(t, nil)
	left, gone := listenWithReply(t, nil)
	if err := left.transport.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		port uint16
		says string
		act  func(end context.CancelFunc)
	}{
		{other, "sends a reply that is not a description", nil},
		{silent, "does not answer", func(end context.CancelFunc) { <-mute.queries; end() }},
		{gone, "cannot be reached", nil},
	} {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		if c.act != nil {
			go c.act(end)
		}
		_, err := gateway.Describe(ctx, zmq.Config{}.Opener(), "127.0.0.1", c.port, 0, 0)
		if err == nil || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), "VLLM_NIXL_SIDE_CHANNEL_PORT") {
			t.Errorf("port %d: %v; want that it %s", c.port, err, c.says)
		}
	}
}
