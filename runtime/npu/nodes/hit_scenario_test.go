//go:build cgo && linux

package nodes

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// shortLease is the lease of grants and offers that are to expire. A step that is slower than that on a busy machine
// fails as if a process were frozen, and is tried again.
const shortLease = 300 * time.Millisecond

// offerChunks is the size of the puts here.
const offerChunks = 2

// firstBatchHangs makes the first batch wait on its device, until the batch is released or aborted.
const firstBatchHangs = "FAULTS=done:hang=1"

// slowBatches makes batches wait for 120 to 220 ms: with this seed, the first draws up to DELAY_US are all in that
// range.
var slowBatches = []string{"DELAY_US=300000", "SEED=153067"}

// A hitScenario is a sender and a receiver, and the nodes that are opened later. Either the sender or the receiver is
// hit during a put: killed or frozen.
type hitScenario struct {
	t      *testing.T
	runDir *runDir
	wire   wire
	mode   string

	sender, receiver *process
	peer             runtime.Peer // the receiver
	hit              *process     // sender or receiver
	batchHangs       bool         // a batch hangs in the NPU of the initiator
	hitEnded         <-chan struct{}
	keys             []string     // all that were put
	pendingPut       <-chan reply // reply of the last put if pending, or nil
	senderCount      int
}

// A point is the point at which a process is hit. With duringBatch the process is hit while a batch is in flight,
// whichever end moves the batch.
type point struct {
	hitTrigger
	duringBatch bool
	// batchesSlow lets each batch wait before it moves: longer than it takes to freeze the process, and not longer than
	// the process stays frozen. So the batch moves as soon as the process is resumed, before any node there gets an
	// event.
	batchesSlow bool
	// grantInForce says that a write grant is in force at this point, which no message can end.
	grantInForce bool
	// nothingRead says that no chunk of the last put has been read at this point.
	nothingRead bool
}

// newHitScenario opens both ends. The end with the given role is hit at a point of a put.
func newHitScenario(t *testing.T, w wire, mode string, at point, role string, signal syscall.Signal) *hitScenario {
	t.Helper()
	s := &hitScenario{t: t, runDir: newRunDir(t), wire: w, mode: mode, batchHangs: at.duringBatch && !at.batchesSlow}
	specs := map[string]*nodeSpec{}
	for place, role := range []string{"sender", "receiver"} {
		one := w.nodeAt(place, role, mode)
		one.Lease, one.Pages = shortLease, 2*offerChunks
		specs[role] = &one
	}
	initiator := map[string]string{"push": "sender", "pull": "receiver"}[mode]
	start := func(role string) *process {
		switch {
		case role != initiator:
		case at.batchesSlow:
			return s.runDir.startProcess("the "+role, slowBatches...)
		case at.duringBatch:
			return s.runDir.startProcess("the "+role, firstBatchHangs)
		}
		return s.runDir.startProcess("the " + role)
	}
	s.sender, s.receiver = start("sender"), start("receiver")
	s.hit = s.sender
	if role == "receiver" {
		s.hit = s.receiver
	}
	if !at.duringBatch {
		specs[role].HitTrigger = at.hitTrigger
		specs[role].HitTrigger.Signal = signal
	}
	s.peer = s.receiver.openNode(*specs["receiver"])
	s.sender.openNode(*specs["sender"])
	if s.hitEnded = s.hit.FrozenOnce(); signal == syscall.SIGKILL {
		s.hitEnded = s.hit.Exited()
	}
	if at.duringBatch {
		by := s.sender
		if initiator == "receiver" {
			by = s.receiver
		}
		s.startPut(0)
		if at.batchesSlow {
			by.awaitCounter("batches", 1)
		} else {
			by.awaitCounter("injected", 1)
		}
		if signal == syscall.SIGSTOP {
			s.hit.Freeze()
		} else {
			s.hit.Kill()
		}
		return s
	}
	s.putUntilHit()
	return s
}

func (s *hitScenario) startPut(round int) {
	keys := keysOf(fmt.Sprint("put", round), offerChunks)
	s.keys = append(s.keys, keys...)
	s.pendingPut = s.sender.sendOrder(order{Op: "put", Peer: s.peer, Keys: keys, Timeout: time.Second})
}

