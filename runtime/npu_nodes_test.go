//go:build cgo && linux

package runtime_test

import (
	"fmt"
	"log/slog"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/npu"
	"github.com/kvferry/kvferry/runtime/npu/npuengine"
)

const npuText = `enable_pd: true
pd_role: %s
transfer_channel: hccl
chunk_size: 16
pd_buffer_size: %d
pd_buffer_device: %s
pd_shutdown_timeout_sec: 60
pd_peer_host: 127.0.0.1
%sextra_config:
  kvferry:
    layout: %s
    peer_share_pct: 100
`

const npuLayout = "{num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}"

func parseNPU(t *testing.T, role string, pages int, memory, more string) *config.Config {
	t.Helper()
	return parseNPUOf(t, npuLayout, role, pages*pageBytes, memory, more)
}

func parseNPUOf(t *testing.T, layout, role string, bytes int, memory, more string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test", fmt.Appendf(nil, npuText, role, bytes, memory, more, layout), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func pushing(t *testing.T, memory string) *config.Config {
	return parseNPU(t, "sender", 8, memory, "pd_skip_proxy_notification: true\n")
}

// pulledFrom has a pool of so many pages on the NPU, or with some in host memory one of these instead.
func pulledFrom(t *testing.T, pages, host int) *config.Config {
	more := "pd_skip_proxy_notification: true\npd_pull_mode: true\npd_pull_done_port: 1\npd_peer_init_port: 2\n" +
		"pd_pull_backpressure_reserve_pct: 0\n"
	if host > 0 {
		more += fmt.Sprintf("pd_use_cpu_offload: true\npd_cpu_buffer_size: %d\n", host*pageBytes)
	}
	cfg := parseNPU(t, "sender", pages, "npu", more)
	cfg.Pull.DonePorts[0], cfg.InitPorts[0] = 0, 0
	return cfg
}

func receiving(t *testing.T, memory string) *config.Config {
	cfg := parseNPU(t, "receiver", 16, memory, "pd_peer_init_port: 1\npd_peer_alloc_port: 2\n")
	cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
	return cfg
}

func delaying(t *testing.T) *config.Config {
	cfg := receiving(t, "npu")
	cfg.Pull.Enabled, cfg.Pull.Delay, cfg.StagingPages = true, true, 4
	return cfg
}

// An npuNode is one on an NPU of its own, with its engine.
type npuNode struct {
	*runtime.Node
	engine *npuengine.Engine
}

// openNPU opens node id over HCCL. The end of the test closes it, and finds its machine and its drivers true to the
// contract.
func openNPU(t *testing.T, r *hccltest.Rig, id byte, cfg *config.Config, o npu.Options, more ...runtime.Option,
) npuNode {
	t.Helper()
	o.Device = acl.DeviceID(id - 1)
	d, err := npu.Open(r.ACL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	engine, err := npuengine.New(r.ACL, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	plane := r.PlaneConfig(d.Context(), id, hccltest.Options{Change: func(c *hccl.Config) { c.OnReadQueued = d.RecordRead }})
	n, err := runtime.Open(t.Context(), cfg, append(more, runtime.WithLogger(slog.New(slog.DiscardHandler)),
		runtime.WithControl(zmq.Config{}.Opener()), runtime.WithDevice(d.Open), runtime.WithPlane(hccl.Name, plane.Open),
		audit(t, false))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(within(t)); err != nil {
			t.Errorf("closing node %d: %v", id, err)
		}
	})
	return npuNode{n, engine}
}

// located is where the device has pages.
func located(t *testing.T, p *runtime.Pages) (at []runtime.DevicePage) {
	t.Helper()
	for i := range p.Len() {
		page, err := p.DevicePage(i)
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, page)
	}
	return at
}

// filled are pages that hold what follows from keys.
func (n npuNode) filled(t *testing.T, keys []string) *runtime.Pages {
	t.Helper()
	p, err := n.Sender().Reserve(within(t), len(keys))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.engine.FillPages(located(t, p), func(i int, b []byte) { contentOf(b, keys[i]) }); err != nil {
		t.Fatal(err)
	}
	return p
}

