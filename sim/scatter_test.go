package sim

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// newFetchStage returns a stage whose node B has a command that fetches two chunks, which are in pages of node B.
func newFetchStage(t *testing.T, seed uint64) (*stage, *world.Node, effects.Ticket, []effects.Page) {
	s := newStage(t, seed)
	n := s.w.Nodes[contract.B]
	s.w.Jobs[0].KeyNumbers = []uint32{1, 2}
	s.w.AddCommand(pd.Command{Kind: plan.CommandFetch, Node: n.ID, Incarnation: n.Incarnation, Name: 1, DueAt: 1 << 60, Count: 2})
	var pages []effects.Page
	for i, id := range s.w.Jobs[0].KeyNumbers {
		pages = append(pages, effects.Page{Index: uint32(3 + i), Length: n.Pool.PageBytes,
			Generation: effects.Generation(5 + i)})
		pg := &n.Pool.Pages[pages[i].Index]
		pg.LastGeneration = pages[i].Generation
		for part := range pg.Stamps {
			pg.Stamps[part] = world.MakeStamp(id, 9, part)
		}
	}
	return s, n, effects.Ticket(len(s.w.Commands)), pages
}

// Chunks are scattered in order. Each scatter ends once, successfully or with a code that the contract allows, and the
// engine has the chunks of the successful scatters.
func TestScatters(t *testing.T) {
	ends := map[effects.Code]int{}
	for seed := range uint64(300) {
		s, n, ticket, pages := newFetchStage(t, seed)
		s.w.Conditions.Rates[plan.FaultDMAFailed] = 400
		for i := range pages {
			s.w.CarryOut(n, &effects.Scatter{Corr: effects.Corr(i + 1), Ticket: ticket, First: uint32(i), Pages: pages[i : i+1]})
			_, ev, ok := s.Next()
			e, is := ev.(*effects.Scattered)
			if !ok || !is || e.Corr != effects.Corr(i+1) {
				t.Fatalf("seed %d: the scatter ends with %#v", seed, ev)
			}
			ends[e.Code]++
			want := uint32(i)
			if e.Code == effects.OK {
				want++
			}
			if got := s.w.Commands[ticket-1].Device.Received; got != want || n.Pool.Pages[pages[i].Index].Scatters != 0 {
				t.Fatalf("seed %d: after %v the engine has %d chunks, and page pins are %d", seed, e.Code, got,
					n.Pool.Pages[pages[i].Index].Scatters)
			}
			if e.Code != effects.OK {
				break
			}
		}
		if s.w.Failure != nil {
			t.Fatal(s.w.Failure)
		}
	}
	for _, code := range contract.LegalCodes(contract.Scattering) {
		if ends[code] == 0 {
			t.Errorf("no scatter ended as %v; there were %v", code, ends)
		}
	}
}

// Each kind of forbidden scatter is reported under the right property.
func TestScattersAreWatched(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(s *stage, n *world.Node, e *effects.Scatter)
		after func(s *stage, n *world.Node, e *effects.Scatter) // after the scatter has begun
		want  string
	}{
		"another chunk's page": {spoil: func(_ *stage, _ *world.Node, e *effects.Scatter) { slices.Reverse(e.Pages) },
			want: "S2"},
		"out of order": {spoil: func(_ *stage, _ *world.Node, e *effects.Scatter) {
			e.First, e.Pages = 1,
				e.Pages[1:]
		}, want: "S15"},
		"more than there is": {spoil: func(_ *stage, _ *world.Node,
			e *effects.Scatter) {
			e.Pages = append(e.Pages, e.Pages[0])
		}, want: "S15"},
		"a torn page": {spoil: func(_ *stage, n *world.Node, e *effects.Scatter) {
			n.Pool.Pages[e.Pages[1].Index].Stamps[1] = world.MakeStamp(7, 9, 1)
		}, want: "S1"},
		"a page that is read into": {spoil: func(_ *stage, n *world.Node,
			e *effects.Scatter) {
			n.Pool.Pages[e.Pages[0].Index].Writers++
		}, want: "S15"},
		"an earlier life": {spoil: func(_ *stage, _ *world.Node, e *effects.Scatter) { e.Pages[0].Generation-- },
			want: "S2"},
		"nobody's command": {spoil: func(_ *stage, _ *world.Node, e *effects.Scatter) { e.Ticket += 100 },
			want: "L1"},
		"beside another": {after: func(s *stage, n *world.Node, e *effects.Scatter) {
			s.w.CarryOut(n, &effects.Scatter{Corr: e.Corr + 1, Ticket: e.Ticket, Pages: e.Pages})
		}, want: "S15"},
		"pages that change": {after: func(_ *stage, n *world.Node, e *effects.Scatter) {
			n.Pool.Pages[e.Pages[1].Index].Stamps = [world.Parts]world.Stamp{}
		}, want: "S1"},
		"delivered meanwhile": {after: func(s *stage, n *world.Node, e *effects.Scatter) {
			why := &effects.Why{Stage: effects.StageScatter, Field: "Deadline"}
			s.w.CarryOut(n, &effects.Deliver{Ticket: e.Ticket, Code: effects.Expired, Why: why})
		}, want: "S19"},
		"returned meanwhile": {after: func(s *stage, n *world.Node, e *effects.Scatter) {
			why := &effects.Why{Stage: effects.StageScatter, Field: "Keys"}
			s.w.CarryOut(n, &effects.Deliver{Ticket: e.Ticket, Code: effects.NotFound, Held: true, Why: why})
			s.w.CarryOut(n, &effects.Return{Ticket: e.Ticket})
		}, want: "S19"},
	} {
		t.Run(name, func(t *testing.T) {
			s, n, ticket, pages := newFetchStage(t, 1)
			e := &effects.Scatter{Corr: 1, Ticket: ticket, Pages: pages}
			if c.spoil != nil {
				c.spoil(s, n, e)
			}
			s.w.CarryOut(n, e)
			if c.after != nil {
				c.after(s, n, e)
			}
			s.Next()
			if f := s.w.Failure; f == nil || f.Property != c.want {
				t.Errorf("it is seen as %+v, want %s", f, c.want)
			}
		})
	}
}
