package directory

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// The checks of this file.
var (
	checkLookupTime    = oracle.NewCheck("L1", "lookups in directories, by their timeouts")
	checkLookupRequest = oracle.NewCheck("L10", "requests of lookups")
	checkLookupWindow  = oracle.NewCheck("L10", "windows of lookups")
	checkLookupRefused = oracle.NewCheck("L10", "lookups that no directory is asked for")
	checkLookupCache   = oracle.NewCheck("L10", "replies that lookups use again")
	checkLookupHolders = oracle.NewCheck("L10", "holders that lookups return")
)

// clientLookups are the lookups of a worker that have no outcome, and the replies that the worker may use again.
type clientLookups struct {
	pending []clientLookup
	replies []clientReply // oldest first
	// Of the present step: the lookup that began, whether a kept reply was for it, and the reply that arrived.
	began    effects.Ticket
	room     bool
	kept     int // index of the reply that is used again, or -1
	arrived  lookupKey
	holders  int
	anyReply bool
}

// A lookupKey identifies the chunks of a lookup: they are the first chunks of a prompt.
type lookupKey struct {
	first uint64
	count int
}

// A clientLookup is a lookup without an outcome.
type clientLookup struct {
	ticket   effects.Ticket
	key      lookupKey
	at       effects.Time
	frozen   effects.Duration // how long the process had been frozen until then
	inFlight bool
	asked    []*clientDirectory
	// ambiguous says that there was another lookup for the same chunks, so that a request may be for either.
	ambiguous bool
}

// A clientReply is a reply that may be used again.
type clientReply struct {
	key     lookupKey
	holders int
	until   effects.Time
}

// begin records that a lookup begins.
func (a *clientLookups) begin(x *client, t effects.Ticket, chunks []uint64) {
	key := lookupKey{chunks[0], min(len(chunks), x.settings.PrefixMax)}
	a.began, a.room = t, len(a.pending) < x.settings.LookupsMax
	a.kept = slices.IndexFunc(a.replies, func(r clientReply) bool { return r.key == key && r.until > x.now })
	q := clientLookup{ticket: t, key: key, at: x.now, frozen: x.frozenNow}
	for i := range a.pending {
		if o := &a.pending[i]; o.key == key {
			o.ambiguous, q.ambiguous = true, true
		}
	}
	a.pending = append(a.pending, q)
}

func (a *clientLookups) find(t effects.Ticket) *clientLookup {
	if i := slices.IndexFunc(a.pending, func(q clientLookup) bool { return q.ticket == t }); i >= 0 {
		return &a.pending[i]
	}
	return nil
}

// checkWindow checks the window with which a connection for lookups is opened.
func (x *client) checkWindow(c *oracle.Call, d *clientDirectory, window uint16) {
	want := x.settings.Window
	if x.id.lacksExtensions {
		want = 1
	}
	c.CountJudged(checkLookupWindow)
	if window != want {
		c.FailCheck(checkLookupWindow, "%s opens a connection for lookups to %s with a window of %d, and it should be %d", c.NodeName(),
			d.host, window, want)
	}
}

// checkRequest judges the request of a lookup, and returns what it is about.
func (a *clientLookups) checkRequest(x *client, c *oracle.Call, d *clientDirectory, body []byte) (lookupKey, effects.Ticket) {
	var m protocol.BatchedP2PLookupMsg
	if m.Decode(body, nil) != nil || len(m.Hashes) == 0 {
		return lookupKey{}, 0
	}
	key := lookupKey{m.Hashes[0].Bits, len(m.Hashes)}
	var best *clientLookup
	for i := range a.pending {
		if q := &a.pending[i]; q.key == key && (best == nil || best.inFlight) {
			best = q
		}
	}
	c.CountJudged(checkLookupRequest)
	if best == nil || !best.ambiguous && (best.inFlight || len(best.asked) >= x.settings.TriesMax || slices.Contains(best.asked, d)) {
		c.FailCheck(checkLookupRequest, "%s asks %s for %d chunks from %x, and no lookup needs that: at most %d directories, %d chunks",
			c.NodeName(), d.host, key.count, key.first, x.settings.TriesMax, x.settings.PrefixMax)
		return key, 0
	}
	if best.ticket == a.began && a.kept >= 0 {
		c.FailCheck(checkLookupCache, "%s asks %s for chunks from %x, and the last reply may be used for %d ns more", c.NodeName(), d.host,
			key.first, a.replies[a.kept].until.Sub(x.now))
	}
	best.inFlight, best.asked = true, append(best.asked, d)
	return key, best.ticket
}

