package communicator

import "github.com/kvferry/kvferry/effects"

// SessionID names a link that a peer opened; the peer draws it.
type SessionID [16]byte

// Address is where a connection comes from: a network, as it is counted.
type Address struct {
	Net  [16]byte
	Bits uint8
}

// TargetKind says what happened to a Target.
type TargetKind uint8

// The kinds, with the fields of TargetEvent that each reads beside Session.
const (
	Arrives     TargetKind = iota + 1 // Peer, From, Mapped: who proved to be Peer opens a link
	TurnsAway                         // it was let in and could not be told
	Offers                            // Epoch: the peer offers it
	SaysFenced                        // Epoch: the peer uses it no more
	SaysGone                          // Epoch: the peer's end is gone, as it says
	EndLed                            // Epoch, Failed, Gone: our end is not worked at any more
	MarginOver                        // Epoch: the time that Margins asked for has passed
	LinkFails                         // nothing more is believed that is said on its connection
	ChannelEnds                       // Proves: its connection has ended
	Expels                            // Revoke, Peer: a grant of the peer is taken back (no session)
	Closes                            // the plane ends (no session)
)

// A TargetEvent is one thing that happened. Fields that its kind does not read are ignored.
type TargetEvent struct {
	Kind    TargetKind
	Session SessionID
	Epoch   uint64
	Peer    effects.Incarnation
	From    Address
	Mapped  bool   // the peer has our memory mapped (HCCS): what we destroy does not take it away
	Failed  bool   // our end could not be formed
	Gone    bool   // and nothing of it is left
	Proves  bool   // the end of the connection is the word of the peer's kernel that the peer has closed it, or is dead
	Revoke  uint64 // the driver's number of a revocation, given once
}

// Entry says whether a link is let in.
type Entry uint8

// The entries.
const (
	Open        Entry = iota + 1
	PlaneClosed       // nobody is let in any more
	SessionUsed       // by another link
	PeerRenewed       // the peer has as many links as it may: its oldest was ended, so that it gets in when it tries again
	PeerFull          // so it has, and all of them may still reach the pool
	AllFull           // there are as many links as there may be
	AddressFull       // of its address there are
)

// An EpochOf names one epoch of a session.
type EpochOf struct {
	Session SessionID
	Epoch   uint64
}

// TargetOut is what a step wants done. The driver carries it out in the order of the fields, and empties it.
type TargetOut struct {
	Entry Entry        // answers Arrives
	Links int          // that were counted for it
	Begun bool         // answers Offers: our end is to be made; EndLed follows when it is not worked at any more
	Code  effects.Code // answers Offers, for the accept
	Stale uint64       // answers Offers: this epoch came before, so the peer speaks nonsense; 0: it did not

	Expelled  []EpochOf   // are fenced to revoke a grant
	Fences    []EpochOf   // tell the peer
	Leaves    []EpochOf   // take our end away, as soon as it is made
	Lost      []SessionID // tell the machine that the peer's link is lost
	Margins   []EpochOf   // wait out what hardware may still be at, then MarginOver
	Over      []EpochOf   // nothing reaches the pool by it any more, and our end is led to its end
	Revoked   []uint64    // nothing reaches the pool any more by what was granted before this revocation
	Forgotten []SessionID // nothing is left of it
	HangUps   []SessionID // close its connection: it is good for nothing any more
}

// Reset empties it for the next step.
func (o *TargetOut) Reset() {
	*o = TargetOut{
		Expelled: o.Expelled[:0], Fences: o.Fences[:0], Leaves: o.Leaves[:0], Lost: o.Lost[:0], Margins: o.Margins[:0],
		Over: o.Over[:0], Revoked: o.Revoked[:0], Forgotten: o.Forgotten[:0], HangUps: o.HangUps[:0],
	}
}
