package link

import "github.com/kvferry/kvferry/effects"

// Gate states whether work that waits for a peer can go on.
type Gate uint8

// Values of Gate.
const (
	GateShut   Gate = iota // not now
	GateOpen               // the link to the peer is ready
	GateUnfit              // never: the configurations of the two ends differ, or one end forbids the other
	GateAbsent             // no process listens at the peer's address
	GateSilent             // not soon: the peer does not reply and is in backoff
)

// Gate returns whether work for the peer can go on, and the code of the failure that prevents it.
func (p *Outbound) Gate() (Gate, effects.Code) {
	switch p.state {
	case Ready:
		return GateOpen, effects.OK
	case Backoff:
		switch {
		case p.cause == effects.Mismatch || p.cause == effects.Unsupported || p.cause == effects.Forbidden:
			return GateUnfit, p.cause
		case p.absent:
			return GateAbsent, p.cause
		case p.cause == effects.Expired:
			return GateSilent, p.cause
		}
	case Idle, Opening, Greeting, Importing, Listing:
	}
	return GateShut, p.cause
}