// handleReply records the reply to a lookup, and reports whether it is one.
func (a *clientLookups) handleReply(x *client, l *clientLine, call *clientCall, body []byte) bool {
	var m protocol.BatchedP2PLookupRetMsg
	if m.Decode(body, nil) != nil {
		return false
	}
	l.failures = 0
	a.anyReply, a.arrived, a.holders = true, call.lookup, 0
	for i := range m.Holders {
		h := &m.Holders[i]
		if _, err := protocol.ParseEndpoint(string(h.PeerInitURL)); err == nil && string(h.InstanceID) != x.id.instance {
			a.holders++
		}
	}
	if a.holders = min(a.holders, x.settings.HoldersMax); a.holders > 0 && x.settings.CacheTime > 0 {
		a.keepReply(x, clientReply{call.lookup, a.holders, x.now.Add(x.settings.CacheTime)})
	}
	return true
}

// keepReply keeps a reply, in place of an earlier one for the same chunks or of the oldest.
func (a *clientLookups) keepReply(x *client, r clientReply) {
	a.replies = slices.DeleteFunc(a.replies, func(o clientReply) bool { return o.key == r.key })
	if x.settings.CacheSize == 0 {
		return
	}
	if len(a.replies) == x.settings.CacheSize {
		a.replies = slices.Delete(a.replies, 0, 1)
	}
	a.replies = append(a.replies, r)
}

// closeLine records that the requests on a connection are not in flight any more.
func (a *clientLookups) closeLine(l *clientLine) {
	for i := range l.calls {
		if q := a.find(l.calls[i].ticket); q != nil {
			q.inFlight = false
		}
		l.calls[i].ticket = 0
	}
}

// checkGivenUp checks that a connection with lookups in flight is closed only when one of them is overdue.
func (a *clientLookups) checkGivenUp(x *client, c *oracle.Call, l *clientLine) {
	longest := effects.Duration(0)
	for i := range l.calls {
		for n := range a.pending {
			if q := &a.pending[n]; q.key == l.calls[i].lookup {
				longest = max(longest, x.now.Sub(q.at))
			}
		}
	}
	c.CountJudged(checkLookupTime)
	if longest < x.settings.LookupTimeout {
		c.FailCheck(checkLookupTime, "%s gives up lookups after %d ns, and the timeout is %d ns", c.NodeName(), longest,
			x.settings.LookupTimeout)
	}
}

// checkOutcome judges the outcome of a lookup.
func (a *clientLookups) checkOutcome(x *client, c *oracle.Call, e *effects.Deliver) {
	q := a.find(e.Ticket)
	if q == nil {
		return
	}
	switch e.Code {
	case effects.TooMany:
		c.CountJudged(checkLookupRefused)
		if a.room || a.kept >= 0 || q.ticket != a.began {
			c.FailCheck(checkLookupRefused, "%s refuses a lookup with %d others in progress, and the limit is %d", c.NodeName(), len(a.pending)-1,
				x.settings.LookupsMax)
		}
	case effects.OK:
		a.checkAnswer(x, c, q, int(e.Hits))
	default:
		a.checkUnanswered(x, c, q, e.Code)
	}
	a.pending = slices.DeleteFunc(a.pending, func(o clientLookup) bool { return o.ticket == e.Ticket })
}

