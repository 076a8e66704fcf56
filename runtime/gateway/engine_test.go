//go:build cgo && linux

package gateway_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	zmq4 "github.com/pebbe/zmq4"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
)

// A plainEngine plays a plain engine of one rank. It follows vLLM's push connector and uses none of kvferry's codecs
// and machines. Everything except the side channel belongs to the test's goroutine.

const (
	limit      = 20 * time.Second
	layers     = 2
	blocks     = 16
	blockBytes = 2 * 4 * 2 * 16 * 2 // keys and values, of 4 tokens, 2 heads, 16 elements, 2 bytes
	hash       = "31b38faaff43619ff44931fdcd4e31ce92ac1e2fb50d9948f50c896e5ee16e1c"
)

type plainEngine struct {
	tb     testing.TB
	id     string
	port   int
	agent  *libnixl.Agent
	memory []byte

	// As a producer.
	finished   map[string][]int
	registered []map[string]any
	// As a consumer: completions, by request.
	completed  map[string]int
	heartbeats []string
}

func newPlainEngine(tb testing.TB, id string) *plainEngine {
	tb.Helper()
	e := &plainEngine{
		tb: tb, id: id, memory: libnixltest.AllocMemory(tb, layers*blocks*blockBytes), finished: map[string][]int{},
		completed: map[string]int{},
	}
	var err error
	name := "agent-of-" + id + "-" + tb.Name()
	if e.agent, err = libnixltest.LoadLibrary(tb).NewAgent(libnixl.AgentOptions{Name: name}); err != nil {
		tb.Fatal(err)
	}
	memory, err := e.agent.RegisterMemory(libnixl.Host, libnixl.Range{Address: e.baseAddress(), Bytes: uint64(len(e.memory))})
	if err != nil {
		tb.Fatal(err)
	}
	metadata, err := e.agent.Metadata()
	if err != nil {
		tb.Fatal(err)
	}
	e.serveSideChannel(e.sideChannelReply(metadata))
	tb.Cleanup(func() {
		for _, err := range []error{memory.Close(), e.agent.Close()} {
			if err != nil {
				tb.Error(err)
			}
		}
	})
	return e
}

func (e *plainEngine) baseAddress() uint64 { return uint64(uintptr(unsafe.Pointer(&e.memory[0]))) }

func (e *plainEngine) blockBytes(layer, block int) []byte {
	at := (layer*blocks + block) * blockBytes
	return e.memory[at : at+blockBytes]
}

func packMsgpack(tb testing.TB, v any) []byte {
	tb.Helper()
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseCompactInts(true)
	enc.SetSortMapKeys(true)
	if err := enc.Encode(v); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// sideChannelReply returns what the side channel reports.
func (e *plainEngine) sideChannelReply(agent []byte) []byte {
	base := e.baseAddress()
	return packMsgpack(e.tb, map[string]any{
		"compatibility_hash": hash,
		"agent_metadata_bytes": packMsgpack(e.tb, map[string]any{
			"engine_id": e.id, "agent_metadata": agent,
			"kv_caches_base_addr": []uint64{base, base + blocks*blockBytes}, "device_id": 0, "num_blocks": blocks,
			"block_lens": []int{blockBytes, blockBytes}, "block_strides": []int{blockBytes, blockBytes},
			"kv_cache_layout": "LBHNC", "block_size": 4, "ssm_sizes": []int{0, 0}, "attn_backend_name": "CPU_ATTN",
			"physical_blocks_per_logical_kv_block": 1, "region_num_blocks": []int{blocks, blocks},
			"region_group_ids": []int{0, 0}, "region_names": []string{"l.0", "l.1"},
			"region_mem_types": []string{"DRAM", "DRAM"},
			"dcp_size":         1, "pcp_size": 1, "ple_block_len": nil, "region_members": []any{},
			"packed_member_layouts": map[string]any{},
		}),
	})
}

// serveSideChannel serves the side channel, as a ROUTER does.
func (e *plainEngine) serveSideChannel(payload []byte) {
	socket := e.newSocket(zmq4.ROUTER)
	if err := socket.Bind("tcp://127.0.0.1:*"); err != nil {
		e.tb.Fatal(err)
	}
	at, err := socket.GetLastEndpoint()
	if err != nil {
		e.tb.Fatal(err)
	}
	if _, err := fmt.Sscanf(at, "tcp://127.0.0.1:%d", &e.port); err != nil {
		e.tb.Fatal(err)
	}
	if err := socket.SetRcvtimeo(20 * time.Millisecond); err != nil {
		e.tb.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			parts, err := socket.RecvMessageBytes(0)
			if err != nil {
				continue
			}
			if !bytes.Equal(parts[2], append([]byte("\x93\xc4\x0cget_meta_msg"), 0, 0)) {
				return // The reference's listener also ends at a message that it cannot read.
			}
			_, _ = socket.SendMessage(parts[0], "", payload, packMsgpack(e.tb, float64(12.5)))
		}
	}()
	e.tb.Cleanup(func() { close(stop); <-done; _ = socket.Close() })
}

