package kernel

import (
	"sort"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
	"pgregory.net/rapid"
)

// TestTimersAgainstModel: the heap fires in order of time, then of setting, whatever was stopped or set
// again in between.
func TestTimersAgainstModel(t *testing.T) {
	type pending struct {
		at      effects.Time
		seq     int
		subject int
	}
	rapid.Check(t, func(t *rapid.T) {
		q := NewTimers(64)
		ids := make([]TimerID, 64)
		var model []pending
		seq := 0
		remove := func(subject int) {
			for i, p := range model {
				if p.subject == subject {
					model = append(model[:i], model[i+1:]...)
					return
				}
			}
		}
		now := effects.Time(0)
		reach := rapid.SampledFrom([]int{5, 1000}).Draw(t, "reach") // Many equal times, or few.
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				i := rapid.IntRange(0, 63).Draw(t, "subject")
				at := now.Add(effects.Duration(rapid.IntRange(0, reach).Draw(t, "in")))
				q.Set(&ids[i], at, Ref{Subject: table.Handle(i)})
				remove(i)
				seq++
				model = append(model, pending{at, seq, i})
			},
			"stop": func(t *rapid.T) {
				i := rapid.IntRange(0, 63).Draw(t, "subject")
				q.Stop(&ids[i])
				remove(i)
			},
			"pop": func(t *rapid.T) {
				now += effects.Time(rapid.IntRange(0, 3).Draw(t, "pass"))
				sort.Slice(model, func(i, j int) bool {
					return model[i].at < model[j].at || model[i].at == model[j].at && model[i].seq < model[j].seq
				})
				ref, ok := q.Pop(now)
				want := len(model) > 0 && model[0].at <= now
				if ok != want {
					t.Fatalf("Pop at %d: %v, want %v", now, ok, want)
				}
				if ok {
					if int(ref.Subject) != model[0].subject {
						t.Fatalf("Pop gave %d, want %d", ref.Subject, model[0].subject)
					}
					remove(model[0].subject)
				}
			},
			"": func(t *rapid.T) {
				if q.Len() != len(model) {
					t.Fatalf("%d pending, want %d", q.Len(), len(model))
				}
			},
		})
	})
}