// checkAnswer judges the holders that a lookup returns.
func (a *clientLookups) checkAnswer(x *client, c *oracle.Call, q *clientLookup, holders int) {
	switch {
	case a.anyReply && a.arrived == q.key && q.ticket != a.began:
		c.CountJudged(checkLookupHolders)
		if holders != a.holders {
			c.FailCheck(checkLookupHolders, "%s returns %d holders for a lookup, and the reply has %d, at most %d", c.NodeName(), holders,
				a.holders, x.settings.HoldersMax)
		}
	case a.kept < 0 || q.ticket != a.began:
		c.FailCheck(checkLookupCache, "%s answers a lookup without a reply, and keeps no reply for these chunks: at most %d, for %d ns",
			c.NodeName(), x.settings.CacheSize, x.settings.CacheTime)
	default:
		c.CountJudged(checkLookupCache)
		if want := a.replies[a.kept].holders; holders != want {
			c.FailCheck(checkLookupHolders, "%s returns %d holders from a kept reply, which had %d", c.NodeName(), holders, want)
		}
	}
}

// checkUnanswered judges a lookup that ends without a reply.
func (a *clientLookups) checkUnanswered(x *client, c *oracle.Call, q *clientLookup, code effects.Code) {
	c.CountJudged(checkLookupRefused, checkLookupTime)
	failed := false // A connection for lookups has failed since the lookup began.
	for _, d := range x.directories {
		l := &d.lines[lookupLine]
		failed = failed || l.failures > 0 && l.failedAt >= q.at
		isDown := l.conn == 0 && l.failures > 0 && x.now < l.failedAt.Add(x.backoff(l))
		switch {
		case code == effects.Unreachable && !isDown:
			c.FailCheck(checkLookupRefused, "%s asks no directory for a lookup, and %s can be asked", c.NodeName(), d.host)
		case !q.ambiguous && l.conn != 0 && l.fullAt < q.at && x.settings.TriesMax >= x.hosts && !slices.Contains(q.asked, d):
			c.FailCheck(checkLookupRefused, "%s gives up a lookup after %d of %d directories, and does not ask %s", c.NodeName(), len(q.asked),
				x.settings.TriesMax, d.host)
		}
	}
	if waited := x.now.Sub(q.at); code != effects.Unreachable && !failed && waited < x.settings.LookupTimeout {
		c.FailCheck(checkLookupTime, "%s gives up a lookup after %d ns, and the timeout is %d ns", c.NodeName(), waited,
			x.settings.LookupTimeout)
	}
}

// endStep checks that no lookup waits although every directory could be asked, and ends what concerns one step.
func (a *clientLookups) endStep(x *client, c *oracle.Call) {
	a.began, a.kept, a.anyReply = 0, -1, false
	for i := range a.pending {
		q := &a.pending[i]
		if q.inFlight || q.ambiguous {
			continue
		}
		free := len(x.directories) == x.hosts
		for _, d := range x.directories {
			free = free && d.lines[lookupLine].fullAt < x.now
		}
		if c.CountJudged(checkLookupWindow); free {
			c.FailCheck(checkLookupWindow, "%s holds back a lookup, and a further request could be sent: the window is %d", c.NodeName(),
				x.settings.Window)
			return
		}
	}
}

// computeOwed computes until when the lookups need their outcomes.
func (a *clientLookups) computeOwed(x *client) {
	if len(a.pending) == 0 || len(x.directories) == 0 {
		return
	}
	tries := effects.Duration(min(x.settings.TriesMax, x.hosts))
	oldest := &a.pending[0]
	frozen := x.frozen - oldest.frozen // It may have been frozen while the first directory was asked.
	x.owe(x.directories[0], oldest.at.Add(tries*(x.settings.LookupTimeout+2*effects.Millisecond)+frozen+frozen/20), checkLookupTime,
		"the outcome of a lookup")
}
