package rank

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// What one event lets go on, or ends, in rows that all wait for the same: so many a step, and each of them.
var cutSweeps = []sweepCase{
	{name: "gets that wait for one chunk", fill: getOne, ev: landedEvent, left: undelivered(1), tune: manyGets},
	{name: "gets that lose hope of one chunk", tune: manyGets, rows: func(s Stats) int { return s.Gets },
		fill: func(w *workers) { w.requestPages(w.connectPeer(1), "r", w.keys[:1]); getOne(w) }, ev: revokedEvent},
	{name: "delayed pull, fetches that wait for one chunk", fill: fetchOne, ev: importedEvent, left: waitingFetches},
	{name: "reserves that wait for pages", fill: reserveAll, ev: releaseEvent, left: undelivered(0), puts: true,
		tune: func(c *Config) { c.ReservesMax = 2*sweepRowCount + 2 }},
	{name: "requests that wait for pages", fill: func(w *workers) { w.fillPool(); w.requestEach("r") }, ev: revokedEvent,
		rows: func(s Stats) int { return s.PendingRequests }},
	{name: "puts that wait for a lane", fill: putAll, ev: laneOpenedEvent, left: unsentPuts, puts: true, tune: wide},
	{name: "pull, puts that wait for a lane", fill: putAll, ev: laneOpenedEvent, left: unsentPuts, puts: true, tune: wide},
	{name: "claims on one chunk whose time is over", fill: claimOne, ev: expiryEvent,
		rows: func(s Stats) int { return s.Claims }},
	{name: "delayed pull, fetches over a lost link", fill: readOne, rows: func(s Stats) int { return s.Fetches },
		ev: func(*workers) effects.Event { return &effects.LinkLost{Link: 2} }},
	{name: "delayed pull, fetches of an offer that is taken back", fill: readOne, ev: withdrawEvent,
		rows: func(s Stats) int { return s.Fetches }},
}

// runUntil runs what is to come up to the first such event for somebody, which is not carried out.
func (w *workers) runUntil(to int, is func(effects.Event) bool) effects.Event {
	for len(w.queue) > 0 {
		first := w.queue[0]
		w.queue = w.queue[1:]
		if first.to == to && is(first.ev) {
			return first.ev
		}
		w.step(first.to, first.ev)
	}
	w.t.Fatal("what is waited for does not come")
	return nil
}

func manyGets(c *Config) { c.GetsMax = 2*sweepRowCount + 2 }
func wide(c *Config)     { c.Window = 4 * 4096 }

// undelivered is how many of the commands that wait have no outcome, of those that were the last to be given.
func undelivered(rank int) func(*workers) int {
	return func(w *workers) int {
		if w.marked == 0 {
			w.marked = w.outcomes[rank] + sweepRowCount
		}
		return w.marked - w.outcomes[rank]
	}
}

func unsentPuts(w *workers) int { return sweepRowCount - w.sent }

func waitingFetches(w *workers) int {
	f := &w.ranks[1].sharedRooms.Fetches
	return f.CountUnfinished() - f.Pipeline().CountUnfinished()
}

func getOne(w *workers) {
	for range sweepRowCount {
		w.engine(1, &engine.Get{Keys: w.keys[:1], Wait: effects.Second})
	}
}

// putOne begins to put the first key.
func (w *workers) putOne() {
	w.ticket++
	w.push(0, &effects.Command{Ticket: w.ticket, Body: &engine.Put{
		Peer: engine.Peer{Host: "r", InitPort: 1, AllocPort: 2}, Request: []byte("r"), Keys: w.keys[:1],
		Pages: w.pages[:1], Layout: layout, LastChunkTokens: 4,
	}})
}

func landedEvent(w *workers) effects.Event {
	w.putOne()
	return w.runUntil(1, func(ev effects.Event) bool { _, is := ev.(*effects.Landed); return is })
}

func fetchOne(w *workers) {
	for range sweepRowCount {
		w.engine(1, &engine.Fetch{Keys: w.keys[:1]})
	}
}

// importedEvent offers the first key, up to where the way to it is there.
func importedEvent(w *workers) effects.Event {
	w.putOne()
	return w.runUntil(1, func(ev effects.Event) bool { _, is := ev.(*effects.Imported); return is })
}

// readOne has fetches read the first key, or wait for a page to read it into.
func readOne(w *workers) {
	w.holdTransfers = true
	w.putOne()
	w.run()
	fetchOne(w)
}

