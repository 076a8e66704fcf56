package contract

import "github.com/kvferry/kvferry/effects"

// End is one of the two nodes of a scenario.
type End int

// Ends. A asks, pushes and reads, B serves and grants.
const (
	A End = iota
	B
)

func (e End) String() string { return [...]string{"A", "B"}[e] }

// A Stage is two nodes without machines: a scenario gives the effects and takes the
// events, and what is between them is the driver under test.
type Stage interface {
	// Do carries out an effect at a node. Its spans are borrowed until it returns.
	Do(at End, e effects.Effect)
	// Next waits for what is told to either node. ok is false when nothing will come
	// any more, or nothing came for so long that the driver must be broken.
	Next() (at End, ev effects.Event, ok bool)
	// Kill ends a node, as far as the other can tell without a word. Nothing more is
	// asked of it; what it was told before may still come out of Next.
	Kill(at End)
	// Finish lets what is under way come to its end, by shutting the drivers down where
	// they need that. After it Next returns what is left, and then not ok.
	Finish()
}

// A DataStage is a Stage of fenced data planes.
type DataStage interface {
	Stage
	Node(at End) Node
	// Fill stores content in pages that were published and are not granted, as the
	// engine that was lent them would.
	Fill(at End, pages []effects.Page)
	// Now is the clock by which NotAfter is judged at a node.
	Now(at End) effects.Time
}

// Node is what peers know of a node's data plane, and its size.
type Node struct {
	Incarnation effects.Incarnation // as the other end knows it
	Plane       string
	Blob        []byte
	Buffer      effects.BufferID
	Pages       uint32
	PageBytes   uint32
}

// A WireStage is a Stage of control transports. B serves, A does not.
type WireStage interface {
	Stage
	// Serves is where B serves a channel.
	Serves(ch effects.Channel) effects.Addr
	// Note is a body that may be told one way.
	Note() []byte
	// Nowhere is an address that nobody serves.
	Nowhere() effects.Addr
}
