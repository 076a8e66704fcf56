package staging

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"pgregory.net/rapid"
)

// playFetch plays a fetch on a device whose reads take r and whose scatters take s, each for one batch,
// and returns how long the fetch took.
func playFetch(t fatal, g *rig, items string, r, s effects.Duration) effects.Duration {
	t.Helper()
	f, began := g.open1(items), g.now
	for f.outcome == nil {
		var first *readModel
		var then *scatter
		at := never
		for _, rd := range g.reads {
			if end := rd.began.Add(r); end < at {
				first, at = rd, end
			}
		}
		for _, sc := range g.scatters {
			if end := sc.began.Add(s); end < at {
				first, then, at = nil, sc, end
			}
		}
		g.advance(at.Sub(g.now))
		switch {
		case then != nil:
			g.scatterEnds(then, effects.OK)
		case first != nil:
			g.readEnds(first, effects.OK, true, g.now)
		default:
			t.Fatalf("ticket %d stands still", f.Ticket)
		}
	}
	g.wantOutcome(f, effects.OK, false)
	return g.now.Sub(began)
}

// With ten batches or more, a fetch takes at most 5 % more than its reads or its scatters
// alone, whichever are longer, and one batch.
func TestOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 3).Draw(t, "depth")
		batches := rapid.IntRange(10, 30).Draw(t, "batches")
		r := effects.Duration(rapid.IntRange(1, 100).Draw(t, "read")) * effects.Millisecond
		s := effects.Duration(rapid.IntRange(1, 100).Draw(t, "scatter")) * effects.Millisecond
		g := newRig(t, 8, Config{
			Settings: Settings{StagingPages: 8, FetchesMax: 1}, Depth: uint32(depth), ItemsMax: 100, SourcesMax: 1,
		})
		took := playFetch(t, g, strings.Repeat("0", depth*batches), r, s)
		longest := max(r, s) * effects.Duration(batches)
		if least := longest + min(r, s); took < least {
			t.Fatalf("%d ns for %d batches: no two reads or scatters of a fetch run at a time, so %d is the least", took,
				batches, least)
		}
		if most := longest + longest/20 + min(r, s); took > most {
			t.Fatalf("%d ns for %d batches of %d ns to read and %d to scatter; at most %d is wanted", took, batches, r, s, most)
		}
		g.wantNothingLeft()
	})
}

// Local items cost their scatter alone: the first read runs beside it.
func TestOverlapWithLocalItems(t *testing.T) {
	g := newRig(t, 16, Config{Settings: Settings{StagingPages: 4}, Depth: 2})
	if took := playFetch(t, g, "LLLL0000", 10, 10); took != 30 {
		t.Errorf("a scatter beside the first of two reads, and two scatters: 30 ns; it took %d", took)
	}
}
