package communicator

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
)

// A bank is what a target meets: peers with links, hardware of both ends of each epoch, and who revokes. It knows what
// can reach the pool, and holds the target to it.
type bank struct {
	t        *rapid.T
	m        Target
	limits   Limits
	out      TargetEffects
	links    []*banked // all that ever were
	births   int
	revokes  []*banking
	closed   bool
	sessions byte
}

// banked is one link.
type banked struct {
	TargetEvent
	epochs            []*bankedEpoch // that began
	newest            uint64
	lost, ended, over bool
	hungUp            bool
}

// bankedEpoch is one epoch of a link, as hardware has it.
type bankedEpoch struct {
	number            uint64
	birth             int
	leaves            bool // our end is to be taken away
	led, gone         bool
	word              bool // the peer has said that its end is gone, or its connection that it is
	wants, passed     bool // the margin
	fenced, forgotten bool
}

// reaches says whether anything may reach the pool by the epoch, by what can be known here.
func (l *banked) reaches(e *bankedEpoch) bool {
	if l.MemoryMapped {
		return !e.word || !e.passed
	}
	return !e.gone && (!e.led || !e.word || !e.passed)
}

// hasEpochs says whether the target has any of the link left.
func (l *banked) hasEpochs() bool {
	return slices.ContainsFunc(l.epochs, func(e *bankedEpoch) bool { return !e.forgotten })
}

type banking struct {
	peer   effects.Incarnation
	births int
	over   bool
}

func (b *bank) find(id SessionID) *banked {
	for _, l := range slices.Backward(b.links) {
		if l.Session == id && !l.over {
			return l
		}
	}
	b.t.Fatalf("nobody has session %v", id)
	return nil
}

func (b *bank) epochOf(name EpochRef) (*banked, *bankedEpoch) {
	l := b.find(name.Session)
	for _, e := range l.epochs {
		if e.number == name.Epoch {
			return l, e
		}
	}
	b.t.Fatalf("nobody offered %v", name)
	return nil, nil
}

// step feeds an event, and takes what comes of it.
func (b *bank) step(ev TargetEvent) {
	b.out.Reset()
	b.m.Step(&ev, &b.out)
	out := &b.out
	for _, name := range out.SendFenced {
		_, e := b.epochOf(name)
		if e.fenced {
			b.t.Fatalf("%v is fenced twice", name)
		}
		e.fenced = true
	}
	for _, name := range out.RemoveEnds {
		_, e := b.epochOf(name)
		if e.leaves || e.led {
			b.t.Fatalf("the end of %v is taken away twice", name)
		}
		e.leaves = true
	}
	for _, name := range out.StartMargins {
		_, e := b.epochOf(name)
		if e.wants || !e.word {
			b.t.Fatalf("%v is waited for, with the peer's word %v", name, e.word)
		}
		e.wants = true
	}
	for _, id := range out.LostLinks {
		l := b.find(id)
		if l.lost || b.closed {
			b.t.Fatal("a link is lost twice")
		}
		l.lost = true
	}
	for _, name := range out.OverEpochs {
		l, e := b.epochOf(name)
		if l.reaches(e) || !e.led || e.forgotten {
			b.t.Fatalf("%v is over: %+v", name, e)
		}
		e.forgotten = true
	}
	for _, id := range out.DoneRevocations {
		b.revoked(id)
	}
	for _, id := range out.EndedSessions {
		l := b.find(id)
		if !l.ended || l.hasEpochs() {
			b.t.Fatalf("link %v is forgotten", id)
		}
		l.over = true
	}
	for _, id := range out.CloseConns {
		l := b.find(id)
		if l.hungUp || !l.lost && !b.closed || l.hasEpochs() {
			b.t.Fatalf("link %v is hung up", id)
		}
		l.hungUp = true
	}
}

