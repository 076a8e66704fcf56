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

// briefly is the lease of grants and offers that are to expire. A step that is slower than that on a busy machine fails
// as if a process were frozen, and is tried again.
const briefly = 300 * time.Millisecond

// offerChunks is the size of the puts here.
const offerChunks = 2

// hanging makes the first batch wait on its device, until the batch is released or aborted.
const hanging = "FAULTS=done:hang=1"

// dawdling makes batches wait for 120 to 220 ms: with this seed, the first draws up to DELAY_US are all in that range.
var dawdling = []string{"DELAY_US=300000", "SEED=153067"}

// A scene is a sender and a receiver, and the nodes that are opened later. Either the sender or the receiver is hit
// during a put: killed or frozen.
type scene struct {
	t    *testing.T
	room *room
	wire wire
	mode string

	sender, receiver *process
	peer             runtime.Peer // the receiver
	hit              *process     // sender or receiver
	inside           bool         // a batch hangs in the NPU of the initiator
	over             <-chan struct{}
	keys             []string    // all that were put
	put              <-chan word // reply of the last put if pending, or nil
	others           int
}

// A point is the point at which a process is hit. With duringBatch the process is hit while a batch is in flight,
// whichever end moves the batch.
type point struct {
	strike
	inside bool
	// dawdling lets each batch wait before it moves: longer than it takes to freeze the process, and not longer than the
	// process stays frozen. So the batch moves as soon as the process is resumed, before any node there gets an event.
	dawdling bool
	// under says that a write grant is in force at this point, which no message can end.
	under bool
	// before says that no chunk of the last put has been read at this point.
	before bool
}

// newScene opens both ends. The end with the given role is hit at a point of a put.
func newScene(t *testing.T, w wire, mode string, at point, role string, signal syscall.Signal) *scene {
	t.Helper()
	s := &scene{t: t, room: newRoom(t), wire: w, mode: mode, inside: at.inside && !at.dawdling}
	specs := map[string]*spec{}
	for place, role := range []string{"sender", "receiver"} {
		one := w.at(place, role, mode)
		one.Lease, one.Pages = briefly, 2*offerChunks
		specs[role] = &one
	}
	initiator := map[string]string{"push": "sender", "pull": "receiver"}[mode]
	start := func(role string) *process {
		switch {
		case role != initiator:
		case at.dawdling:
			return s.room.start("the "+role, dawdling...)
		case at.inside:
			return s.room.start("the "+role, hanging)
		}
		return s.room.start("the " + role)
	}
	s.sender, s.receiver = start("sender"), start("receiver")
	s.hit = s.sender
	if role == "receiver" {
		s.hit = s.receiver
	}
	if !at.inside {
		specs[role].Strike = at.strike
		specs[role].Strike.Signal = signal
	}
	s.peer = s.receiver.opens(*specs["receiver"])
	s.sender.opens(*specs["sender"])
	if s.over = s.hit.FrozenOnce(); signal == syscall.SIGKILL {
		s.over = s.hit.Exited()
	}
	if at.inside {
		by := s.sender
		if initiator == "receiver" {
			by = s.receiver
		}
		s.begin(0)
		if at.dawdling {
			by.awaits("batches", 1)
		} else {
			by.awaits("injected", 1)
		}
		if signal == syscall.SIGSTOP {
			s.hit.Freeze()
		} else {
			s.hit.Kill()
		}
		return s
	}
	s.untilHit()
	return s
}

func (s *scene) begin(round int) {
	keys := keysOf(fmt.Sprint("put", round), offerChunks)
	s.keys = append(s.keys, keys...)
	s.put = s.sender.begin(order{Op: "put", Peer: s.peer, Keys: keys, Patience: time.Second})
}

// untilHit puts until the point is reached. Normally that takes a single put, and more puts on a slow machine.
func (s *scene) untilHit() {
	s.t.Helper()
	for round := range 100 {
		s.begin(round)
		for _, then := range []string{"reclaim", ""} {
			select {
			case <-s.over:
				return
			case w, ok := <-s.put:
				if !ok {
					s.put = nil
					await(s.t, s.over, "it is hit")
					return
				}
				s.t.Logf("put %d: %v", round, w.Code)
				if s.put = nil; then != "" {
					s.put = s.sender.begin(order{Op: then})
				}
			}
		}
	}
	s.t.Fatal("it is never hit")
}

// settle reads the outcome of the last put, if the sender still exists.
func (s *scene) settle() {
	s.t.Helper()
	if s.put != nil {
		s.sender.hear(s.put, "the put that was hit")
	}
	s.put = nil
}

// thaw lets a frozen process and its NPU continue.
func (s *scene) thaw() {
	s.t.Helper()
	s.hit.Resume()
	if s.inside {
		for _, p := range []*process{s.sender, s.receiver} {
			p.does(order{Op: "control", For: "release"})
		}
	}
}

// reuses makes a new sender put chunks into all free pages of the receiver.
func (s *scene) reuses() (other *process, keys []string) {
	s.t.Helper()
	s.others++
	other = s.room.start(fmt.Sprint("sender ", s.others))
	one := s.wire.at(1+s.others, "sender", s.mode)
	one.Lease = briefly
	other.opens(one)
	free := s.receiver.does(order{Op: "stats"}).Stats.PagesFree
	keys = keysOf(fmt.Sprint("other", s.others), free)
	if free > 0 {
		putsAtLast(s.t, other, s.peer, keys)
	}
	return other, keys
}

// has checks that the receiver has the chunks of these keys.
func (s *scene) has(keys []string) {
	s.t.Helper()
	if len(keys) == 0 {
		return
	}
	if w := s.receiver.does(order{Op: "get", Keys: keys}); w.Hits != len(keys) || w.Wrong != 0 {
		s.t.Errorf("of %d chunks %d are there, %d of them wrong", len(keys), w.Hits, w.Wrong)
	}
}

// nothingStale checks that the receiver has only right chunks of the sender that was hit, if any.
func (s *scene) nothingStale() {
	s.t.Helper()
	if w := s.receiver.does(order{Op: "get", Keys: s.keys}); w.Wrong != 0 {
		s.t.Errorf("%d of %d chunks are not what was put", w.Wrong, w.Hits)
	}
}

// goesOn checks that a put of the sender reaches the receiver, at once or soon.
func (s *scene) goesOn(sender, receiver *process, peer runtime.Peer) {
	s.t.Helper()
	keys := keysOf("after", offerChunks)
	putsAtLast(s.t, sender, peer, keys)
	if w := receiver.does(order{Op: "get", Keys: keys}); w.Hits != len(keys) || w.Wrong != 0 {
		s.t.Errorf("afterwards %d chunks arrive, %d of them wrong", w.Hits, w.Wrong)
	}
}

// putsAtLast repeats a put until it succeeds and all memory is free.
func putsAtLast(t *testing.T, p *process, peer runtime.Peer, keys []string) {
	t.Helper()
	end := time.Now().Add(limit)
	for {
		w := p.asked(order{Op: "put", Peer: peer, Keys: keys, Patience: 5 * time.Second})
		p.does(order{Op: "reclaim"})
		if w.Code == effects.OK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no put works any more: %v (%s)", w.Code, w.Text)
		}
	}
}

// eachPoint runs a test for each point and wire, several tests at a time, because they mostly wait.
func eachPoint(t *testing.T, points map[string]point, test func(*testing.T, wire, point)) {
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
