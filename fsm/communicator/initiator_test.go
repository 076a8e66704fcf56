package communicator

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
)

// A world is all that an initiator meets: the machine above it, the target, the library and the clock. It carries out
// what the initiator decides when the test draws that, and holds it to its promises.
type world struct {
	t       *rapid.T
	l       Initiator
	out     Effects
	rules   Rules
	now     effects.Time
	checker *contract.Checker
	corr    effects.Corr
	grant   effects.GrantID

	offered   uint64 // newest epoch that was offered
	forming   uint64 // epoch under way, 0 for none
	tearing   uint64 // that is being torn down
	up        uint64
	stuck     bool
	gone      uint64          // the newest epoch of which the target was told that it is gone
	done      map[uint64]bool // epochs that are over
	culprit   effects.Corr    // whose batch failed first in this epoch, of what is not told
	innocent  bool            // the target fenced it
	flying    []*wanted       // in the hands of the hardware, in order
	open      []*wanted       // not told
	revoked   map[effects.GrantID]bool
	given     map[effects.GrantID]effects.Time // when the target gave it
	told      map[effects.Corr]Post
	settled   map[effects.Corr]bool
	transfers map[effects.Corr]*wanted
	dropping  bool
	unproven  bool
	lost      bool
	imported  int
}

// wanted is a transfer as the world counts it.
type wanted struct {
	Event
	sent, landed int
}

const testLink = 5

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, now: 1, checker: contract.New(false), done: map[uint64]bool{}, revoked: map[effects.GrantID]bool{},
		given: map[effects.GrantID]effects.Time{}, told: map[effects.Corr]Post{}, settled: map[effects.Corr]bool{},
		transfers: map[effects.Corr]*wanted{},
	}
	w.rules = Rules{
		Window: rapid.IntRange(1, 3).Draw(t, "window"), Tries: rapid.IntRange(1, 3).Draw(t, "tries"), Transfers: 6,
		AnswerTimeout: effects.Duration(rapid.SampledFrom([]int{30, 400}).Draw(t, "answer")), ProgressTimeout: 100, Grace: 20,
	}
	w.l = NewInitiator(w.rules)
	w.corr++
	w.asked(&effects.Import{Corr: w.corr})
	w.step(Event{Kind: Begin})
	return w
}

func (w *world) asked(e effects.Effect) {
	if err := w.checker.CheckEffect(e); err != nil {
		w.t.Fatal(err)
	}
}

// step feeds an event and takes what comes of it.
func (w *world) step(ev Event) {
	w.l.Step(w.now, &ev, &w.out)
	for _, p := range w.out.Posts {
		w.post(p)
	}
	for _, s := range w.out.Messages {
		w.say(s.Kind, s.Epoch)
	}
	if w.out.FormEpoch != 0 {
		w.form(w.out.FormEpoch)
	}
	if w.out.TearDown.Epoch != 0 {
		w.tearDown(w.out.TearDown)
	}
	w.out.Reset()
}

func (w *world) post(p Post) {
	var ev effects.Event
	switch p.Kind {
	case PostImported:
		w.imported++
		e := &effects.Imported{Corr: 1, Code: p.Code}
		if p.Code == effects.OK {
			e.Link = testLink
		}
		ev = e
	case PostTransferDone:
		t := w.transfers[p.Corr]
		flying := slices.Contains(w.flying, t)
		switch {
		case p.Settled == flying:
			w.t.Fatalf("transfer %d is told settled %v, and flies %v", p.Corr, p.Settled, flying)
		case p.Code == effects.OK && t.landed != t.Batches:
			w.t.Fatalf("transfer %d ended well after %d of %d batches", p.Corr, t.landed, t.Batches)
		case p.Code == effects.Faulted && (p.Corr != w.culprit || w.innocent):
			w.t.Fatalf("transfer %d ended as faulted; %d broke the epoch, by the target %v", p.Corr, w.culprit, w.innocent)
		case p.At != w.now:
			w.t.Fatalf("transfer %d ended at %d; it is %d", p.Corr, p.At, w.now)
		}
		w.told[p.Corr] = p
		w.open = slices.DeleteFunc(w.open, func(t *wanted) bool { return t.Corr == p.Corr })
		ev = &effects.TransferDone{Corr: p.Corr, Code: p.Code, Settled: p.Settled, At: p.At}
	case PostSettled:
		if slices.Contains(w.flying, w.transfers[p.Corr]) {
			w.t.Fatalf("transfer %d is settled and flies", p.Corr)
		}
		w.settled[p.Corr] = true
		ev = &effects.Settled{Corr: p.Corr, Code: p.Code}
	case PostLinkLost:
		w.lost = true
		ev = &effects.LinkLost{Link: testLink}
	case PostDropped:
		ev = &effects.Dropped{Link: testLink}
	}
	if err := w.checker.CheckEvent(ev); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) say(word MessageKind, epoch uint64) {
	switch word {
	case MessageOffer:
		if epoch != w.offered+1 || w.up != 0 || w.tearing != 0 || w.forming != 0 || len(w.flying) > 0 {
			w.t.Fatalf("epoch %d is offered after %d, while %d is formed, %d up, %d torn down, and %d batches fly",
				epoch, w.offered, w.forming, w.up, w.tearing, len(w.flying))
		}
		w.offered = epoch
	case MessageGone:
		if !w.done[epoch] || len(w.flying) > 0 {
			w.t.Fatalf("epoch %d is told gone", epoch)
		}
		w.gone = epoch
	case MessageFenced:
		if epoch != w.up {
			w.t.Fatalf("epoch %d is fenced; %d is up", epoch, w.up)
		}
	default:
		w.t.Fatalf("word %d", word)
	}
}

