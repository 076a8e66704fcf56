package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol/sharedlog"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/own"
)

// A shelf is the server of the log that directories share. The log is kept in memory only, so it is empty after a
// restart. Positions are derived from the server's clock, so the positions of the next incarnation may be smaller.
type shelf struct {
	skew    uint64 `snap:"share"` // error of the clock
	most    int    `snap:"share"` // upper limit of the number of entries, whatever directories ask for
	tight   int    // a lower limit, which applies until the time below
	until   effects.Time
	lag     effects.Duration // delay of the reply to a read, which then has one entry
	slow    effects.Time     // end of the delays
	held    []held           // delayed reads, in order
	entries []sharedlog.StoredEntry
	last    sharedlog.Position
}

type held struct {
	request effects.Request
	read    sharedlog.Request
	at      effects.Time
}

// The faults of the log.
type (
	trims struct{ n int } // the oldest n entries are lost
	loses struct{ n int } // the newest n entries are lost, as when a server takes over that did not have these entries yet
	wipes struct{}        // all entries are lost, and the positions start again

	squeezes struct { // for some time the log keeps so few entries that readers miss some
		most int
		span effects.Duration
	}

	lags struct { // for some time reads are slow: a new directory hears from workers long before it has read the log
		by, span effects.Duration
	}
)

func (*trims) IsCommand()    {}
func (*loses) IsCommand()    {}
func (*wipes) IsCommand()    {}
func (*squeezes) IsCommand() {}
func (*lags) IsCommand()     {}

// newShelf returns a constructor of log servers that keep at least the given number of entries, and at most
// ten times as many.
func newShelf(least int) func(own.Boot) (effects.Machine, error) {
	return func(b own.Boot) (effects.Machine, error) {
		most := draw.Hash(b.Plan.Seed, draw.Plan, 8, 7).Between(least, 10*least)
		if steady(b.Plan) {
			most = 1 << 20
		}
		return &shelf{skew: draw.Hash(b.Seed, draw.Plan, 8, 6).Below(5000), most: most}, nil
	}
}

// Deadline returns the time of the reply to the first delayed read.
func (s *shelf) Deadline() (effects.Time, bool) {
	if len(s.held) == 0 {
		return 0, false
	}
	return s.held[0].at, true
}

// Step consumes one event. Messages that are no requests get no reply.
func (s *shelf) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	for len(s.held) > 0 && s.held[0].at <= now {
		s.reply(now, s.held[0].request, &s.held[0].read, out)
		s.held = append([]held(nil), s.held[1:]...)
	}
	switch e := ev.(type) {
	case *effects.Command:
		s.befalls(now, e.Body)
		out.Deliver(effects.Deliver{Ticket: e.Ticket})
	case *effects.Received:
		var r sharedlog.Request
		switch {
		case r.Decode(e.Body) != nil:
		case now < s.slow && len(r.Entry) == 0:
			r.Limit = 1
			s.held = append(s.held, held{e.Request, r, now.Add(s.lag)})
		default:
			s.reply(now, e.Request, &r, out)
		}
	default:
	}
}

func (s *shelf) reply(now effects.Time, to effects.Request, r *sharedlog.Request, out *effects.Effects) {
	a := s.answer(now, r)
	out.Reply(effects.Reply{Request: to, Body: out.Cut(a.Append(out.Arena()))})
}

func (s *shelf) befalls(now effects.Time, x effects.CommandBody) {
	switch x := x.(type) {
	case *trims:
		s.cut(min(x.n, len(s.entries)))
	case *loses:
		s.entries = s.entries[:max(0, len(s.entries)-x.n)]
		s.last = sharedlog.Position{}
		if n := len(s.entries); n > 0 {
			s.last = s.entries[n-1].At
		}
	case *wipes:
		s.entries, s.last = nil, sharedlog.Position{}
	case *squeezes:
		s.tight, s.until = x.most, now.Add(x.span)
	case *lags:
		if len(s.held) == 0 { // Otherwise later reads would be answered first.
			s.lag = x.by
		}
		s.slow = now.Add(x.span)
	}
}

func (s *shelf) cut(n int) { s.entries = append([]sharedlog.StoredEntry(nil), s.entries[n:]...) }

func (s *shelf) answer(now effects.Time, r *sharedlog.Request) *sharedlog.Reply {
	a := &sharedlog.Reply{}
	if len(r.Entry) > 0 {
		at := sharedlog.Position{Major: uint64(now)/1e6 + s.skew}
		if at.Major <= s.last.Major {
			at = sharedlog.Position{Major: s.last.Major, Minor: s.last.Minor + 1}
		}
		s.last = at
		s.entries = append(s.entries, sharedlog.StoredEntry{At: at, Entry: append([]byte(nil), r.Entry...)})
		most := min(int(r.Keep), s.most)
		if now < s.until {
			most = min(most, s.tight)
		}
		if len(s.entries) > most {
			s.cut(len(s.entries) - most)
		}
	} else {
		for _, e := range s.entries {
			if r.After.Less(e.At) && len(a.Entries) < int(r.Limit) {
				a.Entries = append(a.Entries, e)
			}
		}
	}
	a.Last = s.last
	return a
}
