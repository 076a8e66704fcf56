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

// The litmus test of the barriers: a writer puts one page into one generation after the other and fills it with the
// generation's number, while readers copy whichever generation they see. A copy that passes must contain one
// generation only. Reading the page's bytes races with writing them on purpose; the race detector does not see it,
// because the memory does not belong to Go.
//
// Writer and readers yield to each other, so that some copies pass and some are torn even on a single core, where
// otherwise only the scheduler would decide, and tear few.
func TestTornCopiesNeverPass(t *testing.T) { byEachMover(t, tornCopiesNeverPass) }

func tornCopiesNeverPass(t *testing.T, move Mover) {
	const lives = 30_000
	var sink events
	l := newLitmus(t, &sink)
	p := l.pool
	_, permit := testPermit(t, 1)
	l.startReaders(move, func(dst []byte, held Mover) (uint64, effects.Code) {
		g := atomic.LoadUint64(&p.generations[0])
		// The page is being filled for a part of each generation, so wait for its last word.
		if binary.LittleEndian.Uint64(p.wholePage(0)[litmusBytes-8:]) != g {
			return 0, effects.OK
		}
		return g, l.mapping.CopyPage(dst, 0, effects.Generation(g), permit, held)
	})
	for g := uint64(1); l.mustContinue(g <= lives); g++ {
		p.Publish([]effects.Page{{Length: litmusBytes, Generation: effects.Generation(g)}})
		l.fillPage(g)
		if g%16 == 0 {
			runtime.Gosched() // The page is whole now.
		}
	}
	l.stopReaders()
}

// A litmus is a page that its owner fills with one number after the other, and readers that copy it meanwhile: a copy
// that passes must contain one number only.
type litmus struct {
	t       *testing.T
	pool    *Pool
	mapping *Mapping

	over        atomic.Bool
	whole, torn atomic.Int64 // copies that passed, and copies that were refused
	readers     sync.WaitGroup
}

const litmusBytes = 16 << 10

// byEachMover runs a litmus test with Go's copy and, if there is one, with the processor-specific copy.
func byEachMover(t *testing.T, run func(t *testing.T, move Mover)) {
	t.Run("go's copy", func(t *testing.T) { run(t, Move) })
	t.Run("non-temporal", func(t *testing.T) {
		if !nontemporal.IsAccelerated() {
			t.Skip("Go's copy stands in for it here")
		}
		run(t, nontemporal.Copy)
	})
}

func newLitmus(t *testing.T, sink *events) *litmus {
	t.Helper()
	p := testPool(t, sink, 1, litmusBytes)
	t.Cleanup(func() { _ = p.Close() })
	m, err := MapPool(p.PagesFile().Fd(), p.GenerationsFile().Fd(), 1, litmusBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Unmap() })
	return &litmus{t: t, pool: p, mapping: m}
}

// startReaders starts two readers. Copy makes one copy and returns the number that it should contain, or 0 if it was
// refused.
func (l *litmus) startReaders(move Mover, copy func(dst []byte, held Mover) (n uint64, code effects.Code)) {
	for reader := range 2 {
		l.readers.Go(func() {
			dst := make([]byte, litmusBytes)
			held := sometimesYielding(move, 4*reader)
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

// mustContinue reports whether the owner must continue: while it wants to, and until some copies have passed and some
// were refused.
func (l *litmus) mustContinue(wants bool) bool {
	return (wants || l.whole.Load() == 0 || l.torn.Load() == 0) && !l.t.Failed()
}

// fillPage fills the page with a number.
func (l *litmus) fillPage(n uint64) {
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

func (l *litmus) stopReaders() {
	l.over.Store(true)
	l.readers.Wait()
	l.t.Logf("%d copies passed, %d were refused", l.whole.Load(), l.torn.Load()) // Neither is zero.
}

// sometimesYielding returns move, except that each eighth copy yields in its middle, where the owner may store. So many
// copies count as made before: if all readers were held at once, the owner would wait for them.
func sometimesYielding(move Mover, copies int) Mover {
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