// revoked holds a revocation to its promise, C6: nothing that began before it reaches the pool.
func (b *bank) revoked(id uint64) {
	r := b.revokes[id]
	if r.over {
		b.t.Fatalf("revocation %d is over twice", id)
	}
	r.over = true
	for _, l := range b.links {
		for _, e := range l.epochs {
			if l.Peer == r.peer && e.birth <= r.births && l.reaches(e) {
				b.t.Fatalf("revocation %d is over, and epoch %d reaches the pool: %+v", id, e.number, e)
			}
		}
	}
}

func (b *bank) arrives(peer byte, mapped bool) {
	b.sessions++
	l := &banked{TargetEvent: TargetEvent{
		Kind: LinkArrived, Session: SessionID{b.sessions}, Peer: effects.Incarnation{peer}, From: Address{Bits: peer % 2},
		MemoryMapped: mapped,
	}}
	own, near, all, renewable := 0, 0, 0, false
	for _, o := range b.links {
		if o.over {
			continue
		}
		all++
		if o.Peer == l.Peer {
			own++
			renewable = renewable || !o.lost
		}
		if o.From == l.From {
			near++
		}
	}
	b.step(l.TargetEvent)
	want := Admitted
	switch {
	case b.closed:
		want = PlaneClosed
	case own >= b.limits.PerPeer && renewable:
		want = PeerRenewed
	case own >= b.limits.PerPeer:
		want = PeerFull
	case all >= b.limits.Sessions:
		want = TableFull
	case near >= b.limits.Sessions-b.limits.Sessions/b.limits.Reserved:
		want = AddressFull
	}
	if b.out.Admission != want {
		b.t.Fatalf("entry %d, want %d: %d of the peer, %d of the address, %d in all", b.out.Admission, want, own, near, all)
	}
	if want == Admitted {
		b.links = append(b.links, l)
	}
}

func (b *bank) offers(l *banked, number uint64) {
	stale, lost := number <= l.newest, l.lost
	alive := 0
	if !stale {
		l.newest = number
		for _, e := range l.epochs {
			e.word = true
			if !e.forgotten {
				alive++
			}
		}
	}
	b.births++
	next := &bankedEpoch{number: number, birth: b.births}
	l.epochs = append(l.epochs, next)
	b.step(TargetEvent{Kind: EpochOffered, Session: l.Session, Epoch: number})
	begun := !stale && !lost && !b.closed && alive < b.limits.Epochs
	if b.out.MakeEnd != begun || (b.out.NewerEpoch != 0) != stale {
		b.t.Fatalf("offer %d after %d: begun %v, stale %v", number, l.newest, b.out.MakeEnd, b.out.NewerEpoch)
	}
	if !b.out.MakeEnd {
		b.births--
		l.epochs = l.epochs[:len(l.epochs)-1]
	}
}

func (b *bank) leads(l *banked, e *bankedEpoch, failed, gone bool) {
	e.led, e.gone = true, gone
	b.step(TargetEvent{Kind: EndFinished, Session: l.Session, Epoch: e.number, Failed: failed, Gone: gone})
}

func (b *bank) ends(l *banked, proves bool) {
	l.ended = true
	if proves {
		for _, e := range l.epochs {
			e.word = true
		}
	}
	b.step(TargetEvent{Kind: LinkFailed, Session: l.Session})
	if !l.over {
		b.step(TargetEvent{Kind: ChannelEnded, Session: l.Session, ProvesGone: proves})
	}
}

func (b *bank) expels(peer byte) {
	r := &banking{peer: effects.Incarnation{peer}, births: b.births}
	b.revokes = append(b.revokes, r)
	b.step(TargetEvent{Kind: GrantRevoked, Revocation: uint64(len(b.revokes) - 1), Peer: r.peer})
	for _, l := range b.links {
		for _, e := range l.epochs {
			if l.Peer == r.peer && l.reaches(e) && !e.leaves && !e.led {
				b.t.Fatalf("epoch %d of whom a grant is taken from goes on", e.number)
			}
		}
	}
}

