//go:build cgo && linux

// Command between relays KV cache between two real vLLM engines, which run vLLM's connector. The command receives KV
// from the first engine as a decode engine would, and pushes the KV to the second engine as a prefill engine would. The
// program interop.py sends the commands and reads the responses.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/gateway"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane/nixl"
)

const (
	engineID       = "kvferry"
	host           = "127.0.0.1"
	blocks         = 128 // blocks of the node's pool
	requestTimeout = time.Minute
)

type engine struct {
	EngineID  string `json:"engine_id"`
	Host      string `json:"host"`
	Port      uint16 `json:"port"`
	TPSize    uint32 `json:"tp_size"`
	BlockSize int    `json:"block_size"`
}

type params struct {
	EngineID  string `json:"remote_engine_id"`
	RequestID string `json:"remote_request_id"`
	Host      string `json:"remote_host"`
	Port      uint16 `json:"remote_port"`
	TPSize    uint32 `json:"tp_size"`
}

type message struct {
	Op       string          `json:"op"`
	ID       string          `json:"id,omitempty"`
	Tokens   int             `json:"tokens,omitempty"`
	Prefill  json.RawMessage `json:"prefill,omitempty"`
	Decode   json.RawMessage `json:"decode,omitempty"`
	Answered *bool           `json:"answered,omitempty"`
	Params   *params         `json:"kv_transfer_params,omitempty"`
	Note     string          `json:"note,omitempty"`
	Error    string          `json:"error,omitempty"`
}

func main() {
	if nixlproc.IsChild() {
		nixlproc.Main()
	}
	b := &relayNode{requests: map[string]*request{}}
	if err := b.serveMessages(); err != nil {
		b.writeMessage(message{Op: "error", Error: err.Error()})
		os.Exit(1)
	}
}

type relayNode struct {
	node   *runtime.Node
	port   uint16 // port of the gateway's side channel
	block  int    // tokens of a block
	source engine

	mu       sync.Mutex
	free     []uint32
	requests map[string]*request
	outMu    sync.Mutex
}

// A request owns its blocks from the start of the relay until no transfer reads or writes them any more.
type request struct {
	blocks []uint32
	cancel context.CancelFunc
	ended  chan struct{} // closed when the blocks have been returned
	note   string        // the result; may be read after ended is closed
}

func (b *relayNode) writeMessage(m message) {
	b.outMu.Lock()
	defer b.outMu.Unlock()
	line, err := json.Marshal(m)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	fmt.Println(string(line))
}

func (b *relayNode) serveMessages() error {
	ctx := context.Background()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		m := message{}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return fmt.Errorf("a command is not valid JSON: %w", err)
		}
		var err error
		switch m.Op {
		case "start":
			if err = b.startNode(ctx, &m); err == nil {
				b.writeMessage(message{Op: "started"})
			}
		case "relay":
			err = b.relayRequest(ctx, &m)
		case "done":
			go b.endRequest(m.ID)
		case "stop":
			return b.closeNode(ctx)
		default:
			err = fmt.Errorf("op is %q; want start, relay, done or stop", m.Op)
		}
		if err != nil {
			return err
		}
	}
	return b.closeNode(ctx)
}

// startNode opens a node whose memory has the same layout as the memory of the engines.
func (b *relayNode) startNode(ctx context.Context, m *message) error {
	if err := json.Unmarshal(m.Prefill, &b.source); err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	describeCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	engineInfo, err := gateway.Describe(describeCtx, zmq.Config{}.Opener(), b.source.Host, b.source.Port, 0, 0)
	if err != nil {
		return err
	}
	meta := &engineInfo.Metadata
	b.block = int(meta.BlockSize * meta.PerLogical)
	var names []string
	for _, name := range meta.Regions.Names {
		names = append(names, string(name))
	}
	// The node treats the bytes of a block as one head, because only the engines need to know the real layout.
	head := meta.BlockLens[0] / meta.BlockSize / 2 / 2
	if head*meta.BlockSize*4 != meta.BlockLens[0] {
		return fmt.Errorf("block_lens of the engine is %d, and no multiple of 4 bytes for each of %d tokens",
			meta.BlockLens[0], meta.BlockSize)
	}
	cfg, err := config.Parse("between", fmt.Appendf(nil, nodeText, host, meta.BlockSize, len(names), head, engineID,
		blocks*meta.PerLogical, meta.PerLogical), nil)
	if err != nil {
		return err
	}
	cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
	if b.port, err = freePort(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g, err := gateway.New(gateway.Config{
		Agents: nixlproc.Options{}.Open, SideChannels: zmq.Config{}.Opener(), EngineID: engineID, Host: host, Port: b.port,
		CompatibilityHash: engineInfo.CompatibilityHash,
		Geometry:          cfg.Geometry(0), Layout: cfg.Layout, RegionNames: names, CacheLayout: string(meta.Layout),
		AttentionBackend: string(meta.Backend), Limits: cfg.Gateway,
	})
	if err != nil {
		return err
	}
	for i := range uint32(blocks - 1) {
		b.free = append(b.free, i+1) // Block 0 stays unused, as in vLLM's engines.
	}
	b.node, err = runtime.Open(ctx, cfg, runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(nixl.Name, nixl.Config{Agents: nixlproc.Options{}.Open, Transports: "^cma"}.Open), runtime.WithGateway(g),
		runtime.WithLogger(log))
	return err
}

const nodeText = `enable_pd: true
pd_role: both
pd_peer_host: %s
pd_peer_init_port: 1
pd_peer_alloc_port: 2
transfer_channel: nixl
chunk_size: %d
pd_buffer_device: cpu
extra_config:
  kvferry:
    layout: {num_layers: %d, num_kv_heads: 1, head_size: %d, dtype: half}
    register: {engine_id: %s, tp_size: 1, tp_rank: 0, pp_size: 1, pp_rank: 0, kv_heads: 1, cell_heads: 1, blocks: %d,
      blocks_per_logical: %d}
`

func freePort() (uint16, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port), nil
}