func (w *world) form(epoch uint64) {
	if epoch != w.offered || w.forming != 0 {
		w.t.Fatalf("epoch %d is formed; %d was offered", epoch, w.offered)
	}
	w.forming = epoch
}

func (w *world) tearDown(d TearDown) {
	if d.Epoch != w.up || d.InFlight != len(w.flying) {
		w.t.Fatalf("%+v; %d is up and %d batches fly", d, w.up, len(w.flying))
	}
	w.up, w.tearing, w.stuck = 0, d.Epoch, false
}

// submits has the initiator submit all that it wants, as its driver does after each event.
func (w *world) submits() {
	for b, ok := w.l.Next(); ok; b, ok = w.l.Next() {
		t := w.transfers[b.Corr]
		_, told := w.told[b.Corr]
		switch {
		case w.up == 0:
			w.t.Fatal("something is submitted while no epoch is up")
		case told || w.revoked[t.Grant] || b.Index != t.sent || b.Index >= t.Batches || b.NotAfter != t.NotAfter:
			w.t.Fatalf("batch %+v of transfer %+v is submitted", b, t)
		}
		how := rapid.SampledFrom([]Outcome{InFlight, InFlight, InFlight, InFlight, SubmitFailed}).Draw(w.t, "outcome")
		if w.now > b.NotAfter {
			how = TooLate
		}
		if how != TooLate {
			t.sent++
			w.flying = append(w.flying, t)
		}
		if how == SubmitFailed {
			w.culprit = t.Corr
		}
		w.step(Event{Kind: Submitted, Outcome: how})
		if len(w.flying) > w.rules.Window {
			w.t.Fatalf("%d batches fly", len(w.flying))
		}
	}
	if w.up != 0 && len(w.flying) == 0 && len(w.open) > 0 {
		w.t.Fatalf("transfer %d waits for nothing", w.open[0].Corr)
	}
}

