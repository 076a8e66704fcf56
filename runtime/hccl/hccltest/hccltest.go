//go:build cgo && linux

// Package hccltest has helpers for tests of the hccl plane: the software NPU of this process, memory on its devices,
// and the plane's configuration. Only tests import it.
package hccltest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/acl/acltest"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/softnpu"
)

// A Rig is the software NPU of this process, with both bindings on it.
type Rig struct {
	NPU  *acltest.NPU
	ACL  *acl.Library
	HCCL *comm.Library
}

var loadOnce = sync.OnceValues(func() (*Rig, error) {
	path := os.Getenv("KVFERRY_SOFTNPU") // for example a sanitized one, or one of an older CANN
	if path == "" {
		var err error
		if path, err = (softnpu.Variant{}).BuildLibrary(); err != nil {
			return nil, err
		}
	}
	// R is then 134 ms and the margin: long enough for writes to land late, short enough for tests to wait for.
	library, err := comm.Open(comm.Options{Library: path, RDMATimeout: 12})
	if err != nil {
		return nil, err
	}
	npu, err := acltest.OpenNPU(path)
	if err != nil {
		return nil, err
	}
	runtime, err := acl.Open(acl.Options{Library: path})
	return &Rig{NPU: npu, ACL: runtime, HCCL: library}, err
})

// LoadRig returns the rig of this process, or skips the test if the tools to build the software NPU are missing.
func LoadRig(tb testing.TB) *Rig {
	tb.Helper()
	r, err := loadOnce()
	if errors.Is(err, softnpu.ErrNoTools) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// StartRig returns the rig of this process. At the test's end nothing may be left on the devices, and no rule of the
// vendor may have been broken.
func StartRig(tb testing.TB) *Rig {
	tb.Helper()
	r := LoadRig(tb)
	before := r.RunCommand(tb, "leaks")
	tb.Cleanup(func() {
		r.RunCommand(tb, "clear")
		if now := r.RunCommand(tb, "leaks"); now != before {
			tb.Errorf("objects on the devices after the test:\n%sand before the test:\n%s", now, before)
		}
		if broken := r.RunCommand(tb, "violations"); broken != "" {
			tb.Errorf("the test broke rules of the vendor:\n%s", broken)
		}
		if tb.Failed() {
			tb.Logf("log of the software NPU:\n%s", r.RunCommand(tb, "log"))
		}
		r.RunCommand(tb, "forget")
	})
	return r
}

// RunCommand sends the software NPU a command.
func (r *Rig) RunCommand(tb testing.TB, command string) string {
	tb.Helper()
	reply, err := r.NPU.Control(command)
	if err != nil {
		tb.Fatal(err)
	}
	return reply
}

// AddFaults adds fault rules until ClearFaults, or until the test's end.
func (r *Rig) AddFaults(tb testing.TB, rules string) {
	tb.Helper()
	r.RunCommand(tb, "faults "+rules)
}

// ClearFaults removes all fault rules.
func (r *Rig) ClearFaults(tb testing.TB) {
	tb.Helper()
	r.RunCommand(tb, "clear")
}

// ReadStat returns a counter of the software NPU.
func (r *Rig) ReadStat(tb testing.TB, name string) int64 {
	tb.Helper()
	stats, err := r.NPU.Stats()
	if err != nil {
		tb.Fatal(err)
	}
	return stats[name]
}

// Options describe the nodes of a test.
type Options struct {
	HCCS       bool               // all nodes on one server; otherwise on separate servers, connected by RoCE
	Host       bool               // the pool is in host memory
	SecondPool bool               // a second pool: on the device if the first is on the host, and the reverse
	Change     func(*hccl.Config) // further changes
}

// longTimeout is a timeout so long that the test ends before a node gives anything up.
const longTimeout = time.Minute

// NodeMaker makes nodes of leased planes: node 1 on device 0, node 2 on device 1, and so on. In tests with a
// planetest.Fleet they have certificates.
func (r *Rig) NodeMaker(o Options) planetest.LeasedMaker {
	return planetest.LeasedMaker(func(tb testing.TB, id byte, pages uint32, pageBytes uint64, sink plane.Sink) planetest.LeasedEnd {
		tb.Helper()
		n := r.newNode(tb, id)
		served := n.allocPages(tb, o.Host, uint64(pages)*pageBytes)
		var second plane.SecondPool
		if o.SecondPool {
			second = plane.SecondPool{Buffer: [16]byte{id, 0xc}, Pages: 1, Region: n.allocPages(tb, !o.Host, pageBytes)}
		}
		pool, err := plane.NewLeasedPool(plane.LeasedPoolConfig{
			ID: 3, Buffer: [16]byte{id, 0xb}, Pages: pages, PageBytes: pageBytes, Region: served, SecondPool: second, Sink: sink,
		})
		if err != nil {
			tb.Fatal(err)
		}
		return planetest.LeasedEnd{Pool: pool, Memory: n, Open: r.PlaneConfig(n.ctx, id, o).Open}
	}).WithCertificates()
}

// PlaneConfig returns the plane's configuration of node id.
func (r *Rig) PlaneConfig(ctx *acl.Context, id byte, o Options) hccl.Config {
	c := hccl.Config{
		Context: ctx, Library: r.HCCL, SoC: r.ACL.Info().SoC,
		Rank: comm.Rank{Server: fmt.Sprintf("host-%d", id), Device: uint32(ctx.Device()),
			Address: netip.AddrFrom4([4]byte{192, 168, 0, id})},
		TransferTimeout: longTimeout, CancelGrace: longTimeout,
		// short and tried often, because a wait for a peer that was killed meanwhile cannot be interrupted
		PrepareTimeout: 3 * time.Second, RebuildTries: 100,
	}
	if o.HCCS {
		c.Rank.Server = "host"
	}
	if strings.HasPrefix(c.SoC, "Ascend910_93") {
		c.Rank.Pod = &comm.Pod{ID: 1, Device: int64(id)}
		if !o.HCCS {
			c.Rank.Pod.ID = int64(id)
		}
	}
	if o.Change != nil {
		o.Change(&c)
	}
	return c
}

// A node is a device with the memory of a test's node.
type node struct {
	ctx    *acl.Context
	memory []*acl.Memory
}

func (r *Rig) newNode(tb testing.TB, id byte) *node {
	tb.Helper()
	devices, err := r.ACL.DeviceCount()
	if err != nil {
		tb.Fatal(err)
	}
	n := &node{}
	if n.ctx, err = r.ACL.NewContext(acl.ContextOptions{Device: acl.DeviceID((int(id) - 1) % devices)}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := n.ctx.Close(); err != nil {
			tb.Errorf("closing the context of node %d: %v", id, err)
		}
	})
	return n
}

