// Command embed is the program of docs/tutorials/embed.md: a prefill process and a decode process of a serving system,
// each of which embeds a kvferry node. The prefill process "computes" the KV cache of a prompt and pushes the cache;
// the decode process waits for the cache and reads the chunks.
//
//	embed decode     in the first terminal
//	embed prefill    in a second terminal
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// The keys name the chunks of the prompt. Both processes derive keys from the prompt's tokens, so they need not
// exchange keys.
var keys = []string{"my-model@1@0@a1@bfloat16", "my-model@1@0@b2@bfloat16", "my-model@1@0@c3@bfloat16"}

const request = "request-1" // the proxy's name of the prompt, the same in both processes

func main() {
	run := map[string]func(context.Context) error{"prefill": prefill, "decode": decode}
	if len(os.Args) != 2 || run[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: embed prefill | embed decode")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run[os.Args[1]](ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// openNode opens the node that a configuration file describes. The program passes the control transport and the data
// planes as options, so that a program contains only the transports and planes that it uses.
func openNode(ctx context.Context, file string) (*runtime.Node, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse(file, text, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	return runtime.Open(ctx, cfg,
		runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, shm.Open), // for peers on this host
		runtime.WithPlane(tcp.Name, tcp.Open)) // for all others
}

func prefill(ctx context.Context) (err error) {
	node, err := openNode(ctx, "prefill.yaml")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close(ctx)) }()

	// The pages belong to this process until Put, and again after it.
	pages, err := node.Sender().Reserve(ctx, len(keys))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pages.Release(ctx)) }()
	for i := range keys {
		page, err := pages.Bytes(i)
		if err != nil {
			return err
		}
		for j := range page {
			page[j] = byte(i + 1) // a real engine copies KV from the GPU here
		}
	}
	result, err := node.Sender().Put(ctx, runtime.Put{
		Peer:    runtime.Peer{Host: "127.0.0.1", InitPort: 7300, AllocPort: 7400}, // where the decode listens
		Request: request, Keys: keys, Pages: pages, Last: true})
	if err != nil {
		return fmt.Errorf("nothing was lost, try again or let the decode compute: %w (%v)", err, runtime.CodeOf(err))
	}
	fmt.Printf("prefill: sent %d chunks\n", result.Sent)
	return nil
}

func decode(ctx context.Context) (err error) {
	node, err := openNode(ctx, "decode.yaml")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close(ctx)) }()

	// Get returns the longest prefix of the keys whose chunks have arrived. The decode process may call Get before the
	// prefill process has begun.
	chunks, err := node.Receiver().Get(ctx, runtime.Get{Request: request, Keys: keys, Timeout: 30 * time.Second})
	switch code := runtime.CodeOf(err); {
	case code == effects.NotFound || code == effects.Lapsed: // a miss is no failure: the engine computes the rest
		fmt.Printf("decode: %d of %d chunks are here: %v\n", chunks.Len(), len(keys), err)
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, chunks.Release(ctx)) }() // until then the pages stay as they are
	for i := range chunks.Len() {
		page, err := chunks.Bytes(i)
		if err != nil {
			return err
		}
		fmt.Printf("decode: chunk %d has %d bytes, each of them %d\n", i, len(page), page[0])
	}
	return nil
}
