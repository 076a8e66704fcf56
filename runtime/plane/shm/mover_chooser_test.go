package shm

import (
	"math"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// counting returns movers that count which way pages are copied.
func counting() (*moverChooser, *[wayCount]int) {
	m, gone := &moverChooser{largeBytes: 1 << 20}, new([wayCount]int)
	for way := range m.movers {
		m.movers[way] = func([]byte, []byte) { gone[way]++ }
	}
	return m, gone
}

func play(m *moverChooser, batches int, bytes uint32) {
	page := make([]byte, 8)
	for range batches {
		m.moverFor([]effects.Pair{{Local: effects.Page{Length: bytes}}})(page, page)
	}
}

// Large batches first go each way, and then the way that was faster, with an exception now and then. Small batches
// are always copied by Go's copy.
func TestFasterWayIsTaken(t *testing.T) {
	for fast := range wayCount {
		slow := wayCount - 1 - fast
		m, gone := counting()
		play(m, compareFirst, 1<<20)
		if *gone != [wayCount]int{compareFirst / wayCount, compareFirst / wayCount} {
			t.Fatalf("of the first %d batches so many went each way: %v", compareFirst, *gone)
		}
		for way := range wayCount {
			if m.perByte[way].value() <= 0 {
				t.Errorf("nothing was learnt of way %d", way)
			}
		}
		*gone = [wayCount]int{}
		for range compareEach {
			m.perByte[slow].bits.Store(math.Float64bits(2)) // Overrides what the clock has measured.
			m.perByte[fast].bits.Store(math.Float64bits(1))
			play(m, 1, 1<<20)
		}
		if gone[slow] != 1 || gone[fast] != compareEach-1 {
			t.Errorf("fast is %d: the ways were taken %v", fast, *gone)
		}
		*gone = [wayCount]int{}
		if play(m, 100, 1<<20-1); *gone != [wayCount]int{ordinary: 100} {
			t.Errorf("small batches went %v", *gone)
		}
	}
}

// The way around the caches is not taken if it is only as fast as the other one.
func TestOrdinaryCopyIsPreferred(t *testing.T) {
	m := &moverChooser{}
	m.batches.Store(compareFirst)
	m.perByte[ordinary].addValue(1)
	m.perByte[aroundCaches].addValue(1 - fasterBy/2)
	if way, _ := m.chooseWay(); way != ordinary {
		t.Error("pages go around the caches for nothing")
	}
}

// One page whose thread lost its core does not change the choice.
func TestOneSlowPageChangesNothing(t *testing.T) {
	var a average
	a.addValue(1)
	a.addValue(float64(time.Second))
	if v := a.value(); v > 1.2 {
		t.Errorf("the average is %v", v)
	}
}
