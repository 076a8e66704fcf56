package hccl

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
)

// A world is all that a link meets: the machine above it, the peer, the library and the clock. It carries out what the
// link decides when the test draws that, and holds it to its promises.
type world struct {
	t       *rapid.T
	l       *link
	now     effects.Time
	checker *contract.Checker
	corr    effects.Corr
	grant   effects.GrantID

	offered   uint64 // newest life that was offered
	forming   uint64 // lives under way, 0 for none
	buried    uint64 // that is being buried
	up        uint64
	quiet     bool
	stuck     bool
	gone      uint64          // the newest life of which the peer was told that it is gone
	done      map[uint64]bool // lives that are over
	flying    []*transfer     // in the hands of the hardware, in order
	open      []*transfer     // not told
	revoked   map[effects.GrantID]bool
	given     map[effects.GrantID]effects.Time // when the peer gave it
	told      map[effects.Corr]*effects.TransferDone
	settled   map[effects.Corr]bool
	transfers map[effects.Corr]*transfer
	dropping  bool
	hopeless  bool
	lost      bool
	imported  int
}

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, now: 1, checker: contract.New(false), done: map[uint64]bool{}, revoked: map[effects.GrantID]bool{}, given: map[effects.GrantID]effects.Time{},
		told: map[effects.Corr]*effects.TransferDone{}, settled: map[effects.Corr]bool{}, transfers: map[effects.Corr]*transfer{},
	}
	w.l = &link{hands: w, id: 5, peer: effects.Incarnation{9}, rules: rules{
		window: rapid.IntRange(1, 3).Draw(t, "window"), tries: rapid.IntRange(1, 3).Draw(t, "tries"), answer: 400, patience: 100, grace: 20,
	}}
	w.corr++
	w.l.corr = w.corr
	w.asked(&effects.Import{Corr: w.corr})
	w.l.ask(w.now)
	return w
}

func (w *world) asked(e effects.Effect) {
	if err := w.checker.Asked(e); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) post(ev effects.Event) {
	if err := w.checker.Told(ev); err != nil {
		w.t.Fatal(err)
	}
	switch e := ev.(type) {
	case *effects.TransferDone:
		t := w.transfers[e.Corr]
		flying := slices.Contains(w.flying, t)
		switch {
		case e.Settled == flying:
			w.t.Fatalf("transfer %d is told settled %v, and flies %v", e.Corr, e.Settled, flying)
		case e.Code == effects.OK && t.done != len(t.batches):
			w.t.Fatalf("transfer %d ended well after %d of %d batches", e.Corr, t.done, len(t.batches))
		case e.At != w.now:
			w.t.Fatalf("transfer %d ended at %d; it is %d", e.Corr, e.At, w.now)
		}
		w.told[e.Corr] = e
		w.open = slices.DeleteFunc(w.open, func(t *transfer) bool { return t.corr == e.Corr })
	case *effects.Settled:
		if slices.Contains(w.flying, w.transfers[e.Corr]) {
			w.t.Fatalf("transfer %d is settled and flies", e.Corr)
		}
		w.settled[e.Corr] = true
	case *effects.LinkLost:
		w.lost = true
	case *effects.Imported:
		w.imported++
	default:
	}
}

func (w *world) tell(k kind, life uint64) {
	switch k {
	case kindOffer:
		if life != w.offered+1 || w.up != 0 || w.buried != 0 || w.forming != 0 || len(w.flying) > 0 {
			w.t.Fatalf("life %d is offered after %d, while %d is formed, %d up, %d buried, and %d batches fly", life, w.offered, w.forming, w.up, w.buried, len(w.flying))
		}
		w.offered = life
	case kindGone:
		if !w.done[life] || len(w.flying) > 0 {
			w.t.Fatalf("life %d is told gone", life)
		}
		w.gone = life
	case kindCondemned:
		if life != w.up {
			w.t.Fatalf("life %d is condemned; %d is up", life, w.up)
		}
	default:
		w.t.Fatalf("kind %d", k)
	}
}

func (w *world) form(life uint64) {
	if life != w.offered || w.forming != 0 {
		w.t.Fatalf("life %d is formed; %d was offered", life, w.offered)
	}
	w.forming = life
}

func (w *world) bury(life uint64, quiet bool) {
	if life != w.up || quiet != (len(w.flying) == 0) {
		w.t.Fatalf("life %d is buried, quiet %v; %d is up and %d batches fly", life, quiet, w.up, len(w.flying))
	}
	w.up, w.buried, w.quiet, w.stuck = 0, life, quiet, false
}

