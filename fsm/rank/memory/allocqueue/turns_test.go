package allocqueue

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// turnRig is a queue of the classes 1 to 9, which counts what is served without a pool that runs short.
type turnRig struct {
	*testing.T
	v    *env.Env
	p    Queue
	sent uint64
}

func newTurnRig(t *testing.T) *turnRig {
	timers := kernel.NewTimers(64)
	pools := memory.New(8, 10, prng.Shuffle{}, memory.PoolConfig{Pages: 64, ClassShare: 64})
	r := &turnRig{T: t, v: &env.Env{Now: effects.Time(effects.Second), Out: &effects.Effects{}, Timers: &timers, Pools: &pools,
		Pool: pools.Pool(0)}}
	r.p = New(Settings{WaitersMax: 64, WaitingBytes: 1 << 20, BypassMax: 3}, 10)
	return r
}

// setOrigin says of which origin the peers of classes are.
func (r *turnRig) setOrigin(origin effects.Origin, classes ...int) {
	for _, class := range classes {
		r.v.Pools.SetOrigin(class, origin)
	}
}

// enqueue lets a request of each class wait.
func (r *turnRig) enqueue(classes ...int) {
	r.Helper()
	for _, class := range classes {
		r.sent++
		if why := r.p.Enqueue(r.v, Row{Class: class, Operation: r.sent}, &effects.Received{}, []uint64{r.sent}, effects.Second); why != nil {
			r.Fatalf("a request of class %d cannot wait: %+v", class, why)
		}
	}
}

// serve serves the first head that has a turn, and returns its class.
func (r *turnRig) serve() int {
	x := r.p.HeadsInTurn(r.v)[0]
	if x.Request == 0 {
		r.p.SetEngineHead(0, 0)
		r.p.CountEnginePass(r.v)
	} else {
		r.p.RecordResult(r.v, x.Request, Served, Shortfall{}, 0)
	}
	return x.class
}

// pass counts that a new request of a class is served at once.
func (r *turnRig) pass(times, class int) {
	for range times {
		r.p.CountPass(r.v, class)
	}
}

// classesInTurn returns the classes that may be served now, in the order of their turns.
func (r *turnRig) classesInTurn() (classes []int) {
	for _, x := range r.p.HeadsInTurn(r.v) {
		classes = append(classes, x.class)
	}
	return classes
}

func (r *turnRig) want(got any, want ...int) {
	r.Helper()
	if got := got.([]int); !slices.Equal(got, want) {
		r.Errorf("the classes are %v, want %v", got, want)
	}
}

// A host with many names and one with a single name have the same number of turns; the names of a host have turns in
// their order. The engine has a turn like a host.
func TestOriginsTakeTurns(t *testing.T) {
	r := newTurnRig(t)
	r.setOrigin(1, 1, 2, 3, 4, 5, 6)
	r.setOrigin(2, 9)
	r.enqueue(1, 2, 3, 4, 5, 6, 1, 2, 9, 9, 9)
	r.p.SetEngineHead(1, 1)
	var order []int
	for r.p.HasWaiting() {
		order = append(order, r.serve())
	}
	r.want(order, 0, 1, 9, 2, 9, 3, 9, 4, 5, 6, 1, 2)
}

// The turn belongs to the host, whatever it is called: a host that comes back under a new name after each service has no
// turn before the other host.
func TestTurnsOutliveNames(t *testing.T) {
	r := newTurnRig(t)
	r.setOrigin(2, 3)
	r.enqueue(3, 3, 3, 3)
	var order []int
	for _, next := range []int{5, 1, 5, 1} {
		r.setOrigin(1, next)
		r.enqueue(next)
		order = append(order, r.serve(), r.serve())
		r.v.Pools.ReassignClass(next)
	}
	for i := range order[1:] {
		if (order[i] == 3) == (order[i+1] == 3) {
			t.Fatalf("the classes are served in the order %v: a host has two turns before the other", order)
		}
	}
}

// Pages are collected for an origin that others passed too often: no other origin is served until it is, and any of its
// names may be. A service of the origin ends the count.
func TestPassesOfOtherOrigins(t *testing.T) {
	r := newTurnRig(t)
	r.setOrigin(1, 1, 2)
	r.setOrigin(2, 3, 4)
	r.enqueue(1, 2, 3)
	r.pass(2, 4)
	if !r.p.CanServeNow(r.v, 4, 0) {
		t.Fatal("pages are collected after two passes of three")
	}
	r.pass(1, 4)
	if r.p.CanServeNow(r.v, 4, 0) || r.p.CanServeNow(r.v, 5, 0) {
		t.Error("another origin is served while pages are collected")
	}
	r.want(r.classesInTurn(), 1, 2)
	r.serve()
	r.want(r.classesInTurn(), 3, 2)
	if !r.p.CanServeNow(r.v, 5, 0) {
		t.Error("pages are collected for an origin that was served")
	}
}

// Pages are collected for a name that other names of its origin passed too often: none of these is served, and other
// origins go on.
func TestPassesOfOtherNames(t *testing.T) {
	r := newTurnRig(t)
	r.setOrigin(1, 1, 2, 5)
	r.setOrigin(2, 3, 4)
	r.enqueue(1)
	r.pass(2, 2)
	r.enqueue(5, 3)
	r.pass(1, 2)
	if r.p.CanServeNow(r.v, 2, 0) {
		t.Error("another name of the origin is served while pages are collected")
	}
	if !r.p.CanServeNow(r.v, 4, 0) {
		t.Error("another origin waits while an origin collects pages for one of its names")
	}
	r.want(r.classesInTurn(), 3, 1)
}

// Of two origins that others passed too often, the one that was passed most is served first, however many names the other
// one has.
func TestMostPassedOriginFirst(t *testing.T) {
	r := newTurnRig(t)
	r.setOrigin(1, 1)
	r.setOrigin(2, 2, 3, 4)
	r.setOrigin(3, 9)
	r.enqueue(1)
	r.pass(1, 9)
	r.enqueue(2, 3, 4)
	r.pass(3, 9)
	r.want(r.classesInTurn(), 1)
	r.serve()
	r.want(r.classesInTurn(), 2, 3, 4)
	r.enqueue(1)
	r.serve()
	r.want(r.classesInTurn(), 1, 3, 4)
}

// A request that waits for the share of its class is not passed.
func TestShareIsNoPass(t *testing.T) {
	r := newTurnRig(t)
	r.setOrigin(1, 1)
	r.setOrigin(2, 2)
	r.enqueue(1)
	r.p.Get(r.p.FirstOf(1)).PagesMax = 65
	r.pass(5, 2)
	if !r.p.CanServeNow(r.v, 2, 0) {
		t.Error("pages are collected for a request that exceeds the share of its class")
	}
}

// A request that leaves the queue without a service ends no count: the other names of its origin were passed all the same.
func TestPassesOutliveRequests(t *testing.T) {
	r := newTurnRig(t)
	r.setOrigin(1, 1, 2)
	r.setOrigin(2, 3)
	r.enqueue(1, 2, 3)
	r.pass(3, 3)
	r.p.Remove(r.v, r.p.FirstOf(1)) // It has expired.
	r.want(r.classesInTurn(), 2)
}
