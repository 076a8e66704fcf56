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
func TestTornCopiesNeverPass(t *testing.T) {
	t.Run("go's copy", func(t *testing.T) { tornCopiesNeverPass(t, Move) })
	t.Run("non-temporal", func(t *testing.T) {
		if !nontemporal.Accelerated() {
			t.Skip("Go's copy stands in for it here")
		}
		tornCopiesNeverPass(t, nontemporal.Copy)
	})
}

func tornCopiesNeverPass(t *testing.T, move Mover) {
	const pageBytes, lives = 16 << 10, 30_000
	var sink events
	p := testPool(t, &sink, 1, pageBytes)
	defer p.Close()
	m, err := Map(p.File().Fd(), p.Generations().Fd(), 1, pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	_, permit := testPermit(t, 1)

	var over atomic.Bool
	var whole, torn atomic.Int64
	var wg sync.WaitGroup
	for reader := range 2 {
		wg.Go(func() {
			dst := make([]byte, pageBytes)
			held := sometimesHeld(move, 4*reader)
			for ; !over.Load(); runtime.Gosched() {
				g := atomic.LoadUint64(&p.table[0])
				// The page is being filled for a part of its life, so wait for its last word.
				page := p.bytes(0)
				if binary.LittleEndian.Uint64(page[pageBytes-8:]) != g {
					continue
				}
				if m.Copy(dst, 0, effects.Generation(g), permit, held) != effects.OK {
					torn.Add(1)
					continue
				}
				whole.Add(1)
				for at := 0; at < pageBytes; at += 8 {
					if got := binary.LittleEndian.Uint64(dst[at:]); got != g {
						t.Errorf("a copy of life %d passed with life %d at byte %d", g, got, at)
						return
					}
				}
			}
		})
	}
	for g := uint64(1); (g <= lives || whole.Load() == 0 || torn.Load() == 0) && !t.Failed(); g++ {
		p.Publish([]effects.Page{{Length: pageBytes, Generation: effects.Generation(g)}})
		page := p.bytes(0)
		for at := 0; at < pageBytes; at += 8 {
			binary.LittleEndian.PutUint64(page[at:], g)
		}
		if g%16 == 0 {
			runtime.Gosched() // The page is whole now.
		}
	}
	over.Store(true)
	wg.Wait()
	t.Logf("%d copies passed, %d were refused", whole.Load(), torn.Load()) // Neither is zero.
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