// submits has the link submit all that it wants, as its driver does after each event.
func (w *world) submits() {
	for t := w.l.next(); t != nil; t = w.l.next() {
		switch {
		case w.up == 0:
			w.t.Fatal("something is submitted while no life is up")
		case w.told[t.corr] != nil || w.revoked[t.grant] || t.sent >= len(t.batches):
			w.t.Fatalf("transfer %d is submitted", t.corr)
		}
		how := rapid.SampledFrom([]outcome{submitted, submitted, submitted, submitted, broken}).Draw(w.t, "outcome")
		if w.now > t.notAfter {
			how = expired
		}
		if how != expired {
			w.flying = append(w.flying, t)
		}
		w.l.submit(t, how, w.now)
		if len(w.flying) > w.l.rules.window {
			w.t.Fatalf("%d batches fly", len(w.flying))
		}
	}
	if w.up != 0 && len(w.flying) == 0 && len(w.open) > 0 {
		w.t.Fatalf("transfer %d waits for nothing", w.open[0].corr)
	}
}

// actions are what may happen, each if it may just now.
func (w *world) actions() map[string]func() {
	a := map[string]func(){
		"time": func() {
			w.now += effects.Time(rapid.Int64Range(1, 60).Draw(w.t, "passes"))
			w.l.tick(w.now)
			if at := w.l.wake(); at != 0 && at <= w.now {
				w.t.Fatalf("it is %d and the link wants to be woken at %d", w.now, at)
			}
		},
		"word of a life": func() { w.l.condemned(rapid.Uint64Range(0, w.offered+1).Draw(w.t, "life")) },
	}
	if w.l.imported && !w.dropping && !w.lost && len(w.open) < 6 {
		a["transfer"] = w.transfer
		a["drop"] = func() {
			if rapid.IntRange(0, 5).Draw(w.t, "really") == 0 {
				w.drop()
			}
		}
	}
	if len(w.open) > 0 {
		a["cancel"] = func() { w.l.cancel(rapid.SampledFrom(w.open).Draw(w.t, "which").corr, w.now) }
	}
	if w.l.phase == asking {
		a["accept"] = func() { w.accepts(rapid.IntRange(0, 9).Draw(w.t, "refused") == 0) }
	}
	if w.forming != 0 {
		a["formed"] = func() { w.formed(rapid.IntRange(0, 3).Draw(w.t, "fails") != 0) }
	}
	if len(w.flying) > 0 {
		a["batch ends"] = func() { w.lands(rapid.IntRange(0, 4).Draw(w.t, "fails") != 0) }
	}
	if w.buried != 0 && !w.hopeless {
		a["settled"] = w.settles
		if rapid.IntRange(0, 19).Draw(w.t, "no hope") == 0 {
			a["no proof will come"] = func() { w.l.despair(w.buried, w.now); w.hopeless = true }
		}
		if !w.stuck {
			a["stuck"] = func() { w.stuck = true; w.l.stuck(w.buried, w.now) }
		}
	}
	a["channel ends"] = func() {
		if rapid.IntRange(0, 9).Draw(w.t, "really") == 0 {
			w.l.lose(effects.PeerLost, w.now)
		}
	}
	return a
}

func (w *world) transfer() {
	w.corr++
	if w.grant == 0 || rapid.Bool().Draw(w.t, "new grant") {
		w.grant++
		w.given[w.grant] = w.now
	}
	grant := w.grant
	if rapid.Bool().Draw(w.t, "old grant") {
		grant = effects.GrantID(rapid.Uint64Range(1, uint64(grant)).Draw(w.t, "grant"))
	}
	t := &transfer{corr: w.corr, grant: grant, since: w.given[grant], notAfter: w.now + effects.Time(rapid.Int64Range(-5, 400).Draw(w.t, "time")),
		batches: make([][]piece, rapid.IntRange(1, 4).Draw(w.t, "batches"))}
	w.transfers[t.corr] = t
	w.open = append(w.open, t)
	w.asked(&effects.Transfer{Corr: t.corr, Link: w.l.id, Pairs: make([]effects.Pair, 1)})
	w.l.transfer(t, w.now)
}

func (w *world) accepts(refused bool) {
	a := accept{life: w.offered, code: effects.OK}
	if refused {
		a.code = effects.TooMany
	}
	for _, t := range w.open {
		if rapid.IntRange(0, 3).Draw(w.t, "revoked") == 0 {
			w.revoked[t.grant] = true
		}
	}
	for grant := range w.revoked {
		a.revoked = append(a.revoked, grant)
	}
	if rapid.IntRange(0, 9).Draw(w.t, "more") == 0 {
		a.more = true
		for grant, at := range w.given {
			if at < w.now {
				w.revoked[grant] = true
			}
		}
	}
	w.l.accepted(a, w.now)
}

func (w *world) formed(well bool) {
	life := w.forming
	w.forming = 0
	if well {
		w.up = life
		w.l.formed(life, effects.OK, w.now)
		return
	}
	w.done[life] = true
	w.l.formed(life, effects.Faulted, w.now)
}

// lands ends the oldest batch. One that fails is over only with its life.
func (w *world) lands(well bool) {
	if well {
		w.flying = w.flying[1:]
	}
	w.l.landed(w.offered, well, w.now)
}

