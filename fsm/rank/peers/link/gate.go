package link

import "github.com/kvferry/kvferry/effects"

// A Gate says whether what waits for a peer can go on.
type Gate uint8

// Gates.
const (
	GateShut   Gate = iota // not now
	GateOpen               // its link is up
	GateUnfit              // never: the configurations differ
	GateAbsent             // nobody is there
	GateSilent             // not soon: it answers nothing, and is left alone
)

// Gate is the peer's, and what shut it.
func (p *Outbound) Gate() (Gate, effects.Code) {
	switch p.state {
	case Ready:
		return GateOpen, effects.OK
	case Backoff:
		switch {
		case p.cause == effects.Mismatch || p.cause == effects.Unsupported:
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
