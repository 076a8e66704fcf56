package planetest

import (
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A Turnstile is called in the middle of each access of a plane to a page of a node. While a turnstile is holding,
// accesses stop there, and the test lets one access pass at a time.
type Turnstile struct {
	pool *plane.Pool

	mu           sync.Mutex
	changed      chan struct{} // closed and replaced when one more access stops
	holding      bool
	stopped      []*access // the accesses that are stopped, oldest first
	stopCount    int       // accesses that were ever stopped
	passedPlaces map[place]bool
}

// A place identifies a page and a way to access the page, because an access may take several calls.
type place struct {
	way  int
	page uintptr
}

type access struct {
	place
	pass chan struct{}
}

func newTurnstile() *Turnstile {
	return &Turnstile{changed: make(chan struct{}), passedPlaces: map[place]bool{}}
}

// Enter is called in the middle of an access, in the given way, to some bytes of a page of the node.
func (g *Turnstile) Enter(way int, b []byte) {
	g.mu.Lock()
	if !g.holding || len(b) == 0 {
		g.mu.Unlock()
		return
	}
	first := g.pool.Bytes(effects.Page{Pool: g.pool.ID(), Length: 1})
	offset := uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&first[0]))
	at := place{way, offset / uintptr(g.pool.Buffer().PageBytes)}
	if g.passedPlaces[at] {
		g.mu.Unlock()
		return
	}
	a := &access{at, make(chan struct{})}
	g.stopped = append(g.stopped, a)
	g.stopCount++
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
	<-a.pass
}

// Mover returns a mover that enters the turnstile and then calls move.
func (g *Turnstile) Mover(move plane.Mover) plane.Mover {
	return func(dst, src []byte) {
		g.Enter(0, dst)
		move(dst, src)
	}
}

// passOldest lets the oldest access pass, and returns the number of accesses that had been stopped by then.
func (g *Turnstile) passOldest() (arrived int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.stopped) > 0 {
		a := g.stopped[0]
		g.stopped = g.stopped[1:]
		g.passedPlaces[a.place] = true
		close(a.pass)
	}
	return g.stopCount
}

// awaitCondition waits until a condition holds.
func (g *Turnstile) awaitCondition(t *testing.T, what string, holds func() bool) {
	t.Helper()
	late := time.NewTimer(eventTimeout)
	defer late.Stop()
	for {
		g.mu.Lock()
		ok, moved, standing := holds(), g.changed, len(g.stopped)
		g.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-moved:
		case <-late.C:
			t.Fatalf("%s: it never came; %d stand", what, standing)
		}
	}
}

// passAll lets all accesses pass, now and later.
func (g *Turnstile) passAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding = false
	for _, a := range g.stopped {
		close(a.pass)
	}
	g.stopped = nil
}

// A heldStage is a stage with a turnstile for the accesses of each node.
type heldStage struct {
	*stage
	gates [2]*Turnstile
}

// A few of these pages are more than a socket buffers, so that the sender is in the middle of them while the peer
// reads nothing.
const heldPages, heldPageBytes = 16, 512 << 10

// RunHolders plays the scenarios of package contract in which two threads are accessing pages while something ends, or
// a batch occupies all threads. Open returns the opener of a plane with two threads, or two for each link, that access
// pages through a turnstile. Sends says that owners send the pages that are read; shared says that links share the
// threads.
func RunHolders(t *testing.T, open func(*Turnstile) plane.Opener, sends, shared bool) {
	for _, s := range append(contract.ConcurrentAccesses(sends), contract.BusyThreads(shared)...) {
		t.Run(s.Name, func(t *testing.T) {
			gates := [2]*Turnstile{newTurnstile(), newTurnstile()}
			st := newStageOf(t, [2]plane.Opener{open(gates[0]), open(gates[1])}, heldPages, heldPageBytes)
			for i, g := range gates {
				g.pool = st.nodes[i].pool
				t.Cleanup(g.passAll) // Runs before the stage's own cleanup, whose Close would otherwise wait after a failure.
			}
			end, err := s.Run(&heldStage{st, gates})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(end)
		})
	}
}

// HoldAccesses implements contract.HoldStage.
func (s *heldStage) HoldAccesses(at contract.End) {
	g := s.gates[at]
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding = true
}

// AwaitHeld implements contract.HoldStage.
func (s *heldStage) AwaitHeld(at contract.End, n int) {
	s.t.Helper()
	g := s.gates[at]
	g.awaitCondition(s.t, "an access", func() bool { return len(g.stopped) >= n })
}

// PassFirst implements contract.HoldStage.
func (s *heldStage) PassFirst(at contract.End) {
	s.t.Helper()
	g := s.gates[at]
	before := g.passOldest()
	g.awaitCondition(s.t, "the next access", func() bool { return g.stopCount > before })
}

// ReleaseFirst implements contract.HoldStage.
func (s *heldStage) ReleaseFirst(at contract.End) { s.gates[at].passOldest() }

// RunThreads implements contract.HoldStage. The call waits for something that must not happen, so there is no event to
// wait for: a defect that takes longer to show is found in a later run.
func (s *heldStage) RunThreads() {
	for range 3_000 {
		runtime.Gosched()
	}
}

// ReleaseAll implements contract.HoldStage.
func (s *heldStage) ReleaseAll(at contract.End) { s.gates[at].passAll() }

// HasEvent implements contract.HoldStage.
func (s *heldStage) HasEvent(at contract.End, fits func(effects.Event) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.events {
		if x.at == at && fits(x.ev) {
			return true
		}
	}
	return false
}

// BeginClose implements contract.HoldStage.
func (s *heldStage) BeginClose(at contract.End) (closed func() bool, wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Kill(at)
	}()
	return func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}, func() { <-done }
}

// Finish implements contract.Stage.
func (s *heldStage) Finish() {
	for _, g := range s.gates {
		g.passAll()
	}
	s.stage.Finish()
}