func (w *world) settles() {
	life := w.buried
	w.flying, w.buried = nil, 0
	w.done[life] = true
	w.l.settled(life, w.now)
	if w.gone != life {
		w.t.Fatalf("life %d is settled, and the peer was told so of %d", life, w.gone)
	}
}

func (w *world) drop() {
	w.dropping = true
	w.asked(&effects.Drop{Link: w.l.id})
	w.l.drop(w.now)
}

// Whatever happens, in whatever order: each transfer ends once and is settled once, when nothing of it is in any
// hardware; nothing is submitted twice at a time, on a life that is over, under a grant that was taken back before that
// life, or after its time; and what ends is told in an order that the machine knows. In the end nothing is owed.
func TestLink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(5, 80).Draw(t, "steps") {
			all := w.actions()
			names := make([]string, 0, len(all))
			for name := range all {
				names = append(names, name)
			}
			slices.Sort(names)
			all[rapid.SampledFrom(names).Draw(t, "action")]()
			w.submits()
		}
		w.ends()
		if err := w.checker.Owed(); err != nil && !w.hopeless {
			t.Fatal(err)
		}
		for corr := range w.transfers {
			done := w.told[corr]
			if done == nil || done.Settled == w.settled[corr] && !slices.Contains(w.flying, w.transfers[corr]) {
				t.Fatalf("transfer %d was told %+v, and settled %v", corr, done, w.settled[corr])
			}
		}
		if !w.l.gone() || w.imported != 1 || w.up+w.forming != 0 || w.buried != 0 && !w.hopeless {
			t.Fatalf("the link is in phase %d, imported %d times", w.l.phase, w.imported)
		}
	})
}

// ends lets everything come to its end, by a drop or because the plane closes.
func (w *world) ends() {
	if w.l.imported && !w.dropping && !w.hopeless && rapid.Bool().Draw(w.t, "drops") {
		w.drop()
	} else {
		w.l.close(w.now)
	}
	for range 10 {
		switch {
		case w.forming != 0:
			w.formed(rapid.Bool().Draw(w.t, "formed at last"))
		case w.buried != 0 && !w.hopeless:
			w.settles()
		}
		w.submits()
	}
}

// Transfers that had no part in it are submitted again, from the first batch that has not ended; the one that broke the
// life is not.
func TestInnocentTransfersGoOn(t *testing.T) {
	for _, c := range []struct {
		name   string
		byPeer bool
		want   effects.Code // of the transfer whose batch failed
	}{{"by a batch", false, effects.Faulted}, {"by the peer", true, effects.OK}} {
		t.Run(c.name, func(t *testing.T) {
			h := &recorder{}
			l := &link{hands: h, id: 5, rules: rules{window: 3, tries: 2, answer: 50, patience: 100, grace: 20}}
			l.ask(1)
			l.accepted(accept{life: 1}, 1)
			l.formed(1, effects.OK, 1)
			one := &transfer{corr: 1, grant: 1, notAfter: 1000, batches: make([][]piece, 2)}
			two := &transfer{corr: 2, grant: 2, notAfter: 1000, batches: make([][]piece, 1)}
			three := &transfer{corr: 3, grant: 3, notAfter: 1000, batches: make([][]piece, 1)}
			for _, tr := range []*transfer{one, two, three} {
				l.transfer(tr, 2)
			}
			fly := func(now effects.Time) {
				for tr := l.next(); tr != nil; tr = l.next() {
					l.submit(tr, submitted, now)
				}
			}
			fly(2)
			l.landed(1, true, 3)
			fly(3)
			if one.done != 1 || len(l.flight) != 3 {
				t.Fatalf("%d batches of the first ended, %d fly", one.done, len(l.flight))
			}
			l.landed(1, false, 4)
			if c.byPeer {
				l.condemned(1)
			}
			l.settled(1, 5)
			l.accepted(accept{life: 2, revoked: []effects.GrantID{3}}, 6)
			l.formed(2, effects.OK, 7)
			fly(8)
			for range len(l.flight) {
				l.landed(2, true, 9)
			}
			got := map[effects.Corr]effects.Code{}
			for _, done := range h.done {
				got[done.Corr] = done.Code
			}
			if got[1] != c.want || got[2] != effects.OK || got[3] != effects.Withdrawn || len(h.done) != 3 {
				t.Fatalf("they ended as %v", got)
			}
		})
	}
}

// recorder keeps what transfers ended as.
type recorder struct{ done []*effects.TransferDone }

func (r *recorder) post(ev effects.Event) {
	if done, ok := ev.(*effects.TransferDone); ok {
		r.done = append(r.done, done)
	}
}
func (r *recorder) tell(kind, uint64) {}
func (r *recorder) form(uint64)       {}
func (r *recorder) bury(uint64, bool) {}
