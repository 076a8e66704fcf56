package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol/sharedlog"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// A logServer is the server of the log that directories share. The log is kept in memory only, so it is empty after a
// restart. Positions are derived from the server's clock, so the positions of the next incarnation may be smaller.
type logServer struct {
	clockSkew     uint64       // error of the clock
	beganAt       effects.Time // when the positions began anew; 0: never
	maxEntries    int          `snap:"share"` // upper limit of the number of entries, whatever directories ask for
	squeezedMax   int          // a lower limit, which applies until the time below
	squeezedUntil effects.Time
	readDelay     effects.Duration // delay of the reply to a read, which then has one entry
	slowUntil     effects.Time     // end of the delays
	delayedReads  []delayedRead    // delayed reads, in order
	entries       []sharedlog.StoredEntry
	last          sharedlog.Position
}

type delayedRead struct {
	request effects.Request
	read    sharedlog.Request
	dueAt   effects.Time
}

// The faults of the log.
type (
	trimBody struct{ n int }     // the oldest n entries are lost
	loseBody struct{ n int }     // the newest n entries are lost, as when a server takes over that did not have these entries yet
	wipeBody struct{ anew bool } // all entries are lost, and the positions may begin anew

	squeezeBody struct { // for some time the log keeps so few entries that readers miss some
		limit int
		span  effects.Duration
	}

	lagBody struct { // for some time reads are slow: a new directory hears from workers long before it has read the log
		delay, span effects.Duration
	}
)

func (*trimBody) IsCommand()    {}
func (*loseBody) IsCommand()    {}
func (*wipeBody) IsCommand()    {}
func (*squeezeBody) IsCommand() {}
func (*lagBody) IsCommand()     {}

// newLogServer returns a constructor of log servers that keep at least the given number of entries, and at most
// ten times as many.
func newLogServer(minEntries int) func(custom.Boot) (effects.Machine, error) {
	return func(b custom.Boot) (effects.Machine, error) {
		least := minEntries
		if limits := logLimitsOf(b.Plan); int(limits.ReadEntries) > 10*minEntries { // A directory may read many entries at a time.
			least = int(limits.ReadEntries)
		}
		if tellsMuch(b.Plan) {
			least = max(least, muchFactor*minEntries)
		}
		maxEntries := draw.Hash(b.Plan.Seed, draw.Plan, 8, 7).Between(least, 10*least)
		if hasReliableLog(b.Plan) {
			maxEntries = 1 << 20
		}
		return &logServer{clockSkew: draw.Hash(b.Seed, draw.Plan, 8, 6).Below(5000), maxEntries: maxEntries}, nil
	}
}

// Deadline returns the time of the reply to the first delayed read.
func (s *logServer) Deadline() (effects.Time, bool) {
	if len(s.delayedReads) == 0 {
		return 0, false
	}
	return s.delayedReads[0].dueAt, true
}

// Step consumes one event. Messages that are no requests get no reply.
func (s *logServer) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	for len(s.delayedReads) > 0 && s.delayedReads[0].dueAt <= now {
		s.sendReply(now, s.delayedReads[0].request, &s.delayedReads[0].read, out)
		s.delayedReads = append([]delayedRead(nil), s.delayedReads[1:]...)
	}
	switch e := ev.(type) {
	case *effects.Command:
		s.applyFault(now, e.Body)
		out.Deliver(effects.Deliver{Ticket: e.Ticket})
	case *effects.Received:
		var r sharedlog.Request
		switch {
		case r.Decode(e.Body) != nil:
		case now < s.slowUntil && len(r.Entry) == 0:
			r.Limit = 1
			s.delayedReads = append(s.delayedReads, delayedRead{e.Request, r, now.Add(s.readDelay)})
		default:
			s.sendReply(now, e.Request, &r, out)
		}
	default:
	}
}

func (s *logServer) sendReply(now effects.Time, to effects.Request, r *sharedlog.Request, out *effects.Effects) {
	a := s.handleRequest(now, r)
	out.Reply(effects.Reply{Request: to, Body: out.Cut(a.Append(out.Arena()))})
}

func (s *logServer) applyFault(now effects.Time, x effects.CommandBody) {
	switch x := x.(type) {
	case *trimBody:
		s.dropFirst(min(x.n, len(s.entries)))
	case *loseBody:
		s.entries = s.entries[:max(0, len(s.entries)-x.n)]
		s.last = sharedlog.Position{}
		if n := len(s.entries); n > 0 {
			s.last = s.entries[n-1].At
		}
	case *wipeBody:
		s.entries, s.last = nil, sharedlog.Position{}
		if x.anew {
			s.beganAt, s.clockSkew = now, 0
		}
	case *squeezeBody:
		s.squeezedMax, s.squeezedUntil = x.limit, now.Add(x.span)
	case *lagBody:
		if len(s.delayedReads) == 0 { // Otherwise later reads would be answered first.
			s.readDelay = x.delay
		}
		s.slowUntil = now.Add(x.span)
	}
}

// dropFirst removes the oldest n entries. Their memory is given up when the next entries need more room.
func (s *logServer) dropFirst(n int) { s.entries = s.entries[n:] }

func (s *logServer) handleRequest(now effects.Time, r *sharedlog.Request) *sharedlog.Reply {
	a := &sharedlog.Reply{}
	if len(r.Entry) > 0 {
		at := sharedlog.Position{Major: uint64(now.Sub(s.beganAt))/1e6 + 1 + s.clockSkew}
		if at.Major <= s.last.Major {
			at = sharedlog.Position{Major: s.last.Major, Minor: s.last.Minor + 1}
		}
		s.last = at
		s.entries = append(s.entries, sharedlog.StoredEntry{At: at, Entry: append([]byte(nil), r.Entry...)})
		limit := min(int(r.Keep), s.maxEntries)
		if now < s.squeezedUntil {
			limit = min(limit, s.squeezedMax)
		}
		if len(s.entries) > limit {
			s.dropFirst(len(s.entries) - limit)
		}
		for len(s.entries) > 0 && s.entries[0].At.Less(r.Before) {
			s.dropFirst(1)
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