func withdrawEvent(w *workers) effects.Event {
	_, o := w.ranks[1].sharedRooms.Deferred.OfferAt(0)
	m := protocol.PullReadyNotif{
		SenderID: []byte("s"), SenderDoneURL: []byte("s:3"), Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype,
		HasExt: true,
	}
	m.Ext = protocol.PullReadyExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(o.Peer), To: protocol.UUID(o.SelfID), Operation: o.Operation,
		Withdraw: []protocol.PullID{o.Pull},
	}
	return &effects.Received{Conn: 99, Channel: effects.ChannelAlloc, Request: stranger, Body: m.Append(nil)}
}

// reserveAll has each Reserve wait for a page that another one has.
func reserveAll(w *workers) {
	w.engine(0, &engine.Reserve{Count: sweepRowCount})
	w.got = w.ticket
	for range sweepRowCount {
		w.engine(0, &engine.Reserve{Count: 1})
	}
	w.marked = w.outcomes[0] + sweepRowCount
}

func releaseEvent(w *workers) effects.Event {
	w.ticket++
	w.outcomes[0]-- // That of the Release itself.
	return &effects.Command{Ticket: w.ticket, Body: &engine.Release{Reserved: w.got}}
}

// revokedEvent loses the guest that has all pages, or the only one, and says that nobody stores into the first of its
// grants any more.
func revokedEvent(w *workers) effects.Event {
	guest := byte(1)
	if w.ranks[1].Stats().PendingRequests > 0 {
		guest = 2
	}
	w.step(1, &effects.LinkLost{Peer: effects.Incarnation{0xA0, guest}})
	return w.runUntil(1, func(ev effects.Event) bool { _, is := ev.(*effects.Revoked); return is })
}

// laneOpenedEvent opens the connection that the puts wait for, up to where their lane has opened.
func laneOpenedEvent(w *workers) effects.Event {
	w.holdOpens, w.holdReplies = false, true
	w.channels = append(w.channels, effects.ChannelInit)
	w.push(0, &effects.Opened{Corr: w.heldCorrs[0], Conn: effects.Conn(len(w.channels))})
	return w.runUntil(0, func(ev effects.Event) bool {
		x, is := ev.(*effects.Opened)
		return is && w.channels[x.Conn-1] == effects.ChannelAlloc
	})
}

// claimOne has one chunk expected by as many requests.
func claimOne(w *workers) {
	w.put(1, w.keys[:1], true)
	who := w.connectPeer(1)
	for i := range sweepRowCount - 1 {
		w.requestPages(who, fmt.Sprint(i), w.keys[:1])
	}
}

func expiryEvent(w *workers) effects.Event {
	w.now = effects.Time(w.ranks[1].cfg.ClaimTTL) + 1
	return &effects.Tick{}
}

// A message that names many grants ends those that a step has work for. Its answer names those and no others, and who
// says the others again is done in as many messages as it takes.
func TestWordsOfOneMessageAreBounded(t *testing.T) {
	w := newWorkers(t, "", sweepRowCount, func(c *Config) {
		c.GrantsMax, c.Leased, c.Tuning.SweepRows = 2*sweepRowCount+2, true, rowsPerStep
	})
	who := w.connectPeer(1)
	var ids []uint64
	w.onReply = func(m *protocol.AllocResponse) { ids = append(ids, m.Ext.Grant) }
	for i := range sweepRowCount {
		w.requestPages(who, "r", w.keys[i:i+1])
	}
	for message := 0; len(ids) > 0; message++ {
		if message > 2*sweepRowCount/rowsPerStep {
			t.Fatalf("%d grants stand after %d messages", len(ids), message)
		}
		done, stood := 0, grantedCount(w.ranks[1].Stats())
		w.onReply = func(m *protocol.AllocResponse) { done = len(m.Ext.Committed) + len(m.Ext.Gone) }
		m := protocol.AllocRequest{Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, HasExt: true,
			Ext: protocol.AllocExt{
				Version: link.VersionMax, Incarnation: protocol.UUID(who), To: protocol.UUID(w.ranks[1].cfg.Key.InboundName(who)), Commit: ids,
			}}
		if message%2 == 1 {
			m.Ext.Commit, m.Ext.Abort = nil, ids
		}
		w.requestCount++
		w.sendMessage(effects.ChannelAlloc, m.Append(nil))
		if ended := stood - grantedCount(w.ranks[1].Stats()); done == 0 || done > rowsPerStep+1 || ended != done {
			t.Fatalf("%d grants end by one message, whose answer names %d", ended, done)
		}
		ids = ids[done:]
	}
}
