package libnixl

// A Kind says where memory is.
type Kind uint8

// The kinds: of the host, and of a device such as a GPU.
const (
	Host Kind = iota
	Device
)

// A Range is memory of the process, or of one of its devices.
type Range struct {
	Address uint64 // of its first byte
	Bytes   uint64
	Device  uint64 // its number; 0 for memory of the host
}

// A Pair is one piece of a transfer: Bytes bytes between an address of ours and one of the peer's.
type Pair struct {
	Local, Remote uint64
	Bytes         uint64
}

// A Side is what all pieces of a transfer have in common at one end.
type Side struct {
	Kind   Kind
	Device uint64
}

// An Operation is the direction of a transfer.
type Operation uint8

// The operations: from the peer to us, and from us to the peer.
const (
	Read Operation = iota
	Write
)

// A Notice is what a peer's agent sent: alone, or with a transfer that is over at its end. Notices have no order, and
// one that was sent may never come.
type Notice struct {
	Peer  string // the sender's name
	Bytes []byte
}
