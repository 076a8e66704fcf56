package world

// Live are those of a list that anything can still become of, in order of creation: walks over all that ever were cost
// more the longer a run is. Some that are over may be among them for a while, so who walks asks of each what he would
// ask of all.
type Live[T any] struct {
	Some []T
	most int // so many there may be before they are looked through
}

func (l *Live[T]) Add(x T) { l.Some = append(l.Some, x) }

// liveLeast is how many are not worth looking through.
const liveLeast = 64

// Tidy forgets those that are over, now and then. Nobody may be walking.
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

func (l *Live[T]) Emptied() Live[T] { return Live[T]{Some: l.Some[:0]} }

// goings are the lists of what goes on in a world.
type goings struct {
	Conns     Live[*Conn]
	Transfers Live[*Transfer]
}

// tidy is called between deliveries. What it forgets never comes to life again: nothing opens a connection that is
// closed, or begins a transfer anew that is over.
func (l *goings) tidy() {
	l.Conns.Tidy(func(c *Conn) bool { return c.Closed && !c.Holds() })
	l.Transfers.Tidy((*Transfer).Over)
}

func (l *goings) emptied() goings {
	return goings{Conns: l.Conns.Emptied(), Transfers: l.Transfers.Emptied()}
}

// Over says whether nothing can be done with a transfer any more: it touches no page, its initiator has heard so, and
// who granted the pages has said what became of them.
func (t *Transfer) Over() bool {
	return t.Ended && t.Settled && !t.Reading && t.Flying == 0 && len(t.Writing) == 0 &&
		(t.landing == landingNone || t.landing == landingConfirmed)
}
