package contract

import "github.com/kvferry/kvferry/effects"

// End identifies a node of a scenario.
type End int

// The nodes. A sends requests, pushes and reads; B serves and grants.
const (
	A End = iota
	B
)

func (e End) String() string { return [...]string{"A", "B"}[e] }

// A Stage consists of two nodes without machines: a scenario supplies the effects and takes the events, and the driver
// under test is between the two nodes.
type Stage interface {
	// Do carries out an effect at a node. The effect's spans are borrowed until Do returns.
	Do(at End, e effects.Effect)
	// Next waits for an event at either node. ok is false when no event will arrive any more, or when none arrived for
	// so long that the driver must be broken.
	Next() (at End, ev effects.Event, ok bool)
	// Kill ends a node without a message to the peer, so the peer can only detect the end. No further effect is issued
	// at the killed node; Next may still return earlier events of that node.
	Kill(at End)
	// Finish brings everything that is in progress to an end, by shutting the drivers down where necessary. Afterwards
	// Next returns the remaining events, and then reports false.
	Finish()
}

// A DataStage is a Stage of fenced data planes.
type DataStage interface {
	Stage
	Node(at End) Node
	// Fill stores content in pages that were published and are not granted, as the engine that borrowed the pages
	// would.
	Fill(at End, pages []effects.Page)
	// Now returns the clock against which NotAfter is compared at a node.
	Now(at End) effects.Time
}

// Node describes a node's data plane, as far as peers know it, and the size of the pool.
type Node struct {
	Incarnation effects.Incarnation // as the other node knows it
	Plane       string
	Blob        []byte
	Buffer      effects.BufferID
	Pages       uint32
	PageBytes   uint32
}

// A WireStage is a Stage of control transports. B serves, and A does not.
type WireStage interface {
	Stage
	// ServerAddr returns the address at which B serves a channel.
	ServerAddr(ch effects.Channel) effects.Addr
	// OneWayBody returns a body that may be sent one way.
	OneWayBody() []byte
	// UnusedAddr returns an address at which nothing listens.
	UnusedAddr() effects.Addr
}
