package shm

import (
	"math"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// counting are movers that count which way pages go.
func counting() (*movers, *[ways]int) {
	m, gone := &movers{largeBytes: 1 << 20}, new([ways]int)
	for way := range m.by {
		m.by[way] = func([]byte, []byte) { gone[way]++ }
	}
	return m, gone
}

func play(m *movers, batches int, bytes uint32) {
	page := make([]byte, 8)
	for range batches {
		m.of([]effects.Pair{{Local: effects.Page{Length: bytes}}})(page, page)
	}
}

// Large batches first go each way, and then the one that was faster, but for one now and then; small ones are copied as
// ever.
func TestTheFasterWayIsTaken(t *testing.T) {
	for fast := range ways {
		slow := ways - 1 - fast
		m, gone := counting()
		play(m, compareFirst, 1<<20)
		if *gone != [ways]int{compareFirst / ways, compareFirst / ways} {
			t.Fatalf("of the first %d batches so many went each way: %v", compareFirst, *gone)
		}
		for way := range ways {
			if m.perByte[way].value() <= 0 {
				t.Errorf("nothing was learnt of way %d", way)
			}
		}
		*gone = [ways]int{}
		for range compareEach {
			m.perByte[slow].bits.Store(math.Float64bits(2)) // Whatever the clock says.
			m.perByte[fast].bits.Store(math.Float64bits(1))
			play(m, 1, 1<<20)
		}
		if gone[slow] != 1 || gone[fast] != compareEach-1 {
			t.Errorf("fast is %d: the ways were taken %v", fast, *gone)
		}
		*gone = [ways]int{}
		if play(m, 100, 1<<20-1); *gone != [ways]int{ordinary: 100} {
			t.Errorf("small batches went %v", *gone)
		}
	}
}

// A way around the caches that is as fast as the other one is not taken.
func TestCachesAreKeptWhereTheyCostNothing(t *testing.T) {
	m := &movers{}
	m.batches.Store(compareFirst)
	m.perByte[ordinary].add(1)
	m.perByte[aroundCaches].add(1 - fasterBy/2)
	if way, _ := m.choose(); way != ordinary {
		t.Error("pages go around the caches for nothing")
	}
}

// One page whose thread lost its core does not change what is thought of a way.
func TestOneSlowPageIsNoRule(t *testing.T) {
	var a average
	a.add(1)
	a.add(float64(time.Second))
	if v := a.value(); v > 1.2 {
		t.Errorf("the average is %v", v)
	}
}
