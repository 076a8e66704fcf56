package protocol

// A Family is a conversation, which has sockets of its own. A message of another family is an error there, but for the
// P2PInitSideMsg, which ends a handshake where that is held.
type Family uint8

// The families.
const (
	// FamilyPD is what a prefill rank, a decode rank and the proxy say to each other, the handshake included.
	FamilyPD Family = iota
	// FamilyP2P is what two peers that share say to each other after the handshake.
	FamilyP2P
	// FamilyController is what workers and their controller say to each other.
	FamilyController
	// FamilyAgent is what engines and the agent of their host say to each other.
	FamilyAgent
)

// Family says to which a message belongs. What is no message is of FamilyPD.
func (t Tag) Family() Family {
	switch {
	case t >= TagAttachRequest && t < tags:
		return FamilyAgent
	case t >= TagRegisterMsg && t < TagAttachRequest:
		return FamilyController
	case t >= TagAscendBatchedLookupAndGetMsg && t < TagRegisterMsg:
		return FamilyP2P
	}
	return FamilyPD
}
