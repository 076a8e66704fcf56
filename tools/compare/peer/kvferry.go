//go:build cgo && linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// getTimeout is far longer than the duration of a move.
const getTimeout = time.Minute

// openNode opens the node of an end. A chunk is a page with one layer of 16-bit numbers.
func openNode(role, channel string, s Setup, more string) (*runtime.Node, error) {
	const tokens = 16
	text := fmt.Sprintf(`enable_pd: true
pd_role: %s
transfer_channel: %s
chunk_size: %d
pd_buffer_size: %d
pd_buffer_device: cpu
%sextra_config:
  kvferry:
    layout: {num_layers: 1, num_kv_heads: 1, head_size: %d, dtype: bfloat16}
    peer_share_pct: 100
    poll.us: %d
    link.window: %d
`, role, channel, tokens, total, more, s.Bytes/(2*tokens*2), s.PollUS, max(s.Window, 1))
	cfg, err := config.Parse("compare", []byte(text), nil)
	if err != nil {
		return nil, err
	}
	for _, ports := range [][]uint16{cfg.InitPorts, cfg.AllocPorts} {
		clear(ports) // The system chooses.
	}
	return runtime.Open(context.Background(), cfg, runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
		runtime.WithPlane(shm.Name, shm.Open), runtime.WithPlane(tcp.Name, tcp.Open))
}

type receiver struct {
	node        *runtime.Node
	lastRequest int
}

func newReceiver(channel string) func(Setup) (target, error) {
	return func(s Setup) (target, error) {
		n, err := openNode("receiver", channel, s, "pd_peer_host: 127.0.0.1\npd_peer_init_port: 1\npd_peer_alloc_port: 2\n")
		return &receiver{node: n}, err
	}
}

func (r *receiver) connectInfo() (json.RawMessage, error) {
	p := runtime.Peer{Host: "127.0.0.1"}
	for _, s := range r.node.Servers() {
		switch s.Channel { //nolint:exhaustive // Initiators use only these channels.
		case effects.ChannelInit:
			p.InitPort = s.Addr.Port
		case effects.ChannelAlloc:
			p.AllocPort = s.Addr.Port
		}
	}
	return json.Marshal(p)
}

func requestKeys(number, chunks int) (request string, keys []string) {
	request, keys = fmt.Sprintf("r%d", number), make([]string, chunks)
	for i := range keys {
		keys[i] = fmt.Sprintf("compare@1@0@%x@bfloat16", number<<20+i)
	}
	return request, keys
}

// takeMoves gets the chunks of each move, as an engine does, and releases them.
func (r *receiver) takeMoves(w Work) error {
	ctx := context.Background()
	gets := make([]runtime.Get, w.Moves)
	for i := range gets {
		r.lastRequest++
		gets[i].Request, gets[i].Keys = requestKeys(r.lastRequest, w.Chunks)
		gets[i].Timeout = getTimeout
	}
	for _, get := range gets {
		pages, err := r.node.Receiver().Get(ctx, get)
		if err == nil && pages.Len() != w.Chunks {
			err = fmt.Errorf("%d chunks of %d", pages.Len(), w.Chunks)
		}
		if err != nil {
			return err
		}
		if err := pages.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

type sender struct {
	node        *runtime.Node
	peer        runtime.Peer
	pages       *runtime.Pages
	setup       Setup
	lastRequest int
	put         runtime.Put
}

func newSender(channel string) func(Setup, json.RawMessage) (initiator, error) {
	return func(s Setup, connectInfo json.RawMessage) (initiator, error) {
		n, err := openNode("sender", channel, s, "pd_skip_proxy_notification: true\n")
		if err != nil {
			return nil, err
		}
		x := &sender{node: n, setup: s}
		if err := json.Unmarshal(connectInfo, &x.peer); err != nil {
			return nil, err
		}
		if x.pages, err = n.Sender().Reserve(context.Background(), total/s.Bytes); err != nil {
			return nil, err
		}
		for i := range x.pages.Len() {
			host, err := x.pages.Bytes(i)
			if err != nil {
				return nil, err
			}
			for j := 0; j < len(host); j += 8 {
				host[j] = byte(i)
			}
		}
		return x, nil
	}
}

func (x *sender) pickChunks(chunks int) {
	x.lastRequest++
	request, keys := requestKeys(x.lastRequest, chunks)
	x.put = runtime.Put{Peer: x.peer, Request: request, Keys: keys, Pages: x.pages, First: drawFirst(x.setup.Bytes, chunks),
		Last: true}
}

func (x *sender) moveChunks(int) error {
	_, err := x.node.Sender().Put(context.Background(), x.put)
	return err
}
