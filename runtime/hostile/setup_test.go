//go:build cgo && linux

package hostile_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// victimSetup in the environment makes the test's binary a node of its own: one under attack, or one that strikes.
const victimSetup = "KVFERRY_HOSTILE"

// A setup is what such a process is.
type setup struct {
	Role    string // "" is a receiver
	Channel string // "" is shm
	Own     string // of kvferry's own keys, indented lines
	Files   uint64 // that it may open
}

func (s setup) role() string { return cmp.Or(s.Role, "receiver") }

// env is how a process is told.
func (s setup) env() string {
	text, _ := json.Marshal(s) // It has nothing that JSON has not.
	return victimSetup + "=" + string(text)
}

// Orders to a victim beside keys to get.
const (
	takeFiles = "!take files"
	giveFiles = "!give files"
	openMore  = "!open " // and a shortage
	putMany   = "!put "  // and a batch
	getNow    = "!now "  // and a key, for which it does not wait
	askSome   = "!ask "  // and the port of who is asked again and again, at an address that only attackers have
	askNobody = "!ask nobody"
)

// A batch is what a process puts one after the other, a chunk each.
type batch struct {
	To    runtime.Peer
	Name  string
	Count int
}

// keys are one for each put, whose request is all before the first @.
func (b batch) key(i int) string { return fmt.Sprintf("%s-%d@1@0@1%x@bfloat16", b.Name, i, i) }

const nodeText = `enable_pd: true
pd_role: %s
transfer_channel: %s
chunk_size: 16
pd_buffer_size: %s
pd_buffer_device: cpu
pd_peer_host: 127.0.0.1
%sextra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}
    peer_share_pct: 100
%s`

// text is a node's configuration with a pool of a size.
func (s setup) text(size string) string {
	more, own := "pd_skip_proxy_notification: true\n", s.Own
	if s.Role == "sender" {
		own += "    lease_guard: 100ms\n" // It has time under the shortest lease here.
	}
	if s.role() == "receiver" {
		more = "pd_peer_init_port: 1\npd_peer_alloc_port: 2\n"
	}
	return fmt.Sprintf(nodeText, s.role(), cmp.Or(s.Channel, shm.Name), size, more, own)
}

func (s setup) open(control zmq.Config, log io.Writer, planes ...runtime.Option) (*runtime.Node, error) {
	return openText(s.text("1MiB"), control, log, planes...)
}

// openText opens a node. Without planes it has those of this host.
func openText(text string, control zmq.Config, log io.Writer, planes ...runtime.Option) (*runtime.Node, error) {
	cfg, err := config.Parse("hostile", []byte(text), nil)
	if err != nil {
		return nil, err
	}
	for i := range cfg.InitPorts {
		cfg.InitPorts[i], cfg.AllocPorts[i] = 0, 0
	}
	if len(planes) == 0 {
		planes = []runtime.Option{runtime.WithPlane(shm.Name, shm.Config{Dir: cfg.Data.SHMDir}.Open),
			runtime.WithPlane(tcp.Name, tcp.Open)}
	}
	return runtime.Open(context.Background(), cfg, append(planes,
		runtime.WithLogger(slog.New(slog.NewTextHandler(log, nil))), runtime.WithControl(control.Opener()))...)
}

// content is what a chunk holds, by its key.
func content(key string, n int) []byte {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	b, x := make([]byte, n), h.Sum64()
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return b
}
