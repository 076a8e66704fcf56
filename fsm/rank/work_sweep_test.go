package rank

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/protocol"
)

// What ends many rows at once ends so many a step, whatever their number, and each of them: rows are counted.

// sweepRowCount are in each table, and rowsPerStep may end in one step.
const sweepRowCount, rowsPerStep = 4096, 64

// A sweepCase is a way to end many rows at once.
type sweepCase struct {
	name string
	fill func(w *workers)
	ev   func(w *workers) effects.Event
	rows func(s Stats) int // that are left of those
	puts bool              // they are the sender's
	left func(w *workers) int
	tune func(*Config)
}

var sweepCases = append([]sweepCase{
	{name: "grants of a lost writer", fill: grantAll("r"), ev: peerLostEvent, rows: grantedCount},
	{name: "requests of a lost peer", fill: func(w *workers) { w.fillPool(); w.requestEach("r") }, ev: peerLostEvent,
		rows: func(s Stats) int { return s.PendingRequests }},
	{name: "claims of an abandoned request", fill: landAll, ev: abandonEvent, rows: func(s Stats) int { return s.Claims }},
	{name: "delayed pull, offers for an abandoned request", fill: offerAll, ev: abandonEvent,
		rows: func(s Stats) int { return s.Offers }},
	{name: "requests for an abandoned request", fill: func(w *workers) { w.fillPool(); w.requestEach("r") }, ev: abandonEvent,
		rows: func(s Stats) int { return s.PendingRequests }},
	{name: "grants for an abandoned request", fill: grantAll("r"), ev: abandonEvent, rows: grantedCount},
	{name: "delayed pull, offers of a sender out of reach", fill: func(w *workers) { w.holdImports = true; offerAll(w) },
		ev: importFailedEvent, rows: func(s Stats) int { return s.Offers }},
	{name: "pull, offers that wait for a sender out of reach", fill: func(w *workers) { w.holdImports = true; offerAll(w) },
		ev: importFailedEvent, rows: func(s Stats) int { return s.PendingRequests }},
	{name: "drain with grants", fill: grantAll("r"), ev: drainEvent, rows: grantedCount},
	{name: "drain with requests", fill: func(w *workers) { w.fillPool(); w.requestEach("r") }, ev: drainEvent,
		rows: func(s Stats) int { return s.PendingRequests }},
	{name: "drain with claims", fill: landAll, ev: drainEvent, rows: func(s Stats) int { return s.Claims }},
	{name: "drain with gets", fill: getAll, ev: drainEvent, rows: func(s Stats) int { return s.Gets }},
	{name: "drain of a delayed pull with offers", fill: offerAll, ev: drainEvent,
		rows: func(s Stats) int { return s.Offers }},
	{name: "drain of a delayed pull with fetches", fill: fetchAll, ev: drainEvent,
		rows: func(s Stats) int { return s.Fetches }},
	{name: "requests of a lost connection", fill: func(w *workers) { w.fillPool(); w.requestEach("r") }, ev: connLostEvent,
		rows: func(s Stats) int { return s.PendingRequests }},
	{name: "puts to a peer that is not there", fill: putAll, ev: unreachableEvent, rows: putCount, puts: true},
	{name: "pull, puts to a peer that is not there", fill: putAll, ev: unreachableEvent, rows: putCount, puts: true},
	{name: "puts to a peer that has no memory", fill: putToFull, ev: noMemoryEvent, rows: putCount, puts: true},
	{name: "drain of a cache", fill: cacheAll, ev: drainEvent, rows: func(s Stats) int { return s.PagesEvictable }},
}, cutSweeps...)

func grantedCount(s Stats) int { return s.PagesGranted }

func grantAll(request string) func(*workers) { return func(w *workers) { w.requestEach(request) } }

// requestEach has a guest ask for a page for each key.
func (w *workers) requestEach(request string) {
	who := w.connectPeer(1)
	for i := range sweepRowCount {
		w.requestPages(who, request, w.keys[i:i+1])
	}
}