// allocPages allocates whole pages of 2 MiB, which HCCS needs.
func (n *node) allocPages(tb testing.TB, host bool, size uint64) plane.Region {
	tb.Helper()
	const huge = 2 << 20
	size = (size + huge - 1) / huge * huge
	var m *acl.Memory
	if err := n.ctx.Do(func(t *acl.Thread) (err error) {
		if host {
			m, err = t.AllocHost(size)
		} else {
			m, err = t.AllocDevice(size, acl.HugeFirst)
		}
		return err
	}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := n.ctx.Do(m.Close); err != nil {
			tb.Error(err)
		}
	})
	n.memory = append(n.memory, m)
	return plane.Region{Host: host, Base: m.Address(), Bytes: size}
}

// Store implements planetest.Memory.
func (n *node) Store(at uintptr, b []byte) error {
	return n.ctx.Do(func(t *acl.Thread) error {
		m := n.memoryAt(at)
		if bytes := m.Bytes(); bytes != nil {
			copy(bytes[at-m.Address():], b)
			return nil
		}
		return t.Upload(m.Range(uint64(at-m.Address()), uint64(len(b))), b)
	})
}

// Load implements planetest.Memory.
func (n *node) Load(at uintptr, b []byte) error {
	return n.ctx.Do(func(t *acl.Thread) error {
		m := n.memoryAt(at)
		if bytes := m.Bytes(); bytes != nil {
			copy(b, bytes[at-m.Address():])
			return nil
		}
		return t.Download(b, m.Range(uint64(at-m.Address()), uint64(len(b))))
	})
}

func (n *node) memoryAt(address uintptr) *acl.Memory {
	for _, m := range n.memory {
		if address >= m.Address() && uint64(address-m.Address()) < m.Size() {
			return m
		}
	}
	panic(fmt.Sprintf("BUG: nothing was allocated at %#x", address))
}

// CountInjected returns how many faults the rules have injected.
func (r *Rig) CountInjected(tb testing.TB) int64 {
	tb.Helper()
	return r.ReadStat(tb, "injected")
}
