package effects

// A Report says when an operation began and how its time was spent. It is beside the fact that ends the operation, for
// metrics and traces: no machine reads a Report. It is valid until Reset; a driver that keeps a Report copies it.
type Report struct {
	Began  Time // when the machine took the command
	Phases PhaseTimes
	Bytes  uint64 // the valid bytes of the chunks; 0: not known
	Trace  Trace
}

// A Phase is what an operation spends time on. Unlike a Stage, which says where an operation failed, the phases of an
// operation cover its whole time.
type Phase uint8

// The phases of a put, in their order. A put that is tried again goes through some of them again, and their times are
// added up. Other operations have two of them:
//
//   - A grant was in PhaseQueue until there were pages for it, and in PhaseWire until it ended.
//   - A request that is pushed layer by layer was in PhaseQueue from its Begin to its Finish, while the engine computed,
//     and in PhaseWire until its outcome. Its batches, of which several are in flight at a time, have reports of their own.
//   - A registration of blocks at a producer was in PhaseQueue until its request was computed, in PhaseHandshake until there
//     was a link to the consumer's pages, and in PhaseWire until nothing wrote any more.
//   - Registered blocks at the consumer were in PhaseQueue until each producer rank had been asked, then in PhaseWire.
//   - Blocks that are lent to a consumer were in PhaseWire while any of them was being written, else in PhaseQueue.
const (
	// PhaseHandshake: the put waits, and there is no link to its peer.
	PhaseHandshake Phase = iota
	// PhaseQueue: the put waits although there is a link: for the connection of its requests to open, for the requests
	// before it, or for room to offer more pages.
	PhaseQueue
	// PhaseAllocation: the request for pages is on its way, or waits for pages at the peer, or its reply is on its way.
	// The peer may take small chunks from the request itself.
	PhaseAllocation
	// PhaseOffer: the offer is on its way, or waits or is read at the peer, or its reply is on its way.
	PhaseOffer
	// PhaseWire: the pages are written to the peer.
	PhaseWire
	// PhasePublish: the peer is told that the pages are written, and makes the chunks readable. On planes where the peer
	// itself sees the pages arrive, this takes no time.
	PhasePublish

	PhaseCount int = iota
)

// PhaseTimes has the time that an operation spent in each phase.
type PhaseTimes [PhaseCount]Duration

// Sum returns the time of the whole operation.
func (p *PhaseTimes) Sum() (sum Duration) {
	for _, d := range p {
		sum += d
	}
	return sum
}

// phaseNames are stable: they appear in metrics and traces.
//
//kvferry:table
var phaseNames = [PhaseCount]string{"handshake", "queue", "allocation", "offer", "wire", "publish"}

// String returns the stable name of the phase.
func (p Phase) String() string {
	if int(p) < PhaseCount {
		return phaseNames[p]
	}
	return "invalid"
}
