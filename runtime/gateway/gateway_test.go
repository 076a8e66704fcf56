//go:build cgo && linux

package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/gateway"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane/nixl"
)

func TestMain(m *testing.M) {
	if nixlproc.IsChild() {
		nixlproc.Main()
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	libnixltest.ExitProcess(code)
}

const nodeText = `enable_pd: true
pd_role: both
pd_peer_host: 127.0.0.1
pd_peer_init_port: 1
pd_peer_alloc_port: 2
transfer_channel: nixl
chunk_size: 4
pd_buffer_device: cpu
pd_shutdown_timeout_sec: 60
extra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 2, head_size: 16, dtype: half}
    register: {engine_id: ours, tp_size: 1, tp_rank: 0, pp_size: 1, pp_rank: 0, kv_heads: 2, cell_heads: 2, blocks: 16}
`

// openNode opens a node with a gateway; port is the port of the side channel.
func openNode(tb testing.TB) (n *runtime.Node, port int) {
	tb.Helper()
	n, _, port = openNodeAndGateway(tb)
	return n, port
}

func openNodeAndGateway(tb testing.TB) (n *runtime.Node, g *gateway.Gateway, port int) {
	tb.Helper()
	return openNodeWithSides(tb, zmq.Config{}.Opener())
}

// openNodeWithSides opens a node with a gateway and side channels of the given opener.
func openNodeWithSides(tb testing.TB, sides control.Opener) (n *runtime.Node, g *gateway.Gateway, port int) {
	tb.Helper()
	libnixltest.LoadLibrary(tb)
	cfg, err := config.Parse("test", []byte(nodeText), nil)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
	port = freePort(tb)
	log := slog.New(slog.NewTextHandler(tb.Output(), nil))
	g, err = gateway.New(gateway.Config{
		Agents: nixlproc.Options{}.Open, SideChannels: sides, EngineID: "ours", Host: "127.0.0.1", Port: uint16(port), CompatibilityHash: hash,
		Geometry: cfg.Geometry(0), Layout: cfg.Layout, RegionNames: []string{"l.0", "l.1"}, AttentionBackend: "CPU_ATTN",
		Limits: cfg.Gateway,
	})
	if err != nil {
		tb.Fatal(err)
	}
	n, err = runtime.Open(context.Background(), cfg, runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(nixl.Name, nixl.Config{Agents: nixlproc.Options{}.Open, Transports: "^cma"}.Open), runtime.WithGateway(g),
		runtime.WithLogger(log))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			tb.Error(err)
		}
	})
	return n, g, port
}

