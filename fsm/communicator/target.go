package communicator

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Limits bound the tables of a Target.
type Limits struct {
	Sessions int // links of all peers
	OfPeer   int // links of one peer: one, and links that only the peer knows to have ended
	Reserved int // one address leaves the fraction 1/Reserved of the links to other addresses
	Epochs   int // epochs of one link that are not over: one, and abandoned ones that are still forming here
	Revokes  int // revocations that wait for proof
}

// A Target decides for the end with the memory to access: which links are admitted, which epochs must be fenced to
// revoke a grant, and what proves that nothing reaches the pool by an epoch any more. A Target has no deadlines: its
// driver waits for what takes time.
//
// Where the peer does not have the target's memory mapped (RoCE), the destruction of the target's own end proves an
// epoch over, whatever the peer does or reports. Nothing else proves it while that end exists or may still be made.
// Where the peer has the memory mapped (HCCS), destroying the target's end does not remove the mapping: there the
// peer's message counts, or the peer's death, which the connection reports. Over RoCE these count only where the
// target's own end could not be destroyed.
type Target struct {
	limits Limits `snap:"share"`
	seed   uint64 `snap:"share"`

	closed   bool
	sessions table.Slab[session]
	byID     table.Index
	epochs   table.Slab[epoch]
	revokes  table.Slab[revoke]
	arrivals uint64 // number of links admitted so far
	births   uint64 // number of epochs begun so far
}

// A session is a link that a peer opened. Its epochs outlast its connection as long as there is no proof that they are
// over.
type session struct {
	id      SessionID
	peer    effects.Incarnation
	from    Address
	mapped  bool
	arrival uint64
	newest  uint64     // the newest epoch's number
	epochs  table.List // epochs that may still reach the pool, or with an end here that is still worked on
	lost    bool       // the connection has ended, or its messages are not believed any more
	ended   bool       // the connection has ended
	hungUp  bool
}

// An epoch is the target's end of one communicator, and what is known about the peer's end.
type epoch struct {
	session   table.Handle
	number    uint64
	birth     uint64
	leaving   bool // the target's end is being taken away, or was never made
	releasing bool // the peer, or the end of its connection, has reported that the peer's end is gone
	released  bool // and the margin has passed since
	here      bool // the target's own end is gone
	led       bool // the target's own end is not worked on any more
	over      bool // there is proof that nothing reaches the pool by the epoch
}

// A revoke waits until the epochs of a peer are over that had begun before the revocation.
type revoke struct {
	id     uint64
	peer   effects.Incarnation
	births uint64
	left   int
}

// NewTarget returns a target without sessions. The seed randomizes the hashing of session ids, so that peers, which
// draw the ids, cannot predict where sessions are stored.
func NewTarget(l Limits, seed uint64) Target {
	return Target{
		limits: l, seed: seed, sessions: table.NewSlab[session](l.Sessions),
		epochs: table.NewSlab[epoch](l.Sessions * l.Epochs), revokes: table.NewSlab[revoke](l.Revokes),
	}
}

// Step handles one event and appends to out what the driver must do.
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

// session returns the session with the id; its handle is zero if there is none.
func (t *Target) session(id SessionID) (table.Handle, *session) {
	for p := t.byID.Seek(table.Hash(t.seed, id[:])); p.Found(); p = t.byID.Next(p) {
		if s := t.sessions.Get(p.Handle()); s.id == id {
			return p.Handle(), s
		}
	}
	return 0, nil
}

// epoch returns an epoch of a session that is not removed yet; its handle is zero if there is none.
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
