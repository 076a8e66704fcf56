package communicator

import "github.com/kvferry/kvferry/effects"

// SessionID names a link that a peer opened. The peer draws it.
type SessionID [16]byte

// Address is the network from which a connection comes, as it is counted for limits.
type Address struct {
	Net  [16]byte
	Bits uint8
}

// TargetEventKind is the kind of an event of a Target.
type TargetEventKind uint8

// The kinds of events, with the fields of TargetEvent that each reads beside Session.
const (
	LinkArrived     TargetEventKind = iota + 1 // Peer, From, MemoryMapped: a process that proved to be Peer opens a link
	WelcomeFailed                              // the link was admitted, but the peer could not be notified
	EpochOffered                               // Epoch: the peer offers the epoch
	InitiatorFenced                            // Epoch: the peer uses the epoch no more
	InitiatorGone                              // Epoch: the peer reports that its end is gone
	EndFinished                                // Epoch, Failed, Gone: the target's own end is not worked on any more
	MarginPassed                               // Epoch: the time that StartMargins requested has passed
	LinkFailed                                 // messages on the link's connection are not believed any more
	ChannelEnded                               // ProvesGone: the link's connection has ended
	GrantRevoked                               // Revocation, Peer: a grant of the peer is revoked (no session)
	PlaneClosing                               // the plane closes (no session)
)

// A TargetEvent is something that happened. Fields that its kind does not read are ignored.
type TargetEvent struct {
	Kind         TargetEventKind
	Session      SessionID
	Epoch        uint64
	Peer         effects.Incarnation
	From         Address
	MemoryMapped bool   // the peer has the target's memory mapped (HCCS), so destroying the target's end does not end access
	Failed       bool   // the target's end could not be formed
	Gone         bool   // nothing of the target's end is left
	ProvesGone   bool   // the connection's end is the report of the peer's kernel that the peer closed it or is dead
	Revocation   uint64 // the driver's number of a revocation, used once
}

// Admission is the decision about a new link.
type Admission uint8

// The decisions.
const (
	Admitted    Admission = iota + 1 // the link is admitted
	PlaneClosed                      // the plane closes and admits no links
	SessionUsed                      // another link has this session id
	PeerRenewed                      // the peer has all its links: the oldest was ended, to make room for a retry
	PeerFull                         // the peer has all its links, and all of them may still reach the pool
	TableFull                        // the table of links is full
	AddressFull                      // the address has all the links that one address may have
)

// An EpochRef names one epoch of a session.
type EpochRef struct {
	Session SessionID
	Epoch   uint64
}

// TargetEffects is what the driver must do after a step. The driver carries it out in the order of the fields, and then
// empties it.
type TargetEffects struct {
	Admission  Admission    // answers LinkArrived
	LinkCount  int          // the number of links that was compared with the limit
	MakeEnd    bool         // answers EpochOffered: make the target's end; EndFinished follows when no work on it is left
	Code       effects.Code // answers EpochOffered: the code of the accept
	NewerEpoch uint64       // answers EpochOffered: a newer or equal epoch, so the peer violates the protocol; 0: none

	FencedToRevoke  []EpochRef  // epochs that are fenced to revoke a grant
	SendFenced      []EpochRef  // tell the peer that these epochs are fenced
	RemoveEnds      []EpochRef  // take the target's end away, as soon as it is made
	LostLinks       []SessionID // report to the machine that the peer's link is lost
	StartMargins    []EpochRef  // wait until the hardware has finished what may be in progress, then pass MarginPassed
	OverEpochs      []EpochRef  // nothing reaches the pool by these epochs any more, and the target's ends are not worked on
	DoneRevocations []uint64    // nothing reaches the pool any more by what was granted before these revocations
	EndedSessions   []SessionID // nothing of these sessions is left
	CloseConns      []SessionID // close the connections of these sessions: they are of no use any more
}

// Reset empties TargetEffects for the next step.
func (o *TargetEffects) Reset() {
	*o = TargetEffects{
		FencedToRevoke: o.FencedToRevoke[:0], SendFenced: o.SendFenced[:0], RemoveEnds: o.RemoveEnds[:0], LostLinks: o.LostLinks[:0],
		StartMargins: o.StartMargins[:0],
		OverEpochs:   o.OverEpochs[:0], DoneRevocations: o.DoneRevocations[:0], EndedSessions: o.EndedSessions[:0],
		CloseConns: o.CloseConns[:0],
	}
}
