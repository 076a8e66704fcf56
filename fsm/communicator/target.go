package communicator

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Limits are what a Target is bound by.
type Limits struct {
	Sessions int // links of all peers
	OfPeer   int // of one peer: one, and those of which it alone knows yet that they have ended
	Reserved int // one address leaves one place in so many to others
	Epochs   int // of one link that are not over: one, and those whose forming the peer gave up, and we not yet
	Revokes  int // revocations that wait for proof
}

// A Target decides for the end whose memory is reached: whose links are let in, which epochs must be fenced to take a
// grant back, and what proves that nothing reaches the pool by an epoch any more. It has no deadlines: what takes time
// its driver waits for.
//
// Where the peer does not have our memory mapped (RoCE), the destruction of our own end proves an epoch over, whatever
// the peer does or says. Nothing else does while our end is there, or may come to be. Where it has (HCCS), what we
// destroy does not take that away: there its word counts, or its death, of which the connection tells. Over RoCE they
// count only where our own end could not be destroyed.
type Target struct {
	limits Limits `snap:"share"`
	seed   uint64 `snap:"share"`

	closed   bool
	sessions table.Slab[session]
	byID     table.Index
	epochs   table.Slab[epoch]
	revokes  table.Slab[revoke]
	arrivals uint64 // links that ever came in
	births   uint64 // epochs that ever began
}

// A session is a link that a peer opened. Its epochs outlast its connection where there is no proof yet that they are
// over.
type session struct {
	id      SessionID
	peer    effects.Incarnation
	from    Address
	mapped  bool
	arrival uint64
	newest  uint64     // epoch
	epochs  table.List // that may still reach the pool, or whose end is not led to its end
	lost    bool       // the connection has ended, or says nothing that can be believed
	ended   bool       // the connection has ended
	hungUp  bool
}

// An epoch is our end of one communicator, and what is known of the peer's.
type epoch struct {
	session   table.Handle
	number    uint64
	birth     uint64
	leaving   bool // our end is taken away, or was never made
	releasing bool // the peer has said that its end is gone, or its connection that it is
	released  bool // and the margin has passed since
	here      bool // our end is gone
	led       bool // our end is not worked at any more
	over      bool
}

// A revoke waits until the epochs of a peer are over that had begun before it.
type revoke struct {
	id     uint64
	peer   effects.Incarnation
	births uint64
	left   int
}

// NewTarget returns one that nobody has reached yet. The seed hides where sessions lie from who draws them.
func NewTarget(l Limits, seed uint64) Target {
	return Target{
		limits: l, seed: seed, sessions: table.NewSlab[session](l.Sessions),
		epochs: table.NewSlab[epoch](l.Sessions * l.Epochs), revokes: table.NewSlab[revoke](l.Revokes),
	}
}

// Step takes one event. What it wants done is added to out.
func (t *Target) Step(ev *TargetEvent, out *TargetOut) {
	switch ev.Kind {
	case Arrives:
		t.arrives(ev, out)
	case Expels:
		t.expels(ev, out)
	case Closes:
		t.closes(out)
	case Offers:
		t.offers(ev, out)
	case TurnsAway:
		t.turnsAway(ev, out)
	case LinkFails:
		if h, s := t.session(ev.Session); s != nil {
			t.lose(h, s, out)
		}
	case ChannelEnds:
		t.channelEnds(ev, out)
	case SaysFenced, SaysGone:
		t.says(ev, out)
	case EndLed:
		t.endLed(ev, out)
	case MarginOver:
		t.marginOver(ev, out)
	default:
		panic("BUG: a target was told what has no kind")
	}
}

func (t *Target) session(id SessionID) (table.Handle, *session) {
	for p := t.byID.Seek(table.Hash(t.seed, id[:])); p.Found(); p = t.byID.Next(p) {
		if s := t.sessions.Get(p.Handle()); s.id == id {
			return p.Handle(), s
		}
	}
	return 0, nil
}

func (t *Target) epoch(id SessionID, number uint64) (table.Handle, *epoch) {
	_, s := t.session(id)
	if s == nil {
		return 0, nil
	}
	for h := s.epochs.Front(); h != 0; h = t.epochs.Next(h) {
		if e := t.epochs.Get(h); e.number == number {
			return h, e
		}
	}
	return 0, nil
}
