package staging

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"pgregory.net/rapid"
)

// corrsRef is what the oldest read was for.
func corrsRef(r *rig) kernel.Ref {
	ref, _ := r.corrs.Peek(r.reads[0].e.Corr)
	return ref
}

// Whatever is fetched, in whatever order and however reads and scatters end: the rig checks
// after each step that no read stores into a page that is scattered or read into (S15), that
// no page is free while anything touches it (S4), and that the engine gets its items in order
// and whole; in the end every fetch had its one outcome (L1), and everything came back once.
func TestPipeline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pages := rapid.Uint32Range(1, 12).Draw(t, "pages")
		r := newRig(t, pages, Config{
			Settings: Settings{StagingPages: rapid.Uint32Range(1, pages).Draw(t, "staging")},
			Depth:    rapid.Uint32Range(1, 4).Draw(t, "depth"),
		})
		var stolen []effects.Page
		bad := rapid.SampledFrom([]effects.Code{effects.Expired, effects.Cancelled, effects.PeerLost, effects.Withdrawn,
			effects.Faulted, effects.Stale})
		under := func(t *rapid.T, over bool) *readModel {
			for n, from := 0, rapid.IntRange(0, 99).Draw(t, "which"); n < len(r.reads); n++ {
				if rd := r.reads[(from+n)%len(r.reads)]; rd.completed == over {
					return rd
				}
			}
			t.Skip("none")
			return nil
		}
		some := func(t *rapid.T) *fetchModel {
			if len(r.fetches) == 0 {
				t.Skip("none")
			}
			return rapid.SampledFrom(r.fetches).Draw(t, "fetch")
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				items := rapid.StringMatching(`(L|0|1|2){1,14}`).Draw(t, "items")
				if _, code := r.open(items, effects.Duration(rapid.IntRange(1, 20).Draw(t,
					"s"))*effects.Second); code != effects.OK && code != effects.TooMany && code != effects.Invalid &&
					code != effects.Draining {
					t.Fatalf("refused as %v", code)
				}
			},
			"reads well": func(t *rapid.T) { r.readEnds(under(t, false), effects.OK, true, r.now) },
			"reads late": func(t *rapid.T) {
				rd := under(t, false)
				r.readEnds(rd, effects.OK, true, r.ReadDeadline(rd.fetch.Sources[rd.source].ID)+1)
			},
			"reads badly": func(t *rapid.T) {
				r.readEnds(under(t, false), bad.Draw(t, "code"), rapid.Bool().Draw(t, "settled"), r.now)
			},
			"settles": func(t *rapid.T) { r.settleRead(under(t, true)) },
			"scatters": func(t *rapid.T) {
				if len(r.scatters) == 0 {
					t.Skip("none")
				}
				s, code := rapid.SampledFrom(r.scatters).Draw(t, "scatter"), effects.OK
				if rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
					code = effects.Faulted
				}
				r.scatterEnds(s, code)
			},
			"aborts": func(t *rapid.T) {
				f := some(t)
				r.step(func(v *env.Env) {
					if ended := r.p.AbortFetch(v, f.Ticket); ended != (f.outcome == nil) {
						t.Fatalf("an abort of ticket %d, whose outcome is %+v: %v", f.Ticket, f.outcome, ended)
					}
				})
			},
			"lease ends": func(t *rapid.T) {
				f := some(t)
				for i := range f.Sources {
					r.step(func(v *env.Env) { r.withdraw(v, f.Sources[i].ID) })
				}
			},
			"link lost": func(t *rapid.T) {
				link := effects.Link(rapid.IntRange(1, 3).Draw(t, "link"))
				r.lose(link)
				for _, rd := range r.reads {
					if rd.e.Link == link && rd.fetch.outcome == nil {
						t.Fatalf("ticket %d goes on reading over the lost link %d", rd.fetch.Ticket, link)
					}
				}
			},
			"time passes": func(t *rapid.T) { r.advance(effects.Duration(rapid.IntRange(1, 5).Draw(t, "s")) * effects.Second) },
			"others take": func(t *rapid.T) {
				if free := r.pool.FreePages(); free > 0 {
					stolen = r.pool.TakePages(rapid.Uint32Range(1, free).Draw(t, "n"), stolen)
				}
			},
			"others free": func(t *rapid.T) {
				if len(stolen) == 0 {
					t.Skip("none")
				}
				r.pool.DropRef(stolen[0])
				stolen = stolen[1:]
				r.step(func(*env.Env) {})
			},
		})
		if rapid.Bool().Draw(t, "drain") {
			r.drain()
		} else {
			for _, page := range stolen {
				r.pool.DropRef(page)
			}
			stolen = nil
			r.step(func(*env.Env) {})
		}
		r.run()
		r.advance(20 * effects.Second)
		r.run() // What one that expired gave back may have let another begin.
		for _, page := range stolen {
			r.pool.DropRef(page)
		}
		r.wantNothingLeft()
	})
}
