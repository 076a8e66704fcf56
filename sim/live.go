package sim

import "github.com/kvferry/kvferry/effects"

// live are those of a list that anything can still become of, in order of creation: walks over all that ever were cost
// more the longer a run is. Some that are over may be among them for a while, so who walks asks of each what he would
// ask of all.
type live[T any] struct {
	some []T
	most int // so many there may be before they are looked through
}

func (l *live[T]) add(x T) { l.some = append(l.some, x) }

// liveLeast is how many are not worth looking through.
const liveLeast = 64

// tidy forgets those that are over, now and then. Nobody may be walking.
func (l *live[T]) tidy(over func(T) bool) {
	if len(l.some) < max(l.most, liveLeast) {
		return
	}
	kept := l.some[:0]
	for _, x := range l.some {
		if !over(x) {
			kept = append(kept, x)
		}
	}
	clear(l.some[len(kept):])
	l.some, l.most = kept, 2*len(kept)
}

func (l *live[T]) emptied() live[T] { return live[T]{some: l.some[:0]} }

// goings are the lists of what goes on in a world.
type goings struct {
	conns     live[*conn]
	transfers live[*transfer]
	commands  live[effects.Ticket]
}

// tidy is called between deliveries. What it forgets never comes to life again: nothing opens a connection that is
// closed, or begins a transfer anew that is over, and a command that has ended holds nothing later.
func (l *goings) tidy(w *world) {
	l.conns.tidy(func(c *conn) bool { return c.closed && !c.holds() })
	l.transfers.tidy((*transfer).over)
	l.commands.tidy(func(t effects.Ticket) bool { c := &w.commands[t-1]; return c.over && !c.held })
}

func (l *goings) emptied() goings {
	return goings{conns: l.conns.emptied(), transfers: l.transfers.emptied(), commands: l.commands.emptied()}
}

// over says whether nothing can be done with a transfer any more: it touches no page, its initiator has heard so, and
// who granted the pages has said what became of them.
func (t *transfer) over() bool {
	return t.ended && t.settled && !t.reading && t.flying == 0 && len(t.writing) == 0 &&
		(t.landing == landingNone || t.landing == landingConfirmed)
}
