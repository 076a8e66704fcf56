package planetest

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// playScenarios plays the situations of a data plane that package contract lists. A scenario that may end in several
// ways is played several times; the plane decides how the scenario ends.
func playScenarios(t *testing.T, open plane.Opener) {
	for _, s := range slices.Concat(contract.Pushes(), contract.Pulls(), contract.OverlappingGrants()) {
		t.Run(s.Name, func(t *testing.T) {
			rounds := 1
			if len(s.Endings) > 1 {
				rounds = 10
			}
			ends := map[contract.Ending]int{}
			for range rounds {
				end, err := s.Run(newStage(t, open))
				if err != nil {
					t.Fatal(err)
				}
				ends[end]++
			}
			if rounds > 1 {
				t.Log(ends)
			}
		})
	}
}

// A stage is two nodes with planes and pools that post to the same queue.
type stage struct {
	t     *testing.T
	nodes [2]stageNode

	pages     uint32
	pageBytes uint64

	mu       sync.Mutex
	events   []postedEvent
	changed  chan struct{} // closed and replaced at each event
	finished bool
}

type stageNode struct {
	inc   effects.Incarnation
	pool  *plane.Pool
	plane plane.Plane
}

type postedEvent struct {
	at contract.End
	ev effects.Event
}

// A stageSink is the sink of a node's plane and pool.
type stageSink struct {
	stage *stage
	at    contract.End
}

// Post implements plane.Sink.
func (m stageSink) Post(ev effects.Event) {
	s := m.stage
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, postedEvent{m.at, ev})
	close(s.changed)
	s.changed = make(chan struct{})
}

const stagePages = 8

func newStage(t *testing.T, open plane.Opener) *stage {
	t.Helper()
	return newStageOf(t, [2]plane.Opener{open, open}, stagePages, pageBytes)
}

func newStageOf(t *testing.T, open [2]plane.Opener, pages uint32, pageBytes uint64) *stage {
	t.Helper()
	s := &stage{t: t, changed: make(chan struct{}), pages: pages, pageBytes: pageBytes}
	for _, at := range []contract.End{contract.A, contract.B} {
		n := &s.nodes[at]
		n.inc = effects.Incarnation{0: byte(at) + 1, 15: 0xc0}
		var err error
		n.pool, err = plane.NewPool(plane.PoolConfig{
			Buffer: effects.BufferID{0: byte(at) + 1, 1: 0xb}, Pages: pages, PageBytes: pageBytes, Sink: stageSink{s, at},
			Verifier: new(plane.Verifier),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.pool.Close(); err != nil {
				t.Error(err)
			}
		})
		n.plane, err = open[at](context.Background(), plane.Env{
			Pool: n.pool, Sink: stageSink{s, at}, IDs: &plane.IDs{}, Incarnation: n.inc, Key: Key, Bounds: bounds,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Kill(at) })
	}
	return s
}

// Do implements contract.Stage.
func (s *stage) Do(at contract.End, e effects.Effect) {
	n := &s.nodes[at]
	switch e := e.(type) {
	case *effects.Import:
		n.plane.Import(e)
	case *effects.Drop:
		n.plane.Drop(e.Link)
	case *effects.Publish:
		n.pool.Publish(e.Pages)
	case *effects.Grant:
		n.pool.Grant(e)
	case *effects.Revoke:
		n.pool.Revoke(e.Grant)
	case *effects.Transfer:
		n.plane.Transfer(e)
		clear(e.Pairs) // Slices in effects are borrowed.
	case *effects.Cancel:
		n.plane.Cancel(e.Corr)
	case *effects.Confirm:
		n.plane.Confirm(e.Landing, e.Code)
	default:
		s.t.Fatalf("%T is no effect of a data plane", e)
	}
}

// Next implements contract.Stage.
func (s *stage) Next() (contract.End, effects.Event, bool) {
	late := time.NewTimer(eventTimeout)
	defer late.Stop()
	for {
		s.mu.Lock()
		if len(s.events) > 0 {
			x := s.events[0]
			s.events = s.events[1:]
			s.mu.Unlock()
			return x.at, x.ev, true
		}
		more, finished := s.changed, s.finished
		s.mu.Unlock()
		if finished {
			return 0, nil, false
		}
		select {
		case <-more:
		case <-late.C:
			return 0, nil, false
		}
	}
}

// Kill implements contract.Stage by closing the plane, which a peer cannot distinguish from the death of the process.
// The processes of [Main] are for tests in which a process really dies.
func (s *stage) Kill(at contract.End) {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	if err := s.nodes[at].plane.Close(ctx); err != nil {
		s.t.Error(err)
	}
}

// Finish implements contract.Stage.
func (s *stage) Finish() {
	s.Kill(contract.A)
	s.Kill(contract.B)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
}

// Node implements contract.DataStage.
func (s *stage) Node(at contract.End) contract.Node {
	n, other := &s.nodes[at], s.nodes[1-at].inc
	return contract.Node{
		Incarnation: n.inc, Plane: n.plane.Name(), Blob: NewInvitation(n.plane.Name(), n.plane.Blob(), other, n.inc),
		Buffer: n.pool.Buffer().ID,
		Pages:  s.pages, PageBytes: uint32(s.pageBytes),
	}
}

// Fill implements contract.DataStage.
func (s *stage) Fill(at contract.End, pages []effects.Page) {
	for _, page := range pages {
		fillPattern(s.nodes[at].pool.Bytes(page), uint64(page.Index)<<32|uint64(page.Generation))
	}
}

// Now implements contract.DataStage.
func (s *stage) Now(contract.End) effects.Time { return plane.Now() }
