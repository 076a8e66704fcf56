package world

// Live is a list of the elements that can still change, in order of creation. Iterating over all elements that ever
// existed would cost more the longer a run lasts. The list may contain some elements that are over, so a caller must
// check each element in the same way as when iterating over all of them.
type Live[T any] struct {
	Some []T
	most int // number of elements at which the list is searched for elements that are over
}

// Add appends an element.
func (l *Live[T]) Add(x T) { l.Some = append(l.Some, x) }

// liveLeast is the number of elements below which a list is not searched.
const liveLeast = 64

// Tidy removes the elements that are over, if the list has grown enough. The list must not be iterated at that time.
func (l *Live[T]) Tidy(over func(T) bool) {
	if len(l.Some) < max(l.most, liveLeast) {
		return
	}
	kept := l.Some[:0]
	for _, x := range l.Some {
		if !over(x) {
			kept = append(kept, x)
		}
	}
	clear(l.Some[len(kept):])
	l.Some, l.most = kept, 2*len(kept)
}

// Emptied returns an empty list that uses the same memory.
func (l *Live[T]) Emptied() Live[T] { return Live[T]{Some: l.Some[:0]} }

// goings holds the live lists of a world.
type goings struct {
	Conns     Live[*Conn]
	Transfers Live[*Transfer]
}

// tidy is called between deliveries. A removed element can never become active again: a closed connection is not opened
// again, and a transfer that is over is not started again.
func (l *goings) tidy() {
	l.Conns.Tidy(func(c *Conn) bool { return c.Closed && !c.Holds() })
	l.Transfers.Tidy((*Transfer).Over)
}

func (l *goings) emptied() goings {
	return goings{Conns: l.Conns.Emptied(), Transfers: l.Transfers.Emptied()}
}

// IsOver reports whether nothing can happen to a transfer any more: the transfer touches no page, its initiator was
// notified of that, and the owner of the pages has confirmed the landing, if any.
func (t *Transfer) Over() bool {
	return t.Ended && t.Settled && !t.Reading && t.Flying == 0 && len(t.Writing) == 0 &&
		(t.landing == landingNone || t.landing == landingConfirmed)
}