// fillPool grants all pages to somebody else.
func (w *workers) fillPool() {
	who, all := w.connectPeer(2), w.unrelatedKeys(2*sweepRowCount)
	w.requestPages(who, "other", all[:sweepRowCount])
	w.requestPages(who, "other", all[sweepRowCount:])
}

func landAll(w *workers) {
	w.engine(0, &engine.Put{
		Peer: engine.Peer{Host: "r", InitPort: 1, AllocPort: 2}, Request: []byte("r"), Keys: w.keys, Pages: w.pages,
		Layout: layout, LastChunkTokens: 4,
	})
}

func offerAll(w *workers) {
	for i := range sweepRowCount {
		w.engine(0, &engine.Put{
			Peer: engine.Peer{Host: "r", InitPort: 1, AllocPort: 2}, Request: []byte("r"), Keys: w.keys[i : i+1],
			Pages: w.pages[i : i+1], Layout: layout, LastChunkTokens: 4,
		})
	}
}

// putAll puts each key, while the connection to the peer is being opened.
func putAll(w *workers) {
	w.holdOpens = true
	offerAll(w)
}

// putToFull does so while the first of them is being answered.
func putToFull(w *workers) {
	w.holdReplies = true
	offerAll(w)
}

func putCount(s Stats) int { return s.Puts }

func unreachableEvent(w *workers) effects.Event {
	return &effects.Opened{Corr: w.heldCorrs[0], Code: effects.Unreachable}
}

func noMemoryEvent(w *workers) effects.Event {
	m := protocol.AllocResponse{AllocFailed: true}
	return &effects.Replied{Corr: w.heldCorrs[0], Body: m.Append(nil)}
}

func getAll(w *workers) {
	for i := range sweepRowCount {
		w.engine(1, &engine.Get{Keys: w.keys[i : i+1], Wait: effects.Second})
	}
}

func fetchAll(w *workers) {
	for i := range sweepRowCount {
		w.engine(1, &engine.Fetch{Keys: w.keys[i : i+1]})
	}
}

func cacheAll(w *workers) {
	landAll(w)
	w.engine(1, &engine.Get{Keys: w.keys, Request: []byte("r")})
	w.engine(1, &engine.Unpin{Got: w.ticket})
}

func peerLostEvent(*workers) effects.Event {
	return &effects.LinkLost{Peer: effects.Incarnation{0xA0, 1}}
}

func connLostEvent(*workers) effects.Event { return &effects.ConnLost{Conn: 97} }

func abandonEvent(w *workers) effects.Event {
	w.ticket++
	return &effects.Command{Ticket: w.ticket, Body: &engine.Abandon{Request: []byte("r")}}
}

func drainEvent(w *workers) effects.Event {
	w.ticket++
	return &effects.Command{Ticket: w.ticket, Body: &Drain{Timeout: effects.Second}}
}

func importFailedEvent(w *workers) effects.Event {
	return &effects.Imported{Corr: w.heldImports[0], Code: effects.Unreachable}
}

func TestSweepsAreBounded(t *testing.T) {
	for _, x := range sweepCases {
		t.Run(x.name, func(t *testing.T) {
			w := newWorkers(t, x.name, sweepRowCount, func(c *Config) {
				c.GrantsMax, c.WaitersMax, c.FetchesMax, c.Window = 2*sweepRowCount+2, 2*sweepRowCount+2, 2*sweepRowCount, 4096
				c.Tuning.SweepRows, c.BatchMax = rowsPerStep, 2*sweepRowCount
				if x.puts { // One is asked, the others wait.
					c.Window = 1
				}
				if x.name == "drain of a cache" {
					c.Retention = 1
				}
				if x.tune != nil {
					x.tune(c)
				}
			})
			x.fill(w)
			who := 1
			if x.puts {
				who = 0
			}
			r := w.ranks[who]
			if x.left == nil {
				x.left = func(*workers) int { return x.rows(r.Stats()) }
			}
			left := x.left(w)
			if left != sweepRowCount {
				t.Fatalf("%d rows to begin with", left)
			}
			steps := 0
			ev := x.ev(w)
			for more := true; more; {
				w.step(who, ev)
				ev = &effects.Tick{}
				if steps++; steps > 4*sweepRowCount {
					t.Fatal("it does not end")
				}
				now := x.left(w)
				if left-now > rowsPerStep+1 { // and the one that the event is of
					t.Fatalf("%d rows ended in one step", left-now)
				}
				left = now
				at, ok := r.Deadline()
				more = ok && at <= w.now
			}
			if left != 0 {
				t.Fatalf("%d rows are left, and nothing is to do", left)
			}
			if steps < sweepRowCount/rowsPerStep {
				t.Fatalf("only %d steps", steps)
			}
		})
	}
}

