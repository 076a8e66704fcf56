package runtime_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// By pull the decode process reads the prefill's pages. The outcome of a Put and the end of its loan are two things:
// the
// engine may go on at the first, and may write into the pages again after the second.
func ExamplePutResult_Returned() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	prefill, decode := examplePuller(ctx), exampleNode(ctx, "receiver")

	pages, err := prefill.Sender().Reserve(ctx, 1)
	check(err)
	host, err := pages.Bytes(0)
	check(err)
	copy(host, "the keys and values of 16 tokens")
	keys := []string{"model@1@0@c0ffee@bfloat16"}
	put, err := prefill.Sender().Put(ctx, runtime.Put{Peer: listensAt(decode), Request: "request-1", Keys: keys,
		Pages: pages, Last: true})
	check(err) // The decode process has the chunk; the page may still be lent.

	select {
	case <-put.Returned():
		clear(host) // The page is the engine's again.
	case <-ctx.Done():
		check(prefill.Sender().WithdrawPut(put)) // Or it can be taken back before pd_pull_pending_ttl is over.
	}
	check(pages.Release(ctx)) // Waits for the same.

	chunks, err := decode.Receiver().Get(ctx, runtime.Get{Request: "request-1", Keys: keys, Timeout: 10 * time.Second})
	check(err)
	bytes, err := chunks.Bytes(0)
	check(err)
	fmt.Printf("read %d: %s\n", put.Sent, bytes[:32])
	check(chunks.Release(ctx))

	check(prefill.Close(ctx))
	check(decode.Close(ctx))
	// Output: read 1: the keys and values of 16 tokens
}

func examplePuller(ctx context.Context) *runtime.Node {
	cfg, err := config.Parse("sender", []byte(`
enable_pd: true
pd_role: sender
pd_pull_mode: true
pd_peer_host: 127.0.0.1
pd_pull_done_port: 7500
pd_skip_proxy_notification: true
chunk_size: 16
pd_buffer_size: 1MiB
pd_buffer_device: cpu
extra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}
`), nil)
	check(err)
	cfg.Pull.DonePorts[0] = 0 // Where the system likes.
	n, err := runtime.Open(ctx, cfg, runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, shm.Open), runtime.WithPlane(tcp.Name, tcp.Open))
	check(err)
	return n
}