// putUntilHit puts until the point is reached. Normally that takes a single put, and more puts on a slow machine.
func (s *hitScenario) putUntilHit() {
	s.t.Helper()
	for round := range 100 {
		s.startPut(round)
		for _, then := range []string{"reclaim", ""} {
			select {
			case <-s.hitEnded:
				return
			case w, ok := <-s.pendingPut:
				if !ok {
					s.pendingPut = nil
					awaitSignal(s.t, s.hitEnded, "it is hit")
					return
				}
				s.t.Logf("put %d: %v", round, w.Code)
				if s.pendingPut = nil; then != "" {
					s.pendingPut = s.sender.sendOrder(order{Op: then})
				}
			}
		}
	}
	s.t.Fatal("it is never hit")
}

// awaitLastPut reads the outcome of the last put, if the sender still exists.
func (s *hitScenario) awaitLastPut() {
	s.t.Helper()
	if s.pendingPut != nil {
		s.sender.awaitReply(s.pendingPut, "the put that was hit")
	}
	s.pendingPut = nil
}

// resume lets a frozen process and its NPU continue.
func (s *hitScenario) resume() {
	s.t.Helper()
	s.hit.Resume()
	if s.batchHangs {
		for _, p := range []*process{s.sender, s.receiver} {
			p.mustDo(order{Op: "control", Argument: "release"})
		}
	}
}

// reusePages makes a new sender put chunks into all free pages of the receiver.
func (s *hitScenario) reusePages() (other *process, keys []string) {
	s.t.Helper()
	s.senderCount++
	other = s.runDir.startProcess(fmt.Sprint("sender ", s.senderCount))
	one := s.wire.nodeAt(1+s.senderCount, "sender", s.mode)
	one.Lease = shortLease
	other.openNode(one)
	free := s.receiver.mustDo(order{Op: "stats"}).Stats.PagesFree
	keys = keysOf(fmt.Sprint("other", s.senderCount), free)
	if free > 0 {
		putUntilSuccess(s.t, other, s.peer, keys)
	}
	return other, keys
}

// wantChunks checks that the receiver has the chunks of these keys.
func (s *hitScenario) wantChunks(keys []string) {
	s.t.Helper()
	if len(keys) == 0 {
		return
	}
	if w := s.receiver.mustDo(order{Op: "get", Keys: keys}); w.Hits != len(keys) || w.Wrong != 0 {
		s.t.Errorf("of %d chunks %d are there, %d of them wrong", len(keys), w.Hits, w.Wrong)
	}
}

// wantNothingStale checks that the receiver has only right chunks of the sender that was hit, if any.
func (s *hitScenario) wantNothingStale() {
	s.t.Helper()
	if w := s.receiver.mustDo(order{Op: "get", Keys: s.keys}); w.Wrong != 0 {
		s.t.Errorf("%d of %d chunks are not what was put", w.Wrong, w.Hits)
	}
}

// wantWorking checks that a put of the sender reaches the receiver, at once or soon.
func (s *hitScenario) wantWorking(sender, receiver *process, peer runtime.Peer) {
	s.t.Helper()
	keys := keysOf("after", offerChunks)
	putUntilSuccess(s.t, sender, peer, keys)
	if w := receiver.mustDo(order{Op: "get", Keys: keys}); w.Hits != len(keys) || w.Wrong != 0 {
		s.t.Errorf("afterwards %d chunks arrive, %d of them wrong", w.Hits, w.Wrong)
	}
}

// putUntilSuccess repeats a put until it succeeds and all memory is free.
func putUntilSuccess(t *testing.T, p *process, peer runtime.Peer, keys []string) {
	t.Helper()
	end := time.Now().Add(limit)
	for {
		w := p.ask(order{Op: "put", Peer: peer, Keys: keys, Timeout: 5 * time.Second})
		p.mustDo(order{Op: "reclaim"})
		if w.Code == effects.OK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no put works any more: %v (%s)", w.Code, w.Text)
		}
	}
}

// runEachPoint runs a test for each point and wire, several tests at a time, because they mostly wait.
func runEachPoint(t *testing.T, points map[string]point, test func(*testing.T, wire, point)) {
	t.Parallel()
	for i, name := range slices.Sorted(maps.Keys(points)) {
		for _, w := range wiresOf(i) {
			t.Run(fmt.Sprint(w, " ", name), func(t *testing.T) {
				t.Parallel()
				test(t, w, points[name])
			})
		}
	}
}

// wiresOf returns the wires of the i-th of many cases: both wires, or alternately one in short mode.
func wiresOf(i int) []wire {
	if testing.Short() {
		return wires[i%2 : i%2+1]
	}
	return wires
}
