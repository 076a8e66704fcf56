package zeromq

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
)

// The table behaves as a plain list that drops its oldest entry when it is full.
func TestRequestsForgetTheOldest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		table := NewRequests[effects.Conn](limit)
		var model []effects.Request
		next := effects.Request(1)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") {
				id, old, evicted := table.Add(effects.Conn(next))
				if id != next || evicted != (len(model) == limit) {
					t.Fatalf("added %d, evicted %t, with %v", id, evicted, model)
				}
				if evicted {
					if old != effects.Conn(model[0]) {
						t.Fatalf("forgot %d, with %v", old, model)
					}
					model = model[1:]
				}
				model = append(model, id)
				next++
				continue
			}
			id := effects.Request(rapid.Uint64Range(0, uint64(next)).Draw(t, "id"))
			at := -1
			for i, known := range model {
				if known == id {
					at = i
				}
			}
			route, found := table.Take(id)
			if found != (at >= 0) || found && route != effects.Conn(id) {
				t.Fatalf("took %d: %+v, %t, with %v", id, route, found, model)
			}
			if found {
				model = append(model[:at:at], model[at+1:]...)
			}
		}
	})
}
