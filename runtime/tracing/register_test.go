package tracing_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

// openRegisterNode opens a node that registers or lends blocks of an engine.
func openRegisterNode(t *testing.T, engine string, options ...runtime.Option) *runtime.Node {
	t.Helper()
	cfg, err := config.Parse("test", fmt.Appendf(nil, `
enable_pd: true
pd_role: both
pd_peer_host: 127.0.0.1
pd_peer_init_port: 1
pd_peer_alloc_port: 2
transfer_channel: shm
chunk_size: 4
pd_buffer_device: cpu
extra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 4, head_size: 16, dtype: half}
    register: {engine_id: %s, tp_size: 1, tp_rank: 0, pp_size: 1, pp_rank: 0, kv_heads: 4, cell_heads: 1, blocks: 16,
      first_layer: 0}
`, engine), nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
	n, err := runtime.Open(t.Context(), cfg, append([]runtime.Option{runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, shm.Open), runtime.WithLogger(discard)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

// Registered blocks are a span of the consumer, and the write of each producer rank is a put below it, with its stages. The
// loan of the blocks is a span of the producer, below the producer's request.
func TestRegisteredBlocks(t *testing.T) {
	at := newCollector(t)
	tracers := map[string]runtime.Option{}
	closeAll := func() {}
	for _, name := range []string{"consumer", "producer"} {
		tracer := openTracer(t, at.URL, name, 0)
		former := closeAll
		tracers[name], closeAll = runtime.WithTracer(tracer), func() { former(); closeTracer(t, tracer) }
	}
	consumer, producer := openRegisterNode(t, "C", tracers["consumer"]), openRegisterNode(t, "P", tracers["producer"])
	var peer runtime.ProducerPeer
	for _, s := range producer.Servers() {
		peer.Host = s.Addr.Host
		switch s.Channel { //nolint:exhaustive // Others are no part of the address.
		case effects.ChannelInit:
			peer.InitPort = s.Addr.Port
		case effects.ChannelRegister:
			peer.Port = s.Addr.Port
		}
	}
	decode, prefill := effects.TraceContext{0: 1, 16: 2, 24: 1}, effects.TraceContext{0: 1, 16: 3, 24: 1}
	blocks := []runtime.Blocks{{Logical: []uint32{1, 2}}}
	reception, err := consumer.Consumer().Register(t.Context(), runtime.Registration{Request: "r-00000001", Engine: "P", Ranks: 1, Stages: 1,
		Producers: []runtime.ProducerPeer{peer}, Blocks: blocks, Trace: decode})
	if err != nil {
		t.Fatal(err)
	}
	lending, err := producer.Producer().LendBlocks(t.Context(), runtime.FinishedRequest{Request: "r-00000002", Blocks: blocks, Trace: prefill})
	if err != nil {
		t.Fatal(err)
	}
	if end := <-reception.Done(); end.Err != nil {
		t.Fatal(end.Err)
	}
	if end := <-lending.Done(); end.Err != nil {
		t.Fatal(end.Err)
	}
	closeAll()
	register, lend, put, wire := at.one(t, "kvferry.register"), at.one(t, "kvferry.lend"), at.one(t, "kvferry.put"), at.named("wire")
	for _, c := range []struct {
		name, service string
		span          received
		parent        []byte
	}{
		{"kvferry.register", "consumer", register, decode[16:24]},
		{"kvferry.lend", "producer", lend, prefill[16:24]},
		{"kvferry.put", "producer", put, register.GetSpanId()},
	} {
		if c.span.service != c.service || !bytes.Equal(c.span.GetParentSpanId(), c.parent) {
			t.Errorf("%s of %s is below %x, want %s, below %x", c.name, c.span.service, c.span.GetParentSpanId(), c.service, c.parent)
		}
	}
	below := map[string]int{}
	for _, s := range wire {
		below[string(s.GetParentSpanId())]++
	}
	if below[string(put.GetSpanId())] != 1 || below[string(lend.GetSpanId())] != 1 || len(wire) != 2 {
		t.Errorf("the stages in which blocks were written are %v, want one of the put and one of the loan", wire)
	}
}
