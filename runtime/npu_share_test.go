//go:build cgo && linux

package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/npu"
)

// What a node has in pinned memory of the host it copies there, too, and its peer's NPU reads the copies.
func TestNodesShareCopiesOnNPUs(t *testing.T) {
	rig := hccltest.StartRig(t)
	opened := func(id byte, arena int) npuNode {
		text := strings.Replace(npuText, "extra_config:\n", fmt.Sprintf(
			"extra_config:\n  use_host_staging: true\n  os_staging_bytes: %d\n", arena*pageBytes), 1)
		more := "pd_skip_proxy_notification: true\npd_peer_init_port: 1\npd_peer_alloc_port: 2\nenable_p2p: true\n" +
			"p2p_host: 127.0.0.1\np2p_init_ports: [1]\np2p_lookup_ports: [3]\np2p_pull_mode: true\n"
		cfg, err := config.Parse("test", fmt.Appendf(nil, text, "both", 8*pageBytes, "cpu", more, npuLayout), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, ports := range [][]uint16{cfg.InitPorts, cfg.AllocPorts, cfg.Share.LookupPorts} {
			clear(ports)
		}
		return openNPU(t, rig, id, cfg, npu.Options{})
	}
	owner, reader := opened(1, 6), opened(2, 1)
	keys := keysOf("shared", 3)
	pages := owner.filled(t, keys)
	if err := owner.Sharing().Store(within(t), keys, pages, 0); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, pages)
	got, err := reader.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys,
		From: runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(owner.Node).InitPort}})
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, got)
	reader.wantContent(t, keys)
	for _, n := range []npuNode{owner, reader} {
		waitFor(t, n.Node, "the end of all reads", isQuiet)
		if s := n.Stats(); s.ArenaFree != s.ArenaTotal || s.ArenaTotal == 0 || s.Pinned != 0 {
			t.Errorf("%d of %d arena pages are free, %d of the pool are pinned", s.ArenaFree, s.ArenaTotal, s.Pinned)
		}
		wantNothingHeld(t, n.Node)
	}
}

// What one NPU's engine has stored another NPU gets from its node, which does prefill and decode as well.
func TestNodesShareOnNPUs(t *testing.T) {
	rig := hccltest.StartRig(t)
	opened := func(id byte) npuNode {
		cfg := parseNPU(t, "both", 8, "npu", "pd_skip_proxy_notification: true\npd_peer_init_port: 1\n"+
			"pd_peer_alloc_port: 2\nenable_p2p: true\np2p_host: 127.0.0.1\np2p_init_ports: [1]\np2p_lookup_ports: [3]\n")
		for _, ports := range [][]uint16{cfg.InitPorts, cfg.AllocPorts, cfg.Share.LookupPorts} {
			clear(ports)
		}
		return openNPU(t, rig, id, cfg, npu.Options{})
	}
	owner, reader := opened(1), opened(2)
	keys := keysOf("shared", 3)
	pages := owner.filled(t, keys)
	if err := owner.Sharing().Store(within(t), keys, pages, 0); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, pages)
	put := reader.filled(t, keysOf("put", 2))
	if _, err := reader.Sender().Put(within(t),
		runtime.Put{Peer: peerOf(owner.Node), Keys: keysOf("put", 2), Pages: put}); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, put)
	got, err := reader.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys,
		From: runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(owner.Node).InitPort}})
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, got)
	reader.wantContent(t, keys)
	owner.wantContent(t, keysOf("put", 2))
	for _, n := range []npuNode{owner, reader} {
		waitFor(t, n.Node, "the end of all reads", isQuiet)
		wantNothingHeld(t, n.Node)
	}
}
