package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/backing"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

// A slowPlane takes its time to close: until gate is closed it may be at the pool.
type slowPlane struct {
	plane.Plane
	gate <-chan struct{}
}

func (p *slowPlane) Close(ctx context.Context) error {
	select {
	case <-p.gate:
		return p.Plane.Close(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slowToClose is a node that has such a plane.
func slowToClose(t *testing.T, cfg *config.Config, gate <-chan struct{}) *runtime.Node {
	t.Helper()
	n, err := runtime.Open(t.Context(), cfg, runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, func(ctx context.Context, env plane.Env) (plane.Plane, error) {
			p, err := shm.Open(ctx, env)
			return &slowPlane{p, gate}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// mappedPools counts the pools that this process has mapped.
func mappedPools(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "memfd:kvferry-pool")
}

func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A Close whose context is over ends the node all the same: who closes again waits for the same end, and the pool is
// gone then.
func TestCloseMayBeCalledAgain(t *testing.T) {
	before := mappedPools(t)
	gate := make(chan struct{})
	cfg := senderConfig(t, "shm", effects.Addr{})
	cfg.DrainTimeout = 1
	n := slowToClose(t, cfg, gate)
	for range 2 {
		err := n.Close(over())
		wantCode(t, err, effects.Cancelled)
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "plane shm") ||
			!strings.Contains(err.Error(), "close again") {
			t.Errorf("%v; it names neither what has not ended nor the remedy", err)
		}
		if mappedPools(t) == before {
			t.Fatal("the pool was unmapped while a plane was at it")
		}
	}
	ended := make(chan error)
	for range 2 { // Several may wait.
		go func() { ended <- n.Close(within(t)) }()
	}
	close(gate)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := mappedPools(t); n != before {
		t.Errorf("%d pools are mapped, %d were", n, before)
	}
	mustClose(t, n)
}

// A Close that drains holds up no other beyond that one's own time.
func TestACloseWaitsForAnotherNoLongerThanItsContext(t *testing.T) {
	n := open(t, senderConfig(t, "shm", effects.Addr{}))
	pages := mustReserve(t, n, 1)
	first := make(chan error)
	go func() { first <- n.Close(within(t)) }() // It drains for as long as the pages are out.
	for stop := within(t); ; {
		if _, err := n.Receiver().Contains(within(t), keysOf("any", 1)); runtime.CodeOf(err) == effects.Draining {
			break
		}
		if stop.Err() != nil {
			t.Fatal("it does not drain")
		}
	}
	err := n.Close(over())
	wantCode(t, err, effects.Cancelled)
	if err == nil || !strings.Contains(err.Error(), "another Close") {
		t.Errorf("%v; it does not say for whom it waited", err)
	}
	mustRelease(t, pages)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// Nobody has to: the pool is unmapped when nothing is at it any more.
func TestAnAbandonedCloseEndsByItself(t *testing.T) {
	before := mappedPools(t)
	gate := make(chan struct{})
	cfg := senderConfig(t, "shm", effects.Addr{})
	cfg.DrainTimeout = 1
	n := slowToClose(t, cfg, gate)
	wantCode(t, n.Close(over()), effects.Cancelled)
	close(gate)
	for stop := within(t); mappedPools(t) != before; goruntime.Gosched() {
		if stop.Err() != nil {
			t.Fatal("the pool is mapped for good")
		}
	}
}

// A node that could not be opened because its context is over leaves nothing.
func TestAFailedOpenLeavesNoPool(t *testing.T) {
	before := mappedPools(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := runtime.Open(ctx, senderConfig(t, "auto", effects.Addr{}), runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, shm.Open),
		runtime.WithPlane("other", func(context.Context, plane.Env) (plane.Plane, error) {
			cancel()
			return nil, errors.New("no such plane today")
		}))
	if err == nil || strings.Contains(err.Error(), "closing") {
		t.Errorf("%v; want what was wrong, and no more", err)
	}
	if n := mappedPools(t); n != before {
		t.Errorf("%d pools are mapped, %d were", n, before)
	}
}

// A pool that does not fit is told at once, with what was asked for and what there is, and no page of it is waited for
// to fail.
func TestAPoolThatDoesNotFit(t *testing.T) {
	large := func(more string) error {
		cfg, err := config.Parse("test", fmt.Appendf(nil, `enable_pd: true
pd_role: sender
chunk_size: 256
pd_buffer_size: %s
pd_buffer_device: cpu
pd_skip_proxy_notification: true
%s`, "4TiB", more), nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := runtime.Open(t.Context(), cfg, runtime.WithControl(zmq.Config{}.Opener()),
			runtime.WithPlane(shm.Name, shm.Open))
		if err == nil {
			mustClose(t, n)
		}
		return err
	}
	const layout = "layout: {num_layers: 64, num_kv_heads: 8, head_size: 128, dtype: bfloat16}"
	err := large("extra_config: {kvferry: {" + layout + "}}\n")
	wantCode(t, err, effects.NoMemory)
	var short *backing.Shortage
	if !errors.As(err, &short) || short.RequestedBytes < 4<<40 || short.Bytes == 0 || short.Bytes >= 4<<40 {
		t.Errorf("%v; want what was asked for, and what there is", err)
	}
	if err != nil && !strings.Contains(err.Error(), "make pd_buffer_size smaller") {
		t.Errorf("%v; want the remedy", err)
	}
	if err := large("extra_config: {kvferry: {" + layout + ", data: {overcommit: true}}}\n"); err != nil {
		t.Errorf("with overcommit: %v", err)
	}
}

// A stuckPlane cannot be closed while it is stuck, like the plane of a NIC that is not proven to have stopped.
type stuckPlane struct {
	plane.Plane
	stuck bool
}

func (p *stuckPlane) Close(ctx context.Context) error {
	if p.stuck {
		return errors.New("no proof that a peer cannot reach the pool")
	}
	return p.Plane.Close(ctx)
}

// TestNoMemoryIsReturnedWithoutProof: a command is open when the node is closed. While a plane cannot be closed, the
// command's memory stays in use (M8); once the plane is closed, the memory is the engine's again.
func TestNoMemoryIsReturnedWithoutProof(t *testing.T) {
	p := &stuckPlane{stuck: true}
	n, err := runtime.Open(t.Context(), senderConfig(t, "shm", effects.Addr{}), runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, func(ctx context.Context, env plane.Env) (plane.Plane, error) {
			inner, err := shm.Open(ctx, env)
			p.Plane = inner
			return p, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	command := n.OpenCommand(t)
	if err := n.Close(within(t)); err == nil || !strings.Contains(err.Error(), "no proof") {
		t.Errorf("the node was closed: %v", err)
	}
	if out := <-command.Done(); out.Code != effects.Closed || !out.InUse {
		t.Errorf("the command ended with %+v, want it closed and its memory in use", out)
	}
	select {
	case <-command.Returned():
		t.Error("the memory was returned although nothing proves that the plane has stopped")
	default:
	}
	p.stuck = false
	mustClose(t, n)
	<-command.Returned()
}
