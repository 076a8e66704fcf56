package communicator

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// What an initiator has, and so what it walks in one step, its rules bound: more transfers are refused one by one, no
// more batches than the window fly, and whatever ends all of them at once tells each its end once.
func TestRulesBoundAStep(t *testing.T) {
	rules := Rules{Window: 2, Tries: 1, Transfers: 4, AnswerTimeout: 50, ProgressTimeout: 100, Grace: 20}
	most := rules.Transfers + rules.Window
	for name, end := range map[string]Event{
		"the channel is lost": {Kind: ChannelLost}, "the plane ends": {Kind: Close}, "it is let go of": {Kind: Drop},
		"their time is over": {Kind: Tick},
	} {
		l, now, out := NewInitiator(rules), effects.Time(1), Effects{}
		step := func(ev Event) []Post {
			out.Reset()
			l.Step(now, &ev, &out)
			return out.Posts
		}
		step(Event{Kind: Begin})
		step(Event{Kind: Accepted, Epoch: 1})
		step(Event{Kind: Formed, Epoch: 1})
		refused := 0
		for n := range 2 * most {
			for _, p := range step(Event{Kind: Transfer, Corr: effects.Corr(n + 1), Grant: 1, NotAfter: 10, Batches: 3}) {
				if refused++; p.Code != effects.TooMany || !p.Settled || p.Corr != effects.Corr(n+1) {
					t.Fatalf("%s: transfer %d of %d is answered with %+v", name, n+1, most, p)
				}
			}
		}
		if refused != most {
			t.Errorf("%s: %d of %d transfers were refused, want %d", name, refused, 2*most, most)
		}
		for range 2 * most {
			if _, ok := l.Next(); ok {
				step(Event{Kind: Submitted})
			}
		}
		if l.CountInFlight() != rules.Window {
			t.Errorf("%s: %d batches fly, the window is %d", name, l.CountInFlight(), rules.Window)
		}
		now = 11
		told := map[effects.Corr]bool{}
		for _, p := range step(end) {
			if p.Kind == PostTransferDone {
				if told[p.Corr] {
					t.Errorf("%s: transfer %d is told twice", name, p.Corr)
				}
				told[p.Corr] = true
			}
		}
		if len(told) != most || l.queue.Len() != 0 {
			t.Errorf("%s: %d of %d transfers are told in that step, %d wait on", name, len(told), most, l.queue.Len())
		}
	}
}
