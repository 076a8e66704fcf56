package communicator

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// Nothing is allocated in a steady state: neither by transfers that go well, nor by epochs that follow one another.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	l := NewInitiator(Rules{Window: 2, Tries: 2, Transfers: 8, AnswerTimeout: 50, ProgressTimeout: 100, Grace: 20})
	var out Effects
	var now effects.Time
	step := func(ev Event) {
		now++
		l.Step(now, &ev, &out)
		out.Reset()
	}
	revoked := []effects.GrantID{9, 8}
	begin := func() {
		step(Event{Kind: Accepted, Epoch: l.Epoch(), Revoked: revoked})
		step(Event{Kind: Formed, Epoch: l.Epoch()})
	}
	step(Event{Kind: Begin})
	begin()
	corr := effects.Corr(0)
	for name, f := range map[string]func(){
		"transfers": func() {
			for range 4 {
				corr++
				step(Event{Kind: Transfer, Corr: corr, Grant: 1, NotAfter: now + 1000, Batches: 2})
			}
			step(Event{Kind: Tick})
			for {
				for _, ok := l.Next(); ok; _, ok = l.Next() {
					step(Event{Kind: Submitted})
				}
				if l.CountInFlight() == 0 {
					return
				}
				step(Event{Kind: BatchEnded, Epoch: l.Epoch(), Succeeded: true})
			}
		},
		"epochs": func() {
			corr++
			step(Event{Kind: Transfer, Corr: corr, Grant: 1, NotAfter: now + 1000, Batches: 2})
			step(Event{Kind: Submitted})
			step(Event{Kind: TargetFenced, Epoch: l.Epoch()})
			step(Event{Kind: Cancel, Corr: corr})
			step(Event{Kind: TornDown, Epoch: l.Epoch()})
			begin()
		},
	} {
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Nor does a target allocate, whose peers come and go, offer epochs, and lose them to revocations.
func TestTargetAllocatesNothing(t *testing.T) {
	m := NewTarget(Limits{Sessions: 4, PerPeer: 2, Reserved: 4, Epochs: 2, Revocations: 4}, 1)
	var out TargetEffects
	peer, session, n := effects.Incarnation{7}, SessionID{1}, uint64(0)
	round := func() {
		for _, ev := range [...]TargetEvent{
			{Kind: LinkArrived, Peer: peer},
			{Kind: EpochOffered, Epoch: 1},
			{Kind: GrantRevoked, Peer: peer, Revocation: n},
			{Kind: InitiatorGone, Epoch: 1},
			{Kind: EndFinished, Epoch: 1, Gone: true},
			{Kind: MarginPassed, Epoch: 1},
			{Kind: LinkFailed},
			{Kind: ChannelEnded, ProvesGone: true},
		} {
			ev.Session = session
			out.Reset()
			m.Step(&ev, &out)
		}
		n++
	}
	round()
	if allocated := testing.AllocsPerRun(100, round); allocated != 0 || m.sessions.Len() != 0 {
		t.Errorf("%v allocations, %d links left", allocated, m.sessions.Len())
	}
}

func BenchmarkBatch(b *testing.B) {
	l := NewInitiator(Rules{Window: 2, Tries: 2, Transfers: 8, AnswerTimeout: 50, ProgressTimeout: 100, Grace: 20})
	var out Effects
	step := func(ev Event) {
		l.Step(1, &ev, &out)
		out.Reset()
	}
	step(Event{Kind: Begin})
	step(Event{Kind: Accepted, Epoch: 1})
	step(Event{Kind: Formed, Epoch: 1})
	b.ReportAllocs()
	for b.Loop() {
		step(Event{Kind: Transfer, Corr: 1, Grant: 1, NotAfter: 1000, Batches: 1})
		step(Event{Kind: Submitted})
		step(Event{Kind: BatchEnded, Epoch: 1, Succeeded: true})
	}
}
