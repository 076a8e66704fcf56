package plane

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/internal/nontemporal"
)

// The litmus test of the barriers: a writer gives one page life after life, each filled with its own
// number; readers copy whichever life they saw. A copy that passes must hold one life only. Reading
// the page's bytes races with writing them on purpose; the memory is no Go memory, so the race
// detector does not look at it.
//
// Writer and readers give way to each other, so that copies pass and copies are torn on a single core too, where
// else the scheduler alone would say when, and seldom would.
func TestTornCopiesNeverPass(t *testing.T) { byEachMover(t, tornCopiesNeverPass) }

func tornCopiesNeverPass(t *testing.T, move Mover) {
	const lives = 30_000
	var sink events
	l := newLitmus(t, &sink)
	p := l.pool
	_, permit := testPermit(t, 1)
	l.read(move, func(dst []byte, held Mover) (uint64, effects.Code) {
		g := atomic.LoadUint64(&p.table[0])
		// The page is being filled for a part of its life, so wait for its last word.
		if binary.LittleEndian.Uint64(p.wholePage(0)[litmusBytes-8:]) != g {
			return 0, effects.OK
		}
		return g, l.mapping.Copy(dst, 0, effects.Generation(g), permit, held)
	})
	for g := uint64(1); l.goesOn(g <= lives); g++ {
		p.Publish([]effects.Page{{Length: litmusBytes, Generation: effects.Generation(g)}})
		l.fill(g)
		if g%16 == 0 {
			runtime.Gosched() // The page is whole now.
		}
	}
	l.end()
}

// A litmus is a page that an owner fills with one number after the other, and readers that copy it meanwhile: what
// passes must hold one number only.
type litmus struct {
	t       *testing.T
	pool    *Pool
	mapping *Mapping

	over        atomic.Bool
	whole, torn atomic.Int64 // copies that passed, and that were refused
	readers     sync.WaitGroup
}

const litmusBytes = 16 << 10

// byEachMover runs a litmus with Go's copy and with the one of the processor, where there is one.
func byEachMover(t *testing.T, run func(t *testing.T, move Mover)) {
	t.Run("go's copy", func(t *testing.T) { run(t, Move) })
	t.Run("non-temporal", func(t *testing.T) {
		if !nontemporal.Accelerated() {
			t.Skip("Go's copy stands in for it here")
		}
		run(t, nontemporal.Copy)
	})
}

func newLitmus(t *testing.T, sink *events) *litmus {
	t.Helper()
	p := testPool(t, sink, 1, litmusBytes)
	t.Cleanup(func() { _ = p.Close() })
	m, err := MapPool(p.File().Fd(), p.Generations().Fd(), 1, litmusBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Unmap() })
	return &litmus{t: t, pool: p, mapping: m}
}

// read has two readers begin. Copy is one copy, of the number that it says; 0 is none.
func (l *litmus) read(move Mover, copy func(dst []byte, held Mover) (n uint64, code effects.Code)) {
	for reader := range 2 {
		l.readers.Go(func() {
			dst := make([]byte, litmusBytes)
			held := sometimesHeld(move, 4*reader)
			for ; !l.over.Load(); runtime.Gosched() {
				n, code := copy(dst, held)
				if n == 0 {
					continue
				}
				if code != effects.OK {
					l.torn.Add(1)
					continue
				}
				l.whole.Add(1)
				for at := 0; at < litmusBytes; at += 8 {
					if got := binary.LittleEndian.Uint64(dst[at:]); got != n {
						l.t.Errorf("a copy of %d passed with %d at byte %d", n, got, at)
						return
					}
				}
			}
		})
	}
}

// goesOn reports whether the owner goes on: while it wants to, and until copies have passed and were refused.
func (l *litmus) goesOn(wants bool) bool {
	return (wants || l.whole.Load() == 0 || l.torn.Load() == 0) && !l.t.Failed()
}

// fill fills the page with a number.
func (l *litmus) fill(n uint64) {
	page := l.pool.wholePage(0)
	for at := 0; at < litmusBytes; at += 8 {
		binary.LittleEndian.PutUint64(page[at:], n)
	}
}

// awaitWhole waits until one more copy has passed.
func (l *litmus) awaitWhole() {
	for before := l.whole.Load(); l.whole.Load() == before && !l.t.Failed(); {
		runtime.Gosched()
	}
}

func (l *litmus) end() {
	l.over.Store(true)
	l.readers.Wait()
	l.t.Logf("%d copies passed, %d were refused", l.whole.Load(), l.torn.Load()) // Neither is zero.
}

// sometimesHeld is move, but each eighth copy gives way in its middle: whoever stores may do so there. So many
// copies count as made before: were all readers held at once, the owner would wait for them.
func sometimesHeld(move Mover, copies int) Mover {
	return func(dst, src []byte) {
		if copies++; copies%8 != 0 {
			move(dst, src)
			return
		}
		half := len(dst) / 2
		move(dst[:half], src[:half])
		runtime.Gosched()
		move(dst[half:], src[half:])
	}
}