// relayRequest registers blocks for a request with the prefill engine, and offers the received blocks to the decode
// engine.
func (b *relayNode) relayRequest(ctx context.Context, m *message) error {
	p := params{}
	if err := json.Unmarshal(m.Prefill, &p); err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	n := (m.Tokens + b.block - 1) / b.block
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > len(b.free) {
		return fmt.Errorf("%d blocks are free, and %s wants %d", len(b.free), m.ID, n)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	r := &request{blocks: b.free[:n:n], cancel: cancel, ended: make(chan struct{})}
	b.free = b.free[n:]
	b.requests[m.ID] = r
	id := m.ID + "-" + strings.Repeat("0", 7) + "1" // vLLM's engines append such a suffix to a request's ID.
	go func() {
		defer close(r.ended)
		r.note = b.carryRequest(ctx, id, p, r)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.free = append(b.free, r.blocks...)
	}()
	b.writeMessage(message{Op: "relay", ID: m.ID, Params: &params{
		EngineID: engineID, RequestID: id, Host: host, Port: b.port, TPSize: 1,
	}})
	return nil
}

// carryRequest receives the blocks of a request and lends them to the decode engine. It returns when the blocks have
// been returned, with a text that describes the result.
func (b *relayNode) carryRequest(ctx context.Context, id string, p params, r *request) string {
	began := time.Now()
	list := []runtime.Blocks{{Logical: r.blocks}}
	var from []runtime.ProducerPeer
	for rank := range p.TPSize {
		from = append(from, gateway.ProducerAddr(p.Host, p.Port, 0, 1, rank, p.TPSize))
	}
	reception, err := b.node.Consumer().Register(ctx, runtime.Registration{
		Request: id, Engine: p.EngineID, Producers: from, Ranks: int(p.TPSize), Stages: 1, Blocks: list,
	})
	if err != nil {
		return err.Error()
	}
	received := <-reception.Done()
	<-reception.Returned()
	if received.Err != nil {
		return received.Err.Error()
	}
	receivedAfter := time.Since(began)
	lending, err := b.node.Producer().LendBlocks(ctx, runtime.FinishedRequest{Request: id, Blocks: list})
	if err != nil {
		return err.Error()
	}
	sent := <-lending.Done()
	<-lending.Returned()
	if sent.Err != nil {
		return sent.Err.Error()
	}
	return fmt.Sprintf("%d pages in after %v, %d out after %v", received.Pages, receivedAfter.Round(time.Millisecond), sent.Pages,
		time.Since(began).Round(time.Millisecond))
}

// endRequest ends a request. If the decode engine still reads blocks after a second, the transfer is cancelled.
func (b *relayNode) endRequest(id string) {
	b.mu.Lock()
	r := b.requests[id]
	delete(b.requests, id)
	b.mu.Unlock()
	if r == nil {
		b.writeMessage(message{Op: "error", ID: id, Error: "no such request"})
		return
	}
	select {
	case <-r.ended:
	case <-time.After(time.Second): // The decode engine may read longer than this command waits.
		r.cancel()
		<-r.ended
	}
	r.cancel()
	b.writeMessage(message{Op: "done", ID: id, Note: r.note})
}

func (b *relayNode) closeNode(ctx context.Context) error {
	if b.node == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return b.node.Close(ctx)
}
