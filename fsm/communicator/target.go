package communicator

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Limits bound the tables of a Target.
type Limits struct {
	Sessions    int // links of all peers
	PerPeer     int // links of one peer: one, and links that only the peer knows to have ended
	Reserved    int // one address leaves the fraction 1/Reserved of the links to other addresses
	Epochs      int // epochs of one link that are not over: one, and abandoned ones that are still forming here
	Revocations int // revocations that wait for proof
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

	closed        bool
	sessions      table.Slab[session]
	byID          table.Index
	epochs        table.Slab[epoch]
	revocations   table.Slab[revocation]
	linksAdmitted uint64 // number of links admitted so far
	epochsBegun   uint64 // number of epochs begun so far
}

// A session is a link that a peer opened. Its epochs outlast its connection as long as there is no proof that they are
// over.
type session struct {
	id             SessionID
	peer           effects.Incarnation
	address        Address
	memoryMapped   bool
	ordinal        uint64
	newestEpoch    uint64     // the newest epoch's number
	epochs         table.List // epochs that may still reach the pool, or with an end here that is still worked on
	lost           bool       // the connection has ended, or its messages are not believed any more
	connEnded      bool       // the connection has ended
	closeRequested bool
}

// An epoch is the target's end of one communicator, and what is known about the peer's end.
type epoch struct {
	session       table.Handle
	number        uint64
	ordinal       uint64
	leaving       bool // the target's end is being taken away, or was never made
	peerReleasing bool // the peer, or the end of its connection, has reported that the peer's end is gone
	peerReleased  bool // and the margin has passed since
	endGone       bool // the target's own end is gone
	endFinished   bool // the target's own end is not worked on any more
	over          bool // there is proof that nothing reaches the pool by the epoch
}

// A revocation waits until the epochs of a peer are over that had begun before the revocation.
type revocation struct {
	id            uint64
	peer          effects.Incarnation
	epochsBegun   uint64
	pendingEpochs int
}

// NewTarget returns a target without sessions. The seed randomizes the hashing of session ids, so that peers, which
// draw the ids, cannot predict where sessions are stored.
func NewTarget(l Limits, seed uint64) Target {
	return Target{
		limits: l, seed: seed, sessions: table.NewSlab[session](l.Sessions),
		epochs: table.NewSlab[epoch](l.Sessions * l.Epochs), revocations: table.NewSlab[revocation](l.Revocations),
	}
}

// Step handles one event and appends to out what the driver must do.
func (t *Target) Step(ev *TargetEvent, out *TargetEffects) {
	switch ev.Kind {
	case LinkArrived:
		t.admitLink(ev, out)
	case GrantRevoked:
		t.revokeGrant(ev, out)
	case PlaneClosing:
		t.closeLinks(out)
	case EpochOffered:
		t.handleOffer(ev, out)
	case WelcomeFailed:
		t.onWelcomeFailed(ev, out)
	case LinkFailed:
		if h, s := t.findSession(ev.Session); s != nil {
			t.loseLink(h, s, out)
		}
	case ChannelEnded:
		t.onChannelEnded(ev, out)
	case InitiatorFenced, InitiatorGone:
		t.handlePeerMessage(ev, out)
	case EndFinished:
		t.onEndFinished(ev, out)
	case MarginPassed:
		t.onMarginPassed(ev, out)
	default:
		panic("BUG: a target was given an event without a kind")
	}
}

// findSession returns the session with the id; its handle is zero if there is none.
func (t *Target) findSession(id SessionID) (table.Handle, *session) {
	for p := t.byID.Find(table.Hash(t.seed, id[:])); p.Found(); p = t.byID.Next(p) {
		if s := t.sessions.Get(p.Handle()); s.id == id {
			return p.Handle(), s
		}
	}
	return 0, nil
}

// findEpoch returns an epoch of a session that is not removed yet; its handle is zero if there is none.
func (t *Target) findEpoch(id SessionID, number uint64) (table.Handle, *epoch) {
	_, s := t.findSession(id)
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
