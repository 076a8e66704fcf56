package communicator

import "github.com/kvferry/kvferry/effects"

// SessionID names a link that a peer opened. The peer draws it.
type SessionID [16]byte

// Address is the network from which a connection comes, as it is counted for limits.
type Address struct {
	Net  [16]byte
	Bits uint8
}

// TargetKind is the kind of an event of a Target.
type TargetKind uint8

// The kinds of events, with the fields of TargetEvent that each reads beside Session.
const (
	Arrives     TargetKind = iota + 1 // Peer, From, Mapped: a process that proved to be Peer opens a link
	TurnsAway                         // the link was admitted, but the peer could not be notified
	Offers                            // Epoch: the peer offers the epoch
	SaysFenced                        // Epoch: the peer uses the epoch no more
	SaysGone                          // Epoch: the peer reports that its end is gone
	EndLed                            // Epoch, Failed, Gone: the target's own end is not worked on any more
	MarginOver                        // Epoch: the time that Margins requested has passed
	LinkFails                         // messages on the link's connection are not believed any more
	ChannelEnds                       // Proves: the link's connection has ended
	Expels                            // Revoke, Peer: a grant of the peer is revoked (no session)
	Closes                            // the plane closes (no session)
)

// A TargetEvent is something that happened. Fields that its kind does not read are ignored.
type TargetEvent struct {
	Kind    TargetKind
	Session SessionID
	Epoch   uint64
	Peer    effects.Incarnation
	From    Address
	Mapped  bool   // the peer has the target's memory mapped (HCCS), so destroying the target's end does not end access
	Failed  bool   // the target's end could not be formed
	Gone    bool   // nothing of the target's end is left
	Proves  bool   // the connection's end is the report of the peer's kernel that the peer closed it or is dead
	Revoke  uint64 // the driver's number of a revocation, used once
}

// Entry is the decision about a new link.
type Entry uint8

// The decisions.
const (
	Open        Entry = iota + 1 // the link is admitted
	PlaneClosed                  // the plane closes and admits no links
	SessionUsed                  // another link has this session id
	PeerRenewed                  // the peer has all its links: the oldest was ended, to make room for a retry
	PeerFull                     // the peer has all its links, and all of them may still reach the pool
	AllFull                      // the table of links is full
	AddressFull                  // the address has all the links that one address may have
)

// An EpochOf names one epoch of a session.
type EpochOf struct {
	Session SessionID
	Epoch   uint64
}

// TargetOut is what the driver must do after a step. The driver carries it out in the order of the fields, and then
// empties it.
type TargetOut struct {
	Entry Entry        // answers Arrives
	Links int          // the number of links that was compared with the limit
	Begun bool         // answers Offers: make the target's end; EndLed follows when it is not worked on any more
	Code  effects.Code // answers Offers: the code of the accept
	Stale uint64       // answers Offers: a newer or equal epoch, so the peer violates the protocol; 0: none

	Expelled  []EpochOf   // epochs that are fenced to revoke a grant
	Fences    []EpochOf   // tell the peer that these epochs are fenced
	Leaves    []EpochOf   // take the target's end away, as soon as it is made
	Lost      []SessionID // report to the machine that the peer's link is lost
	Margins   []EpochOf   // wait until the hardware has finished what may be in progress, then pass MarginOver
	Over      []EpochOf   // nothing reaches the pool by these epochs any more, and the target's ends are not worked on
	Revoked   []uint64    // nothing reaches the pool any more by what was granted before these revocations
	Forgotten []SessionID // nothing of these sessions is left
	HangUps   []SessionID // close the connections of these sessions: they are of no use any more
}

// Reset empties TargetOut for the next step.
func (o *TargetOut) Reset() {
	*o = TargetOut{
		Expelled: o.Expelled[:0], Fences: o.Fences[:0], Leaves: o.Leaves[:0], Lost: o.Lost[:0], Margins: o.Margins[:0],
		Over: o.Over[:0], Revoked: o.Revoked[:0], Forgotten: o.Forgotten[:0], HangUps: o.HangUps[:0],
	}
}
