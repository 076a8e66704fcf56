// Package good is what a machine looks like: nothing here is reported.
package good

import (
	"errors"
	"math"
	"slices"
)

var ErrFull = errors.New("table is full")

var _ Event = Tick{}

// names is filled here and never changed.
//
//kvferry:table
var names = [...]string{"idle", "busy"}

//kvferry:table
var (
	weights = []int{1, 2}
	index   = map[string]int{"idle": 0}
)

type Event interface{ isEvent() }

type Tick struct{}

func (Tick) isEvent() {}

// A table is a map beside an ordered slice; only the slice is walked.
type table struct {
	order  []uint64
	places map[uint64]int
	last   Event
}

type list[T any] struct{ items []T }

func (l *list[T]) each(visit func(T) bool) {
	for _, item := range l.items {
		if !visit(item) {
			return
		}
	}
}

func (t *table) step(now int64, ev Event) (sum int64) {
	visit := func(id uint64) { sum += int64(id) } // A function may be called, only not kept.
	for _, id := range t.order {
		if _, ok := t.places[id]; ok {
			visit(id)
		}
	}
	for i := range 3 {
		sum += int64(weights[i%2] + index[names[0]])
	}
	slices.Sort(t.order)
	t.last = ev
	return min(sum, math.MaxInt64-now)
}
