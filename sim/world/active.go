package world

// ActiveList is a list of the elements that can still change, in order of creation. Iterating over all elements that
// ever existed would cost more the longer a run lasts. The list may contain some elements that are over, so a caller
// must check each element in the same way as when iterating over all of them.
type ActiveList[T any] struct {
	Items     []T
	compactAt int // number of elements at which the list is searched for elements that are over
}

// Add appends an element.
func (l *ActiveList[T]) Add(x T) { l.Items = append(l.Items, x) }

// compactMin is the number of elements below which a list is not searched.
const compactMin = 64

// Compact removes the elements that are over, if the list has grown enough. The list must not be iterated at that time.
func (l *ActiveList[T]) Compact(isOver func(T) bool) {
	if len(l.Items) < max(l.compactAt, compactMin) {
		return
	}
	remaining := l.Items[:0]
	for _, x := range l.Items {
		if !isOver(x) {
			remaining = append(remaining, x)
		}
	}
	clear(l.Items[len(remaining):])
	l.Items, l.compactAt = remaining, 2*len(remaining)
}

// Recycle returns an empty list that uses the same memory.
func (l *ActiveList[T]) Recycle() ActiveList[T] { return ActiveList[T]{Items: l.Items[:0]} }

// activeLists holds the live lists of a world.
type activeLists struct {
	Conns     ActiveList[*Conn]
	Transfers ActiveList[*Transfer]
}

// compactLists is called between deliveries. A removed element can never become active again: a closed connection is
// not opened again, and a transfer that is over is not started again.
func (l *activeLists) compactLists() {
	l.Conns.Compact(func(c *Conn) bool { return c.Closed && !c.HasParked() })
	l.Transfers.Compact((*Transfer).IsOver)
}

func (l *activeLists) recycleLists() activeLists {
	return activeLists{Conns: l.Conns.Recycle(), Transfers: l.Transfers.Recycle()}
}

// IsOver reports whether nothing can happen to a transfer any more: the transfer touches no page, its initiator was
// notified of that, and the owner of the pages has confirmed the landing, if any.
func (t *Transfer) IsOver() bool {
	return t.Ended && t.Settled && !t.LocalInUse && t.InFlight == 0 && len(t.StoresLeft) == 0 &&
		(t.landing == landingNone || t.landing == landingConfirmed)
}
