package lease

import "github.com/kvferry/kvferry/effects"

// Right is the reader's end of a lease: how long this node may read pages that a sender leased to this node, by this
// node's clock.
//
// Invariant: a Right begins at the earliest time at which the sender can have leased the pages, and ends a guard
// interval before the sender's own time is over. No read is therefore in progress when the sender uses the pages again,
// as long as the clocks differ by no more than the guard interval allows (rule M4).
type Right struct {
	Since     effects.Time `snap:"skip"` // the earliest time at which the pages can have been leased
	Until     effects.Time // when this node must stop reading; the guard interval is already subtracted
	ExpiresAt effects.Time // from this time on the offer is not read if it arrives again, whenever it began
}
