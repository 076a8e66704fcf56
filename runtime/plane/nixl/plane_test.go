//go:build cgo && linux

package nixl_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/nixl"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

func TestContract(t *testing.T) {
	for _, c := range transports {
		t.Run(c.name, func(t *testing.T) { planetest.RunLeased(t, maker(c.transports)) })
	}
}

// The agent of a target whose peer waits for nothing is not polled.
func TestIdleAgentsAreNotPolled(t *testing.T) {
	p := planetest.NewLeasedPair(t, maker("tcp"), pages, 4096)
	target := p.B.Plane.(*nixl.Plane)
	for range 3 {
		push := p.NewPush(t, 0, pages)
		p.WantEnd(t, push, effects.OK)
		// The initiator's message that it waits may still be on its way. The pause is long enough for a thousand
		// polls.
		for tries, before := 0, uint64(0); ; tries++ {
			s := target.Stats()
			if s.WaitingPeers == 0 && s.Polls > 0 && s.Polls == before {
				break
			}
			if tries == 200 {
				t.Fatalf("an agent is still asked: %v", s)
			}
			before = s.Polls
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// Open refuses impossible configurations, and names the field.
func TestConfigurations(t *testing.T) {
	libnixltest.LoadLibrary(t)
	device := func(tb testing.TB, id byte, pages uint32, pageBytes uint64, sink plane.Sink) planetest.LeasedEnd {
		end := maker("")(tb, id, pages, pageBytes, sink)
		served := end.Pool.FirstRegion()
		served.Host = false
		pool, err := plane.NewLeasedPool(plane.LeasedPoolConfig{Pages: pages, PageBytes: pageBytes, Region: served, Sink: sink})
		if err != nil {
			tb.Fatal(err)
		}
		end.Pool = pool
		return end
	}
	change := func(f func(*nixl.Config)) planetest.LeasedMaker { return maker("", f) }
	for _, c := range []struct {
		want string
		open planetest.LeasedMaker
	}{
		{"is device memory", device},
		{"transports", change(func(c *nixl.Config) { c.Transports = "tcp,self" })},
		{"window", change(func(c *nixl.Config) { c.Window = 1000 })},
		{"links", change(func(c *nixl.Config) { c.Links = 1 << 20 })},
		{"cancel grace", change(func(c *nixl.Config) { c.CancelGrace = -1 })},
		{"needs Config.Agents", change(func(c *nixl.Config) { c.Agents = nil })},
	} {
		_, err := planetest.NewLeasedNode(t, c.open, 1, pages, 4096)
		if !errors.Is(err, plane.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
	}
	t.Setenv("UCX_TLS", "tcp")
	if _, err := planetest.NewLeasedNode(t, maker("^cma"), 1, pages, 4096); !errors.Is(err, plane.ErrInvalid) {
		t.Errorf("two words about transports: %v", err)
	}
}
