package protocol

// A Family is a group of messages that have their own sockets. On the sockets of another family a message is an error,
// except for P2PInitSideMsg, which ends a handshake and is sent on the socket of the handshake.
type Family uint8

// The families.
const (
	// FamilyPD contains the messages among a prefill rank, a decode rank and the proxy, including the handshake.
	FamilyPD Family = iota
	// FamilyP2P contains the messages between two peers that share chunks, after the handshake.
	FamilyP2P
	// FamilyController contains the messages between workers and their controller.
	FamilyController
	// FamilyAgent contains the messages between engines and the agent of the same host.
	FamilyAgent
)

// Family returns the family of the message with this tag. An unknown tag belongs to FamilyPD.
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
