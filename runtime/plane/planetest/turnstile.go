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

	mu       sync.Mutex
	moved    chan struct{} // closed and replaced when one more access stops
	holds    bool
	standing []*access // the accesses that are stopped, oldest first
	arrived  int       // accesses that were ever stopped
	passed   map[place]bool
}

// A place identifies a page and a way to access the page, because an access may take several calls.
type place struct {
	way  int
	page uintptr
}

type access struct {
	place
	passes chan struct{}
}

func newTurnstile() *Turnstile {
	return &Turnstile{moved: make(chan struct{}), passed: map[place]bool{}}
}

// Enter is called in the middle of an access, in the given way, to some bytes of a page of the node.
func (g *Turnstile) Enter(way int, b []byte) {
	g.mu.Lock()
	if !g.holds || len(b) == 0 {
		g.mu.Unlock()
		return
	}
	first := g.pool.Bytes(effects.Page{Pool: g.pool.ID(), Length: 1})
	offset := uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&first[0]))
	at := place{way, offset / uintptr(g.pool.Buffer().PageBytes)}
	if g.passed[at] {
		g.mu.Unlock()
		return
	}
	a := &access{at, make(chan struct{})}
	g.standing = append(g.standing, a)
	g.arrived++
	close(g.moved)
	g.moved = make(chan struct{})
	g.mu.Unlock()
	<-a.passes
}

// Mover returns a mover that enters the turnstile and then calls move.
func (g *Turnstile) Mover(move plane.Mover) plane.Mover {
	return func(dst, src []byte) {
		g.Enter(0, dst)
		move(dst, src)
	}
}

// leave lets the oldest access pass, and returns the number of accesses that had been stopped by then.
func (g *Turnstile) leave() (arrived int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.standing) > 0 {
		a := g.standing[0]
		g.standing = g.standing[1:]
		g.passed[a.place] = true
		close(a.passes)
	}
	return g.arrived
}

// await waits until a condition holds.
func (g *Turnstile) await(t *testing.T, what string, so func() bool) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		g.mu.Lock()
		ok, moved, standing := so(), g.moved, len(g.standing)
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

// free lets all accesses pass, now and later.
func (g *Turnstile) free() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds = false
	for _, a := range g.standing {
		close(a.passes)
	}
	g.standing = nil
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
	for _, s := range append(contract.Holders(sends), contract.AllBusy(shared)...) {
		t.Run(s.Name, func(t *testing.T) {
			gates := [2]*Turnstile{newTurnstile(), newTurnstile()}
			st := newStageOf(t, [2]plane.Opener{open(gates[0]), open(gates[1])}, heldPages, heldPageBytes)
			for i, g := range gates {
				g.pool = st.nodes[i].pool
				t.Cleanup(g.free) // Runs before the stage's own cleanup, whose Close would otherwise wait after a failure.
			}
			end, err := s.Run(&heldStage{st, gates})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(end)
		})
	}
}

// Hold implements contract.HoldStage.
func (s *heldStage) Hold(at contract.End) {
	g := s.gates[at]
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds = true
}

// Stands implements contract.HoldStage.
func (s *heldStage) Stands(at contract.End, n int) {
	s.t.Helper()
	g := s.gates[at]
	g.await(s.t, "an access", func() bool { return len(g.standing) >= n })
}

// Passes implements contract.HoldStage.
func (s *heldStage) Passes(at contract.End) {
	s.t.Helper()
	g := s.gates[at]
	before := g.leave()
	g.await(s.t, "the next access", func() bool { return g.arrived > before })
}

// Leaves implements contract.HoldStage.
func (s *heldStage) Leaves(at contract.End) { s.gates[at].leave() }

// Rests implements contract.HoldStage. The call waits for something that must not happen, so there is no event to wait
// for: a defect that takes longer to show is found in a later run.
func (s *heldStage) Rests() {
	for range 3_000 {
		runtime.Gosched()
	}
}

// Frees implements contract.HoldStage.
func (s *heldStage) Frees(at contract.End) { s.gates[at].free() }

// Told implements contract.HoldStage.
func (s *heldStage) Told(at contract.End, fits func(effects.Event) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.told {
		if x.at == at && fits(x.ev) {
			return true
		}
	}
	return false
}

// Closes implements contract.HoldStage.
func (s *heldStage) Closes(at contract.End) (closed func() bool, wait func()) {
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
		g.free()
	}
	s.stage.Finish()
}
