//go:build cgo && linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/internal/watch"
	"github.com/kvferry/kvferry/runtime/npu"
)

// A nodeSpec says which node to open.
type nodeSpec struct {
	Role   string // "sender" or "receiver"
	Mode   string // "push", "pull", "delay" or "offload"
	Server string // in rank tables: HCCS connects NPUs of the same server
	Place  int    // of the NPU in the test; determines the RoCE address
	Device int    // that AscendCL counts
	Rank   int
	Pages  int // 8 if zero

	Lease      time.Duration // of a receiver's write grants and of a sender's offers
	Transfer   time.Duration // the plane's limit for a batch
	StuckAfter time.Duration // the device's limit for a copy
	Prepare    time.Duration // the plane's limit for each phase of connecting; 3 s if zero
	Tries      int           // of communicators
	HitTrigger hitTrigger
}

const nodeText = `enable_pd: true
pd_role: %s
transfer_channel: hccl
chunk_size: 16
pd_buffer_size: %d
pd_buffer_device: npu:%d
pd_shutdown_timeout_sec: 20
pd_peer_host: 127.0.0.1
%sextra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}
    peer_share_pct: 100
`

// nodeConfig returns the configuration of a node with ports of the system's choice.
func (s *nodeSpec) nodeConfig() (*config.Config, error) {
	pages := s.Pages
	if pages == 0 {
		pages = 8
	}
	more := "pd_peer_init_port: [1, 2]\npd_peer_alloc_port: [3, 4]\n"
	if s.Role == "sender" {
		more = "pd_skip_proxy_notification: true\n"
	}
	if s.Mode != "push" {
		more += "pd_pull_mode: true\n"
	}
	if s.Mode != "push" && s.Role == "sender" {
		more += "pd_peer_init_port: [1, 2]\npd_pull_done_port: [5, 6]\n"
	}
	if s.Mode == "offload" && s.Role == "sender" {
		more += fmt.Sprintf("pd_use_cpu_offload: true\npd_cpu_buffer_size: %d\npd_pull_backpressure_reserve_pct: 0\n",
			pages*pageBytes)
	}
	if (s.Mode == "delay" || s.Mode == "offload") && s.Role == "receiver" {
		more += "pd_delay_pull: true\n"
	}
	cfg, err := config.Parse("test", fmt.Appendf(nil, nodeText, s.Role, pages*pageBytes, s.Device, more), nil)
	if err != nil {
		return nil, err
	}
	clear(cfg.InitPorts)
	clear(cfg.AllocPorts)
	clear(cfg.Pull.DonePorts)
	if lease := effects.Duration(s.Lease); lease > 0 {
		cfg.Machine.Lease, cfg.Machine.PullTTL, cfg.Machine.LeadMin, cfg.Machine.LeaseGuard = lease, lease, lease/8, lease/4
	}
	return cfg, nil
}

// planeConfig returns the configuration of the node's plane.
func (s *nodeSpec) planeConfig(n *testNode) hccl.Config {
	prepare := s.Prepare
	if prepare == 0 {
		prepare = 3 * time.Second
	}
	return hccl.Config{
		Context: n.device.Context(), Library: n.comm, SoC: n.acl.Info().SoC,
		Rank: comm.Rank{
			Server: s.Server, Device: uint32(s.Device), Port: uint16(16666 + s.Place),
			Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(s.Place + 1)}),
		},
		Host: "127.0.0.1", TransferTimeout: s.Transfer, PrepareTimeout: prepare, RebuildTries: s.Tries,
	}
}

// A testNode is a node with the library, device and plane below it, as in a program on NPUs.
type testNode struct {
	comm   *comm.Library
	acl    *acl.Library
	device *npu.Device
	engine *engine
	node   *runtime.Node

	mu    sync.Mutex
	pages []*runtime.Pages
	puts  []runtime.PutResult
}

// openTestNode opens everything, or nothing.
func openTestNode(library string, s *nodeSpec, onBreach func(error)) (n *testNode, err error) {
	n = &testNode{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.closeBelow())
			n = nil
		}
	}()
	cfg, err := s.nodeConfig()
	if err != nil {
		return n, err
	}
	if n.comm, err = comm.Open(comm.Options{Library: library}); err != nil {
		return n, err
	}
	if n.acl, err = acl.Open(acl.Options{Library: library}); err != nil {
		return n, err
	}
	if n.device, err = npu.Open(n.acl, npu.Options{Device: acl.DeviceID(s.Device), StuckAfter: s.StuckAfter}); err != nil {
		return n, err
	}
	if n.engine, err = newEngine(n.acl, n.device, acl.DeviceID(s.Device)); err != nil {
		return n, err
	}
	out := io.Discard
	if os.Getenv("KVFERRY_NODES_LOG") != "" {
		out = os.Stderr
	}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})).With("role", s.Role)
	n.node, err = runtime.Open(context.Background(), cfg, runtime.WithRank(s.Rank), runtime.WithLogger(log),
		runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithDevice(n.device.Open), runtime.WithPlane(hccl.Name, s.planeConfig(n).Open))
	if err != nil {
		return n, err
	}
	n.checkContract(&s.HitTrigger, onBreach)
	return n, nil
}

// checkContract checks the machine and its drivers against the contract, and arms the trigger that hits the process.
func (n *testNode) checkContract(at *hitTrigger, onBreach func(error)) {
	checker := contract.New(false)
	strikes := at.newHandler(hitSelf)
	watch.ObserveNode(n.node,
		func(ev effects.Event) { onBreach(checker.CheckEvent(ev)); strikes(ev) },
		func(e effects.Effect) { onBreach(checker.CheckEffect(e)); strikes(e) })
}

// closeAll closes the node, then the objects below it.
func (n *testNode) closeAll(ctx context.Context) error {
	if err := n.node.Close(ctx); err != nil {
		return errors.Join(fmt.Errorf("the node: %w", err), n.closeBelow())
	}
	return n.closeBelow()
}

// closeBelow closes the objects below a node, and skips objects that are closed already.
func (n *testNode) closeBelow() error {
	var errs []error
	step := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	if n.engine != nil {
		step("the engine", n.engine.closeContext())
	}
	if n.device != nil {
		step("the device", n.device.Close())
	}
	if n.comm != nil {
		step("hccl", n.comm.Close())
	}
	if n.acl != nil {
		step("ascendcl", n.acl.Close())
	}
	return errors.Join(errs...)
}

func (n *testNode) peerAddr() runtime.Peer {
	var p runtime.Peer
	for _, s := range n.node.Servers() {
		p.Host = s.Addr.Host
		switch s.Channel {
		case effects.ChannelInit:
			p.InitPort = s.Addr.Port
		case effects.ChannelAlloc:
			p.AllocPort = s.Addr.Port
		case effects.ChannelProxy, effects.ChannelDone:
		}
	}
	return p
}
