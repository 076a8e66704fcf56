package runtime_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// A prefill process pushes one chunk to a decode process; here both are nodes of one program.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	prefill, decode := exampleNode(ctx, "sender"), exampleNode(ctx, "receiver")

	// Prefill: fill a page and push it.
	keys := []string{"model@1@0@c0ffee@bfloat16"}
	pages, err := prefill.Sender().Reserve(ctx, 1)
	check(err)
	host, err := pages.Bytes(0)
	check(err)
	copy(host, "the keys and values of 16 tokens")
	sent, err := prefill.Sender().Put(ctx, runtime.Put{Peer: listensAt(decode), Request: "request-1", Keys: keys,
		Pages: pages, Last: true})
	check(err)
	check(pages.Release(ctx))

	// Decode: wait for the chunk and read it.
	chunks, err := decode.Receiver().Get(ctx, runtime.Get{Request: "request-1", Keys: keys, Timeout: 10 * time.Second})
	check(err)
	bytes, err := chunks.Bytes(0)
	check(err)
	fmt.Printf("sent %d, got %d of %d bytes: %s\n", sent.Sent, chunks.Len(), len(bytes), bytes[:32])
	check(chunks.Release(ctx))

	check(prefill.Close(ctx))
	check(decode.Close(ctx))
	// Output: sent 1, got 1 of 16384 bytes: the keys and values of 16 tokens
}

// A prefill process offers two chunks; the decode process reads them when its engine wants them, straight to where it
// computes. Nothing of them is kept on the way but a few pages of staging.
func ExampleReceiver_Fetch() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	prefill, decode := exampleNode(ctx, "sender", "pd_pull_mode: true"), exampleNode(ctx, "receiver", "pd_pull_mode: true",
		"pd_delay_pull: true")

	// Prefill: the pages stay lent after Put, until they were read.
	keys := []string{"model@1@0@c0ffee@bfloat16", "model@1@0@decaf@bfloat16"}
	pages, err := prefill.Sender().Reserve(ctx, 2)
	check(err)
	for i, text := range []string{"the keys and values of 16 tokens", "and those of the next 16 tokens."} {
		host, err := pages.Bytes(i)
		check(err)
		copy(host, text)
	}
	put, err := prefill.Sender().Put(ctx, runtime.Put{Peer: listensAt(decode), Request: "request-1", Keys: keys,
		Pages: pages, Last: true})
	check(err)

	// Decode: the engine knows where in its own memory the chunks of this request go.
	slots := make([]string, len(keys))
	taken, err := decode.Receiver().Fetch(ctx, runtime.Fetch{Request: "request-1", Keys: keys,
		Scatter: func(_ context.Context, first int, chunks [][]byte) error {
			for i, chunk := range chunks {
				slots[first+i] = string(chunk[:32])
			}
			return nil
		}})
	if err != nil {
		fmt.Printf("%v: the engine computes all but the first %d chunks\n", err, taken)
	}
	<-put.Returned()
	check(pages.Release(ctx))
	fmt.Printf("%d chunks: %q\n", taken, slots)

	check(prefill.Close(ctx))
	check(decode.Close(ctx))
	// Output: 2 chunks: ["the keys and values of 16 tokens" "and those of the next 16 tokens."]
}

func exampleNode(ctx context.Context, role string, more ...string) *runtime.Node {
	cfg, err := config.Parse(role, []byte(strings.Join(more, "\n")+`
enable_pd: true
pd_role: `+role+`
pd_peer_host: 127.0.0.1
pd_peer_init_port: 7300
pd_peer_alloc_port: 7400
pd_skip_proxy_notification: true
chunk_size: 16
pd_buffer_size: 1MiB
pd_buffer_device: cpu
extra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}
`), nil)
	check(err)
	for _, ports := range [][]uint16{cfg.InitPorts, cfg.AllocPorts, cfg.Pull.DonePorts} {
		clear(ports) // Where the system likes.
	}
	n, err := runtime.Open(ctx, cfg, runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, shm.Open), runtime.WithPlane(tcp.Name, tcp.Open))
	check(err)
	return n
}

// listensAt is what a deployment's proxy would know of its decode processes.
func listensAt(n *runtime.Node) runtime.Peer {
	p := runtime.Peer{Host: "127.0.0.1"}
	for _, s := range n.Servers() {
		if s.Channel == effects.ChannelInit {
			p.InitPort = s.Addr.Port
		} else {
			p.AllocPort = s.Addr.Port
		}
	}
	return p
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