func (e *plainEngine) newSocket(kind zmq4.Type) *zmq4.Socket {
	e.tb.Helper()
	zctx, err := zmq4.NewContext()
	if err != nil {
		e.tb.Fatal(err)
	}
	e.tb.Cleanup(func() { _ = zctx.Term() })
	socket, err := zctx.NewSocket(kind)
	if err != nil {
		e.tb.Fatal(err)
	}
	if err := socket.SetLinger(0); err != nil {
		e.tb.Fatal(err)
	}
	return socket
}

// A remote holds the facts that this engine knows about a further engine.
type remote struct {
	agent string
	hash  string
	meta  map[string]any
}

// loadRemote asks a side channel and loads the agent in the reply.
func (e *plainEngine) loadRemote(host string, port int) remote {
	e.tb.Helper()
	req := e.newSocket(zmq4.REQ)
	defer req.Close()
	for _, err := range []error{req.SetRcvtimeo(limit), req.Connect(fmt.Sprintf("tcp://%s:%d", host, port))} {
		if err != nil {
			e.tb.Fatal(err)
		}
	}
	if _, err := req.SendBytes(append([]byte("\x93\xc4\x0cget_meta_msg"), 0, 0), 0); err != nil {
		e.tb.Fatal(err)
	}
	parts, err := req.RecvMessageBytes(0)
	if err != nil || len(parts) != 2 {
		e.tb.Fatalf("%d parts: %v", len(parts), err)
	}
	var clock float64
	var hello struct {
		Hash string `msgpack:"compatibility_hash"`
		Meta []byte `msgpack:"agent_metadata_bytes"`
	}
	r := remote{}
	for _, err := range []error{msgpack.Unmarshal(parts[1], &clock), msgpack.Unmarshal(parts[0], &hello),
		msgpack.Unmarshal(hello.Meta, &r.meta)} {
		if err != nil {
			e.tb.Fatal(err)
		}
	}
	r.hash = hello.Hash
	if r.agent, err = e.agent.LoadMetadata(r.meta["agent_metadata"].([]byte)); err != nil {
		e.tb.Fatal(err)
	}
	return r
}

func toInts(v any) (list []int) {
	for _, x := range v.([]any) {
		list = append(list, toInt(x))
	}
	return list
}

func toInt(v any) int {
	var n int
	_, _ = fmt.Sscan(fmt.Sprint(v), &n)
	return n
}

// runUntil runs the engine until a condition holds.
func (e *plainEngine) runUntil(what string, holds func() bool) {
	e.tb.Helper()
	for end := time.Now().Add(limit); !holds(); {
		if time.Now().After(end) {
			e.tb.Fatalf("%s: not in time", what)
		}
		e.runTurn()
		time.Sleep(100 * time.Microsecond) // As an engine that does something else between two turns.
	}
}

