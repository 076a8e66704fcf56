package shm

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// The wayCount to copy a page.
const (
	ordinary = iota
	aroundCaches
	wayCount
)

const (
	// The first compareFirst large batches go each way in turn. Of the later batches, each timeEach-th is timed,
	// because reading the clock takes up to a tenth of a page's time, and each compareEach-th goes the way that seemed
	// slower.
	compareFirst = 8
	timeEach     = 8
	compareEach  = 64
	// fasterBy is the share of time that copying around the caches must save to be chosen, because the copied bytes
	// are then not in the cache of an engine that reads the pages next.
	fasterBy = 0.05
	// smoothing is the weight of a page in an average. A page counts with at most outlier times the average, because a
	// thread that lost its core for a while says nothing about copying.
	smoothing = 1.0 / 32
	outlier   = 4
)

// A moverChooser chooses between the ways to copy pages. Which way is faster differs between processors by a third in
// either direction, so the chooser measures the batches that are copied.
type moverChooser struct {
	movers [wayCount]plane.Mover
	// largeBytes is the size of the smallest batch for which caches do not help the copy.
	largeBytes uint64
	batches    atomic.Uint64
	perByte    [wayCount]average // nanoseconds per byte
}

// moverFor chooses how the pages of a batch are copied.
func (m *moverChooser) moverFor(pairs []effects.Pair) plane.Mover {
	var bytes uint64
	for _, pair := range pairs {
		bytes += uint64(pair.Local.Length)
	}
	if bytes < m.largeBytes {
		return m.movers[ordinary]
	}
	way, timed := m.chooseWay()
	if !timed {
		return m.movers[way]
	}
	return func(dst, src []byte) {
		begin := time.Now()
		m.movers[way](dst, src)
		m.perByte[way].addValue(float64(time.Since(begin)) / float64(max(len(dst), 1)))
	}
}

// chooseWay returns the way of the next large batch, and whether the batch is timed.
func (m *moverChooser) chooseWay() (way int, timed bool) {
	n := m.batches.Add(1)
	if n <= compareFirst {
		return int(n % wayCount), true
	}
	if m.perByte[aroundCaches].value() < m.perByte[ordinary].value()*(1-fasterBy) {
		way = aroundCaches
	}
	if n%compareEach == 0 {
		way = wayCount - 1 - way
	}
	return way, n%timeEach == 0
}

// An average is an exponential moving average. If several threads add values at once, some values may be lost.
type average struct{ bits atomic.Uint64 }

func (a *average) value() float64 { return math.Float64frombits(a.bits.Load()) }

func (a *average) addValue(v float64) {
	old := a.value()
	if old > 0 {
		v = old + (min(v, outlier*old)-old)*smoothing
	}
	a.bits.Store(math.Float64bits(v))
}