// Whoever is lost again and again, in the midst of what that began, ends nothing anew: all that a peer had comes to its
// end within as many steps as there are rows.
func TestSweepIsNotRestarted(t *testing.T) {
	w := newWorkers(t, "", sweepRowCount, func(c *Config) {
		c.GrantsMax, c.Tuning.SweepRows = 2*sweepRowCount+2, rowsPerStep
	})
	w.requestEach("r")
	for step := 0; grantedCount(w.ranks[1].Stats()) > 0; step++ {
		if step > 2*sweepRowCount/rowsPerStep {
			t.Fatalf("%d grants stand after %d steps", grantedCount(w.ranks[1].Stats()), step)
		}
		w.step(1, peerLostEvent(w))
	}
}

// A drain has its outcome after its own pass, however short its timeout is.
func TestDrainFinishesSweepFirst(t *testing.T) {
	w := newWorkers(t, "", sweepRowCount, func(c *Config) { c.Tuning.SweepRows = rowsPerStep })
	landAll(w)
	w.ticket++
	var ev effects.Event = &effects.Command{Ticket: w.ticket, Body: &Drain{}}
	for steps := 0; w.last[1].Ticket != w.ticket; steps++ {
		if steps > 2*sweepRowCount {
			t.Fatal("it does not end")
		}
		w.step(1, ev)
		ev = &effects.Tick{}
	}
	if claims := w.ranks[1].Stats().Claims; claims > 0 || w.last[1].Code != effects.OK {
		t.Errorf("it ends as %v while %d claims stand", w.last[1].Code, claims)
	}
}

// A grant that is condemned, and whose row the sweep has not come to, is not told again to who asks for it again.
func TestCondemnedGrantIsNotRepeated(t *testing.T) {
	w := newWorkers(t, "", sweepRowCount, func(c *Config) {
		c.GrantsMax, c.Tuning.SweepRows = 2*sweepRowCount+2, rowsPerStep
	})
	w.requestEach("r")
	w.step(1, peerLostEvent(w))
	who := effects.Incarnation{0xA0, 1} // It shakes hands again.
	w.step(1, &effects.Received{Conn: 97, Channel: effects.ChannelInit, Request: stranger, Body: hello(who)})
	if grantedCount(w.ranks[1].Stats()) == 0 {
		t.Fatal("the sweep has come to all of them")
	}
	body := w.allocRequest(who, "r", w.keys[sweepRowCount-1:], 2)
	var out effects.Effects
	w.ranks[1].Step(w.now, &effects.Received{Conn: 97, Channel: effects.ChannelAlloc, Request: stranger, Body: body}, &out)
	answers := 0
	for i := range out.Len() {
		if e, ok := out.At(i).(*effects.Reply); ok {
			answers++
			limits := protocol.DefaultLimits()
			var m protocol.AllocResponse
			if err := m.Decode(e.Body, &limits); err != nil || m.Ext.Code == 0 || m.Ext.Grant != 0 {
				t.Errorf("the answer is %+v, %v; want a refusal that names no grant", m, err)
			}
		}
	}
	if answers != 1 {
		t.Errorf("%d answers", answers)
	}
}
