package libnixl

// A Kind says where memory is.
type Kind uint8

// The kinds: memory of the host, and of a device such as a GPU.
const (
	Host Kind = iota
	Device
)

// A Range is memory of the process, or of a device of the process.
type Range struct {
	Address uint64 // of its first byte
	Bytes   uint64
	Device  uint64 // number of the device; 0 for memory of the host
}

// A Pair is a piece of a transfer: Bytes bytes between a local and a remote address.
type Pair struct {
	Local, Remote uint64
	Bytes         uint64
}

// A Side describes what all pieces of a transfer have in common at one end.
type Side struct {
	Kind   Kind
	Device uint64
}

// An Operation is the direction of a transfer.
type Operation uint8

// The operations: from the peer to this process, and from this process to the peer.
const (
	Read Operation = iota
	Write
)

// A Notice is a message of a peer's agent, sent alone or with a transfer that has ended there. Notices have no order,
// and a notice that was sent may never arrive.
type Notice struct {
	Peer  string // the sender's name
	Bytes []byte
}