// actions are what may happen, each if it may just now.
func (w *world) actions() map[string]func() {
	a := map[string]func(){
		"time": func() {
			w.now += effects.Time(rapid.Int64Range(1, 60).Draw(w.t, "passes"))
			w.step(Event{Kind: Tick})
			if at, ok := w.l.Deadline(); ok && at <= w.now {
				w.t.Fatalf("it is %d and the initiator wants to be woken at %d", w.now, at)
			}
			for _, t := range w.open {
				if w.now > t.NotAfter && (w.up == 0 || t.sent < t.Batches) {
					w.t.Fatalf("it is %d and transfer %d had time until %d", w.now, t.Corr, t.NotAfter)
				}
			}
		},
		"word of an epoch": func() {
			epoch := rapid.Uint64Range(0, w.offered+1).Draw(w.t, "epoch")
			if epoch != 0 && (w.tearing == epoch || w.up == epoch || w.l.phase == phaseOffered && epoch+1 == w.offered) {
				w.innocent = true
			}
			w.step(Event{Kind: TargetFenced, Epoch: epoch})
		},
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
		a["cancel"] = func() {
			w.step(Event{Kind: Cancel, Corr: rapid.SampledFrom(w.open).Draw(w.t, "which").Corr})
		}
	}
	if w.l.phase == phaseOffered {
		a["accept"] = func() { w.accepts(rapid.IntRange(0, 9).Draw(w.t, "refused") == 0) }
	}
	if w.forming != 0 {
		a["formed"] = func() { w.formed(rapid.IntRange(0, 3).Draw(w.t, "fails") != 0) }
	}
	if w.offered > 1 {
		a["batch of another epoch ends"] = func() {
			w.step(Event{Kind: BatchEnded, Epoch: w.offered - 1, Succeeded: rapid.Bool().Draw(w.t, "well")})
		}
	}
	if len(w.flying) > 0 {
		a["batch ends"] = func() { w.lands(rapid.IntRange(0, 4).Draw(w.t, "fails") != 0) }
	}
	if w.tearing != 0 && !w.unproven {
		a["torn down"] = w.tornDown
		if rapid.IntRange(0, 19).Draw(w.t, "no hope") == 0 {
			a["no proof will come"] = func() {
				w.unproven = true
				w.step(Event{Kind: NoProof, Epoch: w.tearing})
			}
		}
		if !w.stuck {
			a["stuck"] = func() {
				w.stuck = true
				w.step(Event{Kind: Stuck, Epoch: w.tearing})
			}
		}
	}
	a["channel ends"] = func() {
		if rapid.IntRange(0, 9).Draw(w.t, "really") == 0 {
			w.step(Event{Kind: ChannelLost})
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
	t := &wanted{Event: Event{
		Kind: Transfer, Corr: w.corr, Grant: grant, Since: w.given[grant],
		NotAfter: w.now + effects.Time(rapid.Int64Range(-5, 400).Draw(w.t, "time")),
		Batches:  rapid.IntRange(1, 4).Draw(w.t, "batches"),
	}}
	w.transfers[t.Corr] = t
	w.open = append(w.open, t)
	w.asked(&effects.Transfer{Corr: t.Corr, Link: testLink, Pairs: make([]effects.Pair, 1)})
	w.step(t.Event)
}

func (w *world) accepts(refused bool) {
	a := Event{Kind: Accepted, Epoch: w.offered, Code: effects.OK}
	if refused {
		a.Code = effects.TooMany
	}
	for _, t := range w.open {
		if rapid.IntRange(0, 3).Draw(w.t, "revoked") == 0 {
			w.revoked[t.Grant] = true
		}
	}
	for grant := range w.revoked {
		a.Revoked = append(a.Revoked, grant)
	}
	if rapid.IntRange(0, 9).Draw(w.t, "more") == 0 {
		a.MoreRevoked = true
		for grant, at := range w.given {
			if at < w.now {
				w.revoked[grant] = true
			}
		}
	}
	w.step(a)
	if _, told := w.told[w.culprit]; !told && w.culprit != 0 && !w.innocent {
		w.t.Fatalf("transfer %d broke epoch %d and does not end by it", w.culprit, w.offered-1)
	}
	w.culprit, w.innocent = 0, false
}

func (w *world) formed(well bool) {
	epoch := w.forming
	w.forming = 0
	if well {
		w.up = epoch
		w.step(Event{Kind: Formed, Epoch: epoch})
		return
	}
	w.done[epoch] = true
	w.step(Event{Kind: Formed, Epoch: epoch, Code: effects.Faulted})
}

// lands ends the oldest batch. One that fails is over only with its epoch.
func (w *world) lands(well bool) {
	if well {
		w.flying[0].landed++
		w.flying = w.flying[1:]
	}
	if !well && w.up != 0 {
		w.culprit = w.flying[0].Corr
	}
	w.step(Event{Kind: BatchEnded, Epoch: w.offered, Succeeded: well})
}

func (w *world) tornDown() {
	epoch := w.tearing
	for _, t := range w.flying {
		t.sent = t.landed
	}
	w.flying, w.tearing = nil, 0
	w.done[epoch] = true
	w.step(Event{Kind: TornDown, Epoch: epoch})
	if w.gone != epoch {
		w.t.Fatalf("epoch %d is torn down, and the target was told so of %d", epoch, w.gone)
	}
}

func (w *world) drop() {
	w.dropping = true
	w.asked(&effects.Drop{Link: testLink})
	w.step(Event{Kind: Drop})
}

// Whatever happens, in whatever order: each transfer ends once and is settled once, when nothing of it is in any
// hardware; nothing is submitted twice at a time, on an epoch that is over, under a grant that was taken back before
// that epoch, or after its time; and what ends is told in an order that the machine knows. In the end nothing is owed,
// and no row is taken.
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
		if err := w.checker.CheckCompleted(); err != nil && !w.unproven {
			t.Fatal(err)
		}
		for corr := range w.transfers {
			done, ended := w.told[corr]
			if !ended || done.Settled == w.settled[corr] && !slices.Contains(w.flying, w.transfers[corr]) {
				t.Fatalf("transfer %d was told %+v, and settled %v", corr, done, w.settled[corr])
			}
		}
		if !w.l.IsFinished() || w.imported != 1 || w.up+w.forming != 0 || w.tearing != 0 && !w.unproven {
			t.Fatalf("the initiator is in phase %d, imported %d times", w.l.phase, w.imported)
		}
		if left := w.l.transfers.Len() + w.l.timers.Len(); left != 0 && !w.unproven {
			t.Fatalf("%d rows are left", left)
		}
	})
}

// ends lets everything come to its end, by a drop or because the plane closes.
func (w *world) ends() {
	if w.l.imported && !w.dropping && !w.unproven && rapid.Bool().Draw(w.t, "drops") {
		w.drop()
	} else {
		w.step(Event{Kind: Close})
	}
	for range 10 {
		switch {
		case w.forming != 0:
			w.formed(rapid.Bool().Draw(w.t, "formed at last"))
		case w.tearing != 0 && !w.unproven:
			w.tornDown()
		}
		w.submits()
	}
}