// actions are what may happen, each if it may just now.
func (b *bank) actions() map[string]func() {
	draw := b.t
	a := map[string]func(){
		"arrives": func() { b.arrives(rapid.ByteRange(1, 3).Draw(draw, "peer"), rapid.Bool().Draw(draw, "mapped")) },
		"expels":  func() { b.expels(rapid.ByteRange(1, 3).Draw(draw, "peer")) },
		"closes": func() {
			if rapid.IntRange(0, 19).Draw(draw, "really") == 0 {
				b.closed = true
				b.step(TargetEvent{Kind: PlaneClosing})
			}
		},
	}
	for _, l := range b.links {
		name := fmt.Sprintf(" %d", l.Session[0])
		if l.over {
			continue
		}
		if !l.ended {
			a["offer"+name] = func() { b.offers(l, max(1, l.newest+rapid.Uint64Range(0, 2).Draw(draw, "further"))) }
			a["fails"+name] = func() { b.step(TargetEvent{Kind: LinkFailed, Session: l.Session}) }
			a["ends"+name] = func() { b.ends(l, rapid.Bool().Draw(draw, "proves")) }
		}
		for _, e := range l.epochs {
			name := fmt.Sprintf("%s/%d", name, e.number)
			if !l.ended && !l.lost {
				a["says"+name] = func() {
					kind := rapid.SampledFrom([]TargetEventKind{InitiatorFenced, InitiatorGone}).Draw(draw, "word")
					e.word = e.word || kind == InitiatorGone
					b.step(TargetEvent{Kind: kind, Session: l.Session, Epoch: e.number})
				}
			}
			if !e.led {
				a["led"+name] = func() {
					failed := !e.leaves || rapid.Bool().Draw(draw, "failed")
					b.leads(l, e, failed, rapid.IntRange(0, 3).Draw(draw, "stays") != 0)
				}
			}
			if e.wants && !e.passed {
				a["margin"+name] = func() { b.passes(l, e) }
			}
		}
	}
	return a
}

func (b *bank) passes(l *banked, e *bankedEpoch) {
	e.passed = true
	b.step(TargetEvent{Kind: MarginPassed, Session: l.Session, Epoch: e.number})
}

// Whatever peers say and whenever, and however ends come and go: no revocation is over while anything that began before
// it may reach the pool, none waits when nothing does, and when all have left nothing is left of them.
func TestTarget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &bank{t: t, limits: Limits{Sessions: 6, PerPeer: 3, Reserved: 3, Epochs: 3, Revocations: 100}}
		b.m = NewTarget(b.limits, 7)
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			all := b.actions()
			names := make([]string, 0, len(all))
			for name := range all {
				names = append(names, name)
			}
			slices.Sort(names)
			all[rapid.SampledFrom(names).Draw(t, "action")]()
			b.promptly()
		}
		b.leave()
		for id, r := range b.revokes {
			if !r.over {
				t.Fatalf("revocation %d waits for nothing", id)
			}
		}
		if left := b.m.sessions.Len() + b.m.epochs.Len() + b.m.revocations.Len() + b.m.byID.Len(); left != 0 {
			t.Fatalf("%d rows are left", left)
		}
	})
}

// promptly fails if a revocation waits while nothing reaches the pool that it waits for.
func (b *bank) promptly() {
	for id, r := range b.revokes {
		waits := slices.ContainsFunc(b.links, func(l *banked) bool {
			return l.Peer == r.peer && slices.ContainsFunc(l.epochs, func(e *bankedEpoch) bool {
				return e.birth <= r.births && l.reaches(e)
			})
		})
		if !waits && !r.over {
			b.t.Fatalf("revocation %d waits for nothing", id)
		}
	}
}

// leave lets every peer die, and every end go.
func (b *bank) leave() {
	for _, l := range b.links {
		if !l.ended {
			b.ends(l, true)
		}
		for _, e := range l.epochs {
			if !l.over && !e.word { // Its connection ended without proof, and it comes to be known otherwise.
				e.word = true
				b.step(TargetEvent{Kind: InitiatorGone, Session: l.Session, Epoch: e.number})
			}
			if !e.led {
				b.leads(l, e, false, true)
			}
			if e.wants && !e.passed && !l.over {
				b.passes(l, e)
			}
		}
	}
}