// runTurn handles the notes that have arrived, and writes what can be written.
func (e *plainEngine) runTurn() {
	e.tb.Helper()
	notices, err := e.agent.PollNotices()
	if err != nil {
		e.tb.Fatal(err)
	}
	for _, n := range notices {
		text := string(n.Bytes)
		switch {
		case strings.HasPrefix(text, "PUSH_REG:"):
			reg := map[string]any{}
			if err := msgpack.Unmarshal(n.Bytes[len("PUSH_REG:"):], &reg); err != nil {
				e.tb.Fatal(err)
			}
			e.registered = append(e.registered, reg)
		case strings.HasPrefix(text, "HB:"):
			e.heartbeats = append(e.heartbeats, strings.Split(text[3:], ",")...)
		default:
			id, _, _ := strings.Cut(text, ":")
			e.completed[id]++
		}
	}
	for i, reg := range e.registered {
		id := reg["request_id"].(string)
		list, is := e.finished[baseID(id)]
		if !is {
			continue
		}
		e.registered = append(e.registered[:i], e.registered[i+1:]...)
		if err := e.writeBlocks(reg, list); err != nil {
			e.tb.Fatal(err)
		}
		return
	}
}

func baseID(id string) string { return id[:strings.LastIndex(id, "-")] }

// writeBlocks writes the last blocks that a registration has room for, and reports the write.
func (e *plainEngine) writeBlocks(reg map[string]any, list []int) error {
	r := e.loadRemote(reg["decode_host"].(string), toInt(reg["decode_port"]))
	if r.meta["engine_id"] != reg["decode_engine_id"] {
		e.tb.Errorf("engine %v registered, %v is there", reg["decode_engine_id"], r.meta["engine_id"])
	}
	into := toInts(reg["local_block_ids"].([]any)[0])
	from := list[len(list)-len(into):]
	bases, strides := toInts(r.meta["kv_caches_base_addr"]), toInts(r.meta["block_strides"])
	o := libnixl.TransferOptions{Operation: libnixl.Write, Peer: r.agent}
	for layer := range layers {
		for i := range into {
			o.Pairs = append(o.Pairs, libnixl.Pair{
				Local:  e.baseAddress() + uint64((layer*blocks+from[i])*blockBytes),
				Remote: uint64(bases[layer] + into[i]*strides[layer]), Bytes: blockBytes,
			})
		}
	}
	t, err := e.agent.NewTransfer(o)
	if err != nil {
		return err
	}
	done, err := t.Post()
	for end := time.Now().Add(limit); err == nil && !done; {
		if time.Now().After(end) {
			err = fmt.Errorf("a write took too long")
			break
		}
		done, err = t.Check()
	}
	if failed := t.Close(); err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	return e.agent.SendNotice(r.agent, []byte(reg["request_id"].(string)+":1"))
}

// registerBlocks registers blocks with a producer.
func (e *plainEngine) registerBlocks(at remote, request string, list []int) {
	e.tb.Helper()
	body := append([]byte("PUSH_REG:"), packMsgpack(e.tb, map[string]any{
		"request_id": request, "decode_engine_id": e.id, "decode_host": "127.0.0.1", "decode_port": e.port,
		"decode_tp_size": 1, "local_block_ids": [][]int{list}, "remote_engine_id": at.meta["engine_id"],
		"remote_host": "127.0.0.1", "remote_port": 0, "remote_tp_size": 1, "remote_pp_size": 1,
	})...)
	if err := e.agent.SendNotice(at.agent, body); err != nil {
		e.tb.Fatal(err)
	}
}

// fillBlocks makes blocks hold what a request computes, from a position on.
func (e *plainEngine) fillBlocks(request string, list []int) {
	for layer := range layers {
		for i, n := range list {
			fillContent(e.blockBytes(layer, n), request, layer, i)
		}
	}
}

func fillContent(b []byte, request string, layer, position int) {
	key := fmt.Sprintf("%s layer %d position %d ", request, layer, position)
	for i := range b {
		b[i] = key[i%len(key)] + byte(i/len(key))
	}
}

func hasContent(b []byte, request string, layer, position int) bool {
	want := make([]byte, len(b))
	fillContent(want, request, layer, position)
	return bytes.Equal(b, want)
}

func libnixlWrite(e *plainEngine, to string, at uint64) libnixl.TransferOptions {
	return libnixl.TransferOptions{Operation: libnixl.Write, Peer: to, Pairs: []libnixl.Pair{
		{Local: e.baseAddress() + 3*blockBytes, Remote: at, Bytes: blockBytes},
	}}
}
