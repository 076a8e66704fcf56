package lease

import "github.com/kvferry/kvferry/effects"

// A Right is how long we may read what a sender lent, by our clock. It begins when the sender lent the pages, at the
// earliest, and ends a guard before the sender's own time does: so no read goes on when they are its own again,
// though clocks differ within what the guard allows (rule M4).
type Right struct {
	Since effects.Time `snap:"skip"` // when the pages were lent, at the earliest
	Until effects.Time // when our right to read ends, less the guard
	Over  effects.Time // from when on the offer, whenever it began, is not read if it comes again
}