// freePort returns a port outside the range that the kernel gives out, so that no other process takes it by chance.
func freePort(tb testing.TB) int {
	tb.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(20000+rand.IntN(12000)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			tb.Fatal(err)
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
}

func nodeBlock(tb testing.TB, n *runtime.Node, layer int, block uint32) []byte {
	tb.Helper()
	b, err := n.BlockBytes(layer, int(block))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func newRegistration(p *plainEngine, request string, first int, list []uint32) runtime.Registration {
	return runtime.Registration{
		Request: request, Engine: p.id, Ranks: 1, Stages: 1,
		Producers: []runtime.ProducerPeer{gateway.ProducerAddr("127.0.0.1", uint16(p.port), 0, 1, 0, 1)},
		Blocks:    []runtime.Blocks{{First: uint64(first), Logical: list}},
	}
}

// A plain producer writes into our blocks, in whichever order registration and prefill happen, and only a part of its
// blocks if our node has the beginning.
func TestPlainProducer(t *testing.T) {
	n, _ := openNode(t)
	p := newPlainEngine(t, "P")
	for i, c := range []struct {
		name  string
		early bool
		first int
	}{{"registered-first", false, 0}, {"finished-first", true, 0}, {"suffix", true, 2}} {
		list := []int{3 + i, 9, 7, 1}
		p.fillBlocks(c.name, list)
		if c.early {
			p.finished[c.name] = list
		}
		into := []uint32{2, 5, 11, 0}[c.first:]
		r, err := n.Consumer().Register(t.Context(), newRegistration(p, c.name+"-0123abcd", c.first, into))
		if err != nil {
			t.Fatal(err)
		}
		if !c.early {
			p.runUntil("a registration", func() bool { return len(p.registered) == 1 })
			p.finished[c.name] = list
		}
		var got runtime.ReceptionResult
		p.runUntil("written", func() bool {
			select {
			case got = <-r.Done():
				return true
			default:
				return false
			}
		})
		if got.Err != nil || got.InUse || got.Pages != layers*len(into) {
			t.Fatalf("%s: %+v", c.name, got)
		}
		for layer := range layers {
			for i, block := range into {
				if !hasContent(nodeBlock(t, n, layer, block), c.name, layer, c.first+i) {
					t.Errorf("%s: block %d of layer %d is not what was computed", c.name, block, layer)
				}
			}
		}
	}
}

// Withdrawn blocks are free at once, and a plain producer that still writes reaches nothing.
func TestPlainProducerIsLate(t *testing.T) {
	n, _ := openNode(t)
	p := newPlainEngine(t, "P")
	list := []int{3, 9}
	p.fillBlocks("late", list)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := n.Consumer().Register(ctx, newRegistration(p, "late-0123abcd", 0, []uint32{2, 5}))
	if err != nil {
		t.Fatal(err)
	}
	p.runUntil("a registration", func() bool { return len(p.registered) == 1 })
	reg := p.registered[0]
	p.registered = nil
	known := p.loadRemote(reg["decode_host"].(string), toInt(reg["decode_port"]))
	cancel()
	got := <-r.Done()
	if e := (*runtime.Error)(nil); !errors.As(got.Err, &e) || e.Code != effects.Cancelled {
		t.Fatalf("%+v", got)
	}
	select {
	case <-r.Returned():
	case <-t.Context().Done():
	}
	for layer := range layers {
		clear(nodeBlock(t, n, layer, 2))
	}
	// The engine knows the address of the blocks, and its agent can reach the memory.
	bases := toInts(known.meta["kv_caches_base_addr"])
	transfer, err := p.agent.NewTransfer(libnixlWrite(p, known.agent, uint64(bases[0]+2*blockBytes)))
	if err == nil {
		for end := 0; end < 2000; end++ {
			done := false
			if end == 0 {
				done, err = transfer.Post()
			} else {
				done, err = transfer.Check()
			}
			if done {
				t.Error("a write went well after the agent was destroyed")
			}
			if err != nil || done {
				break
			}
		}
		_ = transfer.Close()
	}
	for _, b := range nodeBlock(t, n, 0, 2) {
		if b != 0 {
			t.Fatal("a late write landed")
		}
	}
	// The next request works as usual.
	p.fillBlocks("next", list)
	p.finished["next"] = list
	r, err = n.Consumer().Register(t.Context(), newRegistration(p, "next-0123abcd", 0, []uint32{2, 5}))
	if err != nil {
		t.Fatal(err)
	}
	p.runUntil("written", func() bool {
		select {
		case got = <-r.Done():
			return true
		default:
			return false
		}
	})
	if got.Err != nil || !hasContent(nodeBlock(t, n, 1, 5), "next", 1, 1) {
		t.Fatalf("%+v", got)
	}
}

// A plain consumer gets its blocks written, in whichever order, and is notified once.
func TestPlainConsumer(t *testing.T) {
	n, port := openNode(t)
	d := newPlainEngine(t, "D")
	at := d.loadRemote("127.0.0.1", port)
	if at.hash != hash || at.meta["engine_id"] != "ours" {
		t.Fatalf("%q of %v", at.hash, at.meta["engine_id"])
	}
	for i, c := range []struct {
		name  string
		early bool
		have  int // blocks that the consumer has already
	}{{"registered-first", true, 0}, {"finished-first", false, 0}, {"suffix", false, 2}} {
		from, into := []uint32{uint32(3 + i), 9, 7, 1}, []int{2, 5, 11, 0}[c.have:]
		for layer := range layers {
			for i, block := range from {
				fillContent(nodeBlock(t, n, layer, block), c.name, layer, i)
			}
		}
		request := c.name + "-0123abcd"
		if c.early {
			d.registerBlocks(at, request, into)
			for range 50 {
				d.runTurn()
			}
		}
		l, err := n.Producer().LendBlocks(t.Context(), runtime.FinishedRequest{
			Request: c.name + "-89abcdef", Blocks: []runtime.Blocks{{Logical: from}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if !c.early {
			d.registerBlocks(at, request, into)
		}
		d.runUntil("a completion", func() bool { return d.completed[request] > 0 })
		w := <-l.Done()
		if w.Err != nil || w.Pages != layers*len(into) || d.completed[request] != 1 {
			t.Fatalf("%s: %+v, %d completions", c.name, w, d.completed[request])
		}
		for layer := range layers {
			for i, block := range into {
				if !hasContent(d.blockBytes(layer, block), c.name, layer, c.have+i) {
					t.Errorf("%s: block %d of layer %d is not what was computed", c.name, block, layer)
				}
			}
		}
	}
}

// The memory that the front's side channel announces can be written to, as an engine expects, and is not the pool's.
func TestFrontMemoryIsNotThePool(t *testing.T) {
	n, port := openNode(t)
	d := newPlainEngine(t, "D")
	d.fillBlocks("stray", []int{3})
	at := d.loadRemote("127.0.0.1", port)
	bases := toInts(at.meta["kv_caches_base_addr"])
	for block := range blocks {
		transfer, err := d.agent.NewTransfer(libnixlWrite(d, at.agent, uint64(bases[1]+block*blockBytes)))
		if err != nil {
			t.Fatal(err)
		}
		done, err := transfer.Post()
		d.runUntil("written", func() bool {
			if err == nil && !done {
				done, err = transfer.Check()
			}
			return done || err != nil
		})
		if err := errors.Join(err, transfer.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for layer := range layers {
		for block := range uint32(blocks) {
			for _, b := range nodeBlock(t, n, layer, block) {
				if b != 0 {
					t.Fatalf("block %d of layer %d was written to", block, layer)
				}
			}
		}
	}
}

// A node that closes while engines are met, registered with and written to leaves nothing behind.
func TestCloseAtOnce(t *testing.T) {
	p := newPlainEngine(t, "P")
	for i := range 12 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			n, port := openNode(t)
			d := newPlainEngine(t, "D")
			at := d.loadRemote("127.0.0.1", port)
			l, err := n.Producer().LendBlocks(t.Context(), runtime.FinishedRequest{
				Request: "q-89abcdef", Blocks: []runtime.Blocks{{Logical: []uint32{3, 4}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			d.registerBlocks(at, "q-01234567", []int{1, 2})
			r, err := n.Consumer().Register(t.Context(), newRegistration(p, "r-01234567", 0, []uint32{1, 2}))
			if err != nil {
				t.Fatal(err)
			}
			for range i * 10 {
				p.runTurn()
				d.runTurn()
			}
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			if err := n.Close(ctx); err != nil {
				t.Fatal(err)
			}
			<-r.Done()
			<-l.Done()
			p.registered = nil
		})
	}
}
