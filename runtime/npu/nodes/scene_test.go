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

// briefly is how long grants and offers are valid that are to expire. A step that is slower than that on a busy machine
// fails as if a process were frozen, and is tried again.
const briefly = 300 * time.Millisecond

// offerChunks is the size of the puts here.
const offerChunks = 2

// hanging makes the first batch wait on its device, until it is released or aborted.
const hanging = "FAULTS=done:hang=1"

// dawdling makes batches wait for 120 to 220 ms: with this seed, the first draws up to DELAY_US are all in that range.
var dawdling = []string{"DELAY_US=300000", "SEED=153067"}

// A scene is a sender and a receiver, one of which is hit during a put, and the nodes that are opened later.
type scene struct {
	t    *testing.T
	room *room
	wire wire
	mode string

	sender, receiver *process
	peer             runtime.Peer // the receiver
	hit              *process     // one of them
	inside           bool         // a batch hangs in the NPU of the initiator
	over             <-chan struct{}
	keys             []string    // all that were put
	put              <-chan word // the last put's answer, which is still owed, or nil
	others           int
}

// A point is where a process is hit. With inside it is hit while a batch is in flight, whoever moves it.
type point struct {
	strike
	inside bool
	// dawdling lets each batch wait until it moves: longer than it takes to freeze its process, and no longer than that
	// stays frozen. So it moves at once when it is woken, before anybody there hears of anything.
	dawdling bool
	// under says that a write grant was in force then, and nobody's word can end it.
	under bool
	// before says that by then nothing of the last put was read.
	before bool
}

// newScene opens both ends; the one at risk is hit at a point of a put.
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

// untilHit puts until the point is reached. Normally that takes one put, more if this machine was too slow.
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

// settle reads the outcomes that a sender which is alive still owes.
func (s *scene) settle() {
	s.t.Helper()
	if s.put != nil {
		s.sender.hear(s.put, "the put that was hit")
	}
	s.put = nil
}

// thaw lets a frozen process continue, and its NPU as well.
func (s *scene) thaw() {
	s.t.Helper()
	s.hit.Resume()
	if s.inside {
		for _, p := range []*process{s.sender, s.receiver} {
			p.does(order{Op: "control", For: "release"})
		}
	}
}

// reuses makes another sender put chunks into all free pages of the receiver, which keeps them.
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

// has checks that the receiver has these chunks.
func (s *scene) has(keys []string) {
	s.t.Helper()
	if len(keys) == 0 {
		return
	}
	if w := s.receiver.does(order{Op: "get", Keys: keys}); w.Hits != len(keys) || w.Wrong != 0 {
		s.t.Errorf("of %d chunks %d are there, %d of them wrong", len(keys), w.Hits, w.Wrong)
	}
}

// nothingStale checks that chunks which the receiver has of a sender that was hit are right, if it has any.
func (s *scene) nothingStale() {
	s.t.Helper()
	if w := s.receiver.does(order{Op: "get", Keys: s.keys}); w.Wrong != 0 {
		s.t.Errorf("%d of %d chunks are not what was put", w.Wrong, w.Hits)
	}
}

// goesOn checks that a sender and a receiver can work with each other, at once or soon.
func (s *scene) goesOn(sender, receiver *process, peer runtime.Peer) {
	s.t.Helper()
	keys := keysOf("after", offerChunks)
	putsAtLast(s.t, sender, peer, keys)
	if w := receiver.does(order{Op: "get", Keys: keys}); w.Hits != len(keys) || w.Wrong != 0 {
		s.t.Errorf("afterwards %d chunks arrive, %d of them wrong", w.Hits, w.Wrong)
	}
}

// putsAtLast puts until it succeeds and all memory is free.
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

// eachPoint runs a test for each point and wire, several at a time: they mostly wait.
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

// wiresOf returns the wires of the i-th of many cases: both, or alternately one if time is short.
func wiresOf(i int) []wire {
	if testing.Short() {
		return wires[i%2 : i%2+1]
	}
	return wires
}
