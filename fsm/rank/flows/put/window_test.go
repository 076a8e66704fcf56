package put_test

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/protocol"
)

// startPuts gives so many puts, with a window for all, and returns their tickets and requests, which are in flight.
func startPuts(t *testing.T, n int, change func(*config)) (r *rig, puts []effects.Ticket, asked []effects.Send) {
	t.Helper()
	r = newWindowRig(t, 4, func(c *config) {
		c.Window = 4
		if change != nil {
			change(c)
		}
	})
	for range n {
		puts = append(puts, r.put(r.reserve(1, 0), nil))
	}
	r.shakeHands()
	return r, puts, r.popRequests(n)
}

// popRequests demands that so many requests have left.
func (r *rig) popRequests(n int) (asked []effects.Send) {
	r.t.Helper()
	if len(r.sends) != n {
		r.t.Fatalf("%d requests have left, want %d", len(r.sends), n)
	}
	for range n {
		e, _ := r.popRequest()
		asked = append(asked, e)
	}
	return asked
}

func (r *rig) failRequest(e effects.Send) {
	r.t.Helper()
	ref := r.closeCorr(e.Corr)
	r.runStep(func(e *flow.Env) { r.source.Step(e, ref, &effects.Unanswered{Code: effects.Closed}) })
}

func operations(t *testing.T, asked []effects.Send) (list []uint64) {
	t.Helper()
	for _, e := range asked {
		var m protocol.AllocRequest
		lim := protocol.DefaultLimits()
		if err := m.Decode(e.Body, &lim); err != nil {
			t.Fatal(err)
		}
		list = append(list, m.Ext.Operation)
	}
	return list
}

// Each answer is its own put's, in whatever order they come.
func TestAnswersInAnyOrder(t *testing.T) {
	r, puts, asked := startPuts(t, 3, nil)
	for _, i := range []int{2, 0, 1} {
		r.replyTo(asked[i], grantReply(int64(i)))
		if x := pop(r, &r.transfers); len(x.Pairs) != 1 || x.Pairs[0].Remote.Index != uint32(i) {
			t.Fatalf("put %d moves %+v", i, x.Pairs)
		} else {
			r.completeTransfer(x, effects.OK, true)
		}
		r.wantOutcome(puts[i], effects.OK, false)
	}
}

// A connection that ends takes all that was in flight on it. They go again in their order, before those that were not
// sent yet, and only the oldest has lost an attempt by that; it ends when it has lost them all.
func TestResetKeepsTheOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}} { // The driver tells the oldest first.
		r, puts, asked := startPuts(t, 3, func(c *config) { c.PutTimeout = 100 * effects.Second })
		first := operations(t, asked)
		r.runStep(func(*flow.Env) {})
		for attempt := 1; attempt < attemptsMax; attempt++ {
			r.closes = nil
			r.advance(2 * effects.Second)
			if !slices.Equal(r.closes, []effects.Conn{asked[0].Conn}) {
				t.Fatalf("closed %v; want the lane %d, once", r.closes, asked[0].Conn)
			}
			for _, i := range order {
				r.failRequest(asked[i])
			}
			r.completeOpen()
			asked = r.popRequests(3)
			if again := operations(t, asked); !slices.Equal(again, first) {
				t.Fatalf("operations %v go again as %v", first, again)
			}
		}
		r.advance(2 * effects.Second)
		for _, i := range order {
			r.failRequest(asked[i])
		}
		r.wantOutcome(puts[0], effects.Expired, false)
		r.wantOpen(puts[1])
		r.wantOpen(puts[2])
		r.completeOpen()
		if again := operations(t, r.popRequests(2)); !slices.Equal(again, first[1:]) {
			t.Fatalf("operations %v go on as %v", first[1:], again)
		}
	}
}

// A connection on which something comes is not given up for one answer that is late; one on which nothing comes for
// ReplyTimeout is.
func TestOverdueIsAConnection(t *testing.T) {
	r, _, asked := startPuts(t, 3, func(c *config) { c.PutTimeout = 100 * effects.Second })
	r.advance(1500 * effects.Millisecond)
	r.replyTo(asked[2], grantReply(2))
	r.advance(1000 * effects.Millisecond)
	r.replyTo(asked[1], grantReply(1))
	r.closes = nil
	r.advance(1999 * effects.Millisecond)
	if len(r.closes) != 0 {
		t.Fatal("a lane was closed within ReplyTimeout of an answer on it")
	}
	r.advance(effects.Millisecond)
	if !slices.Equal(r.closes, []effects.Conn{asked[0].Conn}) {
		t.Fatalf("closed %v, 2 s after the last answer on %d", r.closes, asked[0].Conn)
	}
}

// A put that has its outcome keeps its place in the window until its answer: no more are in flight than that.
func TestStoppedPutsKeepTheirPlace(t *testing.T) {
	r, puts, asked := startPuts(t, 4, func(c *config) { c.PutsMax, c.ReservesMax = 8, 8 })
	for _, p := range puts {
		if code := r.abort(p); code != effects.OK {
			t.Fatal(code)
		}
		r.wantOutcome(p, effects.Cancelled, false)
		r.release(p - 1)
	}
	for range 2 {
		r.put(r.reserve(1, 0), nil)
	}
	r.popRequests(0)
	r.replyTo(asked[3], protocol.AllocResponse{})
	r.popRequests(1)
	r.replyTo(asked[0], protocol.AllocResponse{})
	r.popRequests(1)
}

func refusalReply(code effects.Code) protocol.AllocResponse {
	return protocol.AllocResponse{Form: protocol.FormAscend, AllocFailed: true, HasExt: true,
		Ext: protocol.AllocReplyExt{Version: 1, Code: uint32(code)}}
}

// A breaker that opens ends what waits; what is in flight ends by its own answer. When its time is over one request
// goes at a time, until something else is answered than that the peer is full.
func TestBreakerTriesOneAtATime(t *testing.T) {
	r, puts, asked := startPuts(t, 3, func(c *config) {
		c.BreakerTTL, c.PutsMax, c.ReservesMax, c.PutTimeout = 500*effects.Millisecond, 8, 8, 100*effects.Second
	})
	r.replyTo(asked[0], refusalReply(effects.NoMemory))
	r.wantOutcome(puts[0], effects.NoMemory, false)
	r.wantOpen(puts[1])
	r.release(puts[0] - 1)
	late := r.put(r.reserve(1, 0), nil)
	r.wantOutcome(late, effects.BackedOff, false)
	r.release(late - 1)
	r.replyTo(asked[1], grantReply(1))
	if len(r.transfers) != 1 {
		t.Fatal("what was in flight when the breaker opened was granted, and does not move")
	}
	r.advance(600 * effects.Millisecond)

	var next []effects.Ticket
	for range 2 {
		next = append(next, r.put(r.reserve(1, 0), nil))
	}
	r.popRequests(0) // Not beside one that was in flight when the breaker opened.
	r.replyTo(asked[2], refusalReply(effects.NoMemory))
	r.wantOutcome(puts[2], effects.NoMemory, false)
	for _, p := range append(next, puts[2]) {
		if p != puts[2] {
			r.wantOutcome(p, effects.BackedOff, false)
		}
		r.release(p - 1)
	}
	r.advance(600 * effects.Millisecond)

	next = next[:0]
	for range 3 {
		next = append(next, r.put(r.reserve(1, 0), nil))
	}
	trial := r.popRequests(1)
	r.replyTo(trial[0], grantReply(2))
	r.popRequests(2)
	for _, p := range next {
		r.wantOpen(p)
	}
}