// wantContent looks on the device for what follows from keys.
func (n npuNode) wantContent(t *testing.T, keys []string) {
	t.Helper()
	p, err := n.Receiver().Get(within(t), runtime.Get{Request: "any", Keys: keys, Timeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	defer mustRelease(t, p)
	at := located(t, p)
	if len(at) != len(keys) {
		t.Fatalf("%d of %d chunks are there", len(at), len(keys))
	}
	if err := n.engine.ReadPages(at, func(i int, b []byte) {
		if len(b) != pageBytes || !isContent(b, keys[i]) {
			t.Errorf("chunk %d, of %d bytes, is not what was put", i, len(b))
		}
	}); err != nil {
		t.Error(err)
	}
}

// Bytes go from the memory of one NPU, or of its host, to that of another, and are right there.
func TestNodesPush(t *testing.T) {
	for _, memory := range []string{"npu", "cpu"} {
		t.Run(memory, func(t *testing.T) {
			rig := hccltest.StartRig(t)
			s, r := openNPU(t, rig, 1, pushing(t, memory), npu.Options{}), openNPU(t, rig, 2, receiving(t, memory),
				npu.Options{})
			for round := range 3 {
				keys := keysOf(fmt.Sprint("push", round), 5)
				pages := s.filled(t, keys)
				if _, err := pages.Bytes(0); (err == nil) != (memory == "cpu") || memory == "npu" &&
					runtime.CodeOf(err) != effects.Unsupported {
					t.Errorf("a page in memory of %s is at hand: %v", memory, err)
				}
				res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r.Node), Keys: keys, Pages: pages})
				if err != nil || res.Sent != len(keys) {
					t.Fatalf("%+v, %v", res, err)
				}
				mustRelease(t, pages)
				r.wantContent(t, keys)
			}
		})
	}
}

// mapped is the pool of a node as an engine in another process has it.
func mapped(t *testing.T, n *runtime.Node) []byte {
	t.Helper()
	m, err := n.Mapping()
	if err != nil {
		t.Fatal(err)
	}
	mem, err := syscall.Mmap(int(m.File.Fd()), int64(m.Offset), int(m.PageBytes)*int(m.Pages),
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem
}

// chunkIn is where an engine has chunk i of a handle in the memory that it mapped.
func chunkIn(t *testing.T, mem []byte, pages *runtime.Pages, i int) []byte {
	t.Helper()
	index, length, err := pages.MappedPage(i)
	if err != nil {
		t.Fatal(err)
	}
	return mem[int(index)*pageBytes:][:length]
}

// Engines of other processes map pools of pinned memory, which HCCL moves from one to the other.
func TestNodesPushWhatEnginesMap(t *testing.T) {
	rig := hccltest.StartRig(t)
	s := openNPU(t, rig, 1, pushing(t, "cpu"), npu.Options{}, runtime.WithAttachable())
	r := openNPU(t, rig, 2, receiving(t, "cpu"), npu.Options{}, runtime.WithAttachable())
	from, to := mapped(t, s.Node), mapped(t, r.Node)
	for round := range 3 {
		keys := keysOf(fmt.Sprint("mapped", round), 5)
		pages, err := s.Sender().Reserve(within(t), len(keys))
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range keys {
			contentOf(chunkIn(t, from, pages, i), key)
		}
		res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r.Node), Keys: keys, Pages: pages})
		if err != nil || res.Sent != len(keys) {
			t.Fatalf("%+v, %v", res, err)
		}
		mustRelease(t, pages)
		got, err := r.Receiver().Get(within(t), runtime.Get{Request: "any", Keys: keys, Timeout: limit})
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range keys {
			if !isContent(chunkIn(t, to, got, i), key) {
				t.Errorf("chunk %d is not what was put", i)
			}
		}
		mustRelease(t, got)
	}
}

// With offload the pool is the host's memory, and the NPU gives nothing of its own: a request of 100 chunks goes
// through a prefill whose pd_buffer_size is a 666th of pd_cpu_buffer_size, as in LMCache-Ascend's example (32 MB and 20
// GB). The engine computes on the NPU and copies to the pages; the receiver's NIC reads them there.
func TestNodesOffload(t *testing.T) {
	const chunks, host = 100, 1998
	rig := hccltest.StartRig(t)
	cfg := pulledFrom(t, 3, host)
	rig.AddFaults(t, "oom:device=0,after=0")
	s := openNPU(t, rig, 1, cfg, npu.Options{StuckAfter: limit})
	rig.ClearFaults(t)
	r := openNPU(t, rig, 2, delaying(t), npu.Options{StuckAfter: limit})
	keys := keysOf("request", chunks)
	pages := s.filled(t, keys)
	if _, err := pages.Bytes(0); err != nil {
		t.Errorf("a page of the host is not at hand: %v", err)
	}
	if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r.Node), Request: "all", Keys: keys, Pages: pages,
		Last: true}); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got.PagesTotal != host || got.PagesFree != host-chunks || got.PagesLeased != chunks {
		t.Errorf("while nobody has read: %+v", got)
	}
	r.fetch(t, "all", keys)
	mustRelease(t, pages)
	waitFor(t, s.Node, "the end of the loans", func(s rank.Stats) bool { return s.PagesFree == host && s.Puts == 0 })
}

// fetch has the engine take chunks, which looks at them in memory of its own.
func (n npuNode) fetch(t *testing.T, request string, keys []string) {
	t.Helper()
	seen := 0
	taken, err := n.Receiver().Fetch(within(t), runtime.Fetch{Request: request, Keys: keys, Timeout: limit,
		ScatterDevice: n.engine.ScatterFunc(func(key int, chunk []byte) {
			if key != seen || !isContent(chunk, keys[key]) {
				t.Errorf("chunk %d, which came as number %d, is not what was put", key, seen)
			}
			seen++
		})})
	if err != nil || taken != len(keys) || seen != len(keys) {
		t.Errorf("%d of %d chunks were fetched, %d looked at: %v", taken, len(keys), seen, err)
	}
}

// In delayed pull chunks are read from a peer's NPU batch by batch and scattered on a stream of their own, which waits
// for the reads.
func TestNodesFetch(t *testing.T) {
	rig := hccltest.StartRig(t)
	a, b := openNPU(t, rig, 1, pulledFrom(t, 8, 0), npu.Options{}), openNPU(t, rig, 2, pulledFrom(t, 8, 0), npu.Options{})
	r := openNPU(t, rig, 3, delaying(t), npu.Options{})
	var keys []string
	for i, from := range []npuNode{a, b, a} {
		part := keysOf(fmt.Sprint("part", i), 4)
		pages := from.filled(t, part)
		if _, err := from.Sender().Put(within(t), runtime.Put{Peer: peerOf(r.Node), Request: "r", Keys: part,
			Pages: pages}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { mustRelease(t, pages) })
		keys = append(keys, part...)
	}
	// A fetch for memory of the process is refused, and takes nothing.
	if _, err := r.Receiver().Fetch(within(t), runtime.Fetch{Request: "r", Keys: keys,
		Scatter: failingScatter(t)}); runtime.CodeOf(err) != effects.Invalid {
		t.Fatalf("a fetch with Scatter ended as %v", err)
	}
	before := rig.ReadStat(t, "calls.aclrtStreamWaitEvent")
	r.fetch(t, "r", keys)
	if n := rig.ReadStat(t, "calls.aclrtStreamWaitEvent") - before; n == 0 {
		t.Error("no stream has waited for another")
	}
	for _, from := range []npuNode{a, b} {
		waitFor(t, from.Node, "the end of the loans", func(s rank.Stats) bool { return s.PagesLeased == 0 })
	}
}

// While a scatter is under way, hanging even, the next batch is read: the overlap is the device's own.
func TestNodesReadWhileTheyScatter(t *testing.T) {
	rig := hccltest.StartRig(t)
	s, r := openNPU(t, rig, 1, pulledFrom(t, 8, 0), npu.Options{}), openNPU(t, rig, 2, delaying(t),
		npu.Options{StuckAfter: limit})
	keys := keysOf("overlap", 8)
	pages := s.filled(t, keys)
	defer mustRelease(t, pages)
	if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r.Node), Request: "r", Keys: keys,
		Pages: pages}); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{}, len(keys))
	r.Watch(func(ev effects.Event) {
		if ev, ok := ev.(*effects.TransferDone); ok && ev.Code == effects.OK {
			read <- struct{}{}
		}
	}, func(effects.Effect) {})
	rig.AddFaults(t, "done:of=copy,hang=1")
	fetched := make(chan struct{})
	go func() {
		defer close(fetched)
		r.fetch(t, "r", keys)
	}()
	for batch := range 2 {
		select {
		case <-read:
		case <-within(t).Done():
			t.Fatalf("batch %d was not read while the first was scattered", batch)
		}
	}
	select {
	case <-fetched:
		t.Error("the fetch ended although its first scatter hangs")
	default:
	}
	rig.ClearFaults(t)
	rig.RunCommand(t, "release")
	<-fetched
}

// A device without enough memory is an outcome of its own, and leaves nothing behind.
func TestNodesWithoutMemory(t *testing.T) {
	rig := hccltest.StartRig(t)
	d, err := npu.Open(rig.ACL, npu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	rig.AddFaults(t, "oom:device=0,after=0")
	_, err = runtime.Open(t.Context(), receiving(t, "npu"), runtime.WithLogger(slog.New(slog.DiscardHandler)),
		runtime.WithControl(zmq.Config{}.Opener()), runtime.WithDevice(d.Open),
		runtime.WithPlane(hccl.Name, rig.PlaneConfig(d.Context(), 1, hccltest.Options{}).Open))
	if runtime.CodeOf(err) != effects.NoMemory {
		t.Errorf("got %v", err)
	}
}
