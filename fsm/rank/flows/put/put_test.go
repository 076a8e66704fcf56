package put_test

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// Memory goes to those who wait first in, first out, all or none: a small Reserve
// behind a large one waits, until the large one gives up.
func TestReserves(t *testing.T) {
	r := newRig(t, nil)
	first := r.reserve(3, 0)
	large, small := r.reserve(2, effects.Second), r.reserve(1, 0)
	r.wantOutcome(first, effects.OK, false)
	r.wantOpen(large)
	r.wantOpen(small)
	r.advance(effects.Second)
	r.wantOutcome(large, effects.NoMemory, false)
	if d := r.wantOutcome(small, effects.OK, false); len(d.Pages) != 1 {
		t.Fatalf("got pages %v", d.Pages)
	}
	next := r.reserve(1, 0)
	r.wantOpen(next)
	if code := r.release(next); code != effects.NotFound {
		t.Fatalf("release of what was not given: %v", code)
	}
	if code := r.release(first); code != effects.OK {
		t.Fatalf("release: %v", code)
	}
	if code := r.release(first); code != effects.NotFound {
		t.Fatalf("the second release: %v", code)
	}
	r.wantOutcome(next, effects.OK, false)
	waits := r.reserve(4, 0)
	if code := r.abort(waits); code != effects.OK {
		t.Fatalf("abort: %v", code)
	}
	r.wantOutcome(waits, effects.Cancelled, false)
	for n, want := range map[uint32]effects.Code{0: effects.Invalid, 5: effects.TooLarge} {
		r.wantOutcome(r.reserve(n, 0), want, false)
	}
	r.release(small)
	r.release(next)
	if r.pool.FreePages() != pagesMax || r.commands.CountReserves() != 0 || r.timers.Len() != 0 {
		t.Fatalf("%d pages free, %d reserves, %d deadlines", r.pool.FreePages(), r.commands.CountReserves(), r.timers.Len())
	}
}

// What a Put says is checked before anything is done for it.
func TestPutsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*engine.Put)
		want   effects.Code
	}{
		{"nothing", func(p *engine.Put) { p.Keys, p.Pages = nil, nil }, effects.Invalid},
		{"more keys than pages", func(p *engine.Put) { p.Keys = append(p.Keys, key("f")) }, effects.Invalid},
		{"nobody", func(p *engine.Put) { p.Peer.Host = "" }, effects.Invalid},
		{"no port", func(p *engine.Put) { p.Peer.AllocPort = 0 }, effects.Invalid},
		{"a key that is none", func(p *engine.Put) { p.Keys[0] = []byte("k") }, effects.Invalid},
		{"a page of another life", func(p *engine.Put) { p.Pages[0].Generation++ }, effects.Invalid},
		{"a page that is not there", func(p *engine.Put) { p.Pages[0].Index = pagesMax }, effects.Invalid},
		{"a short page in the middle", func(p *engine.Put) { p.Pages[0].Length-- }, effects.Invalid},
		{"a last page longer than its tokens", func(p *engine.Put) { p.LastChunkTokens = 2 }, effects.Invalid},
		{"no tokens", func(p *engine.Put) { p.LastChunkTokens = 0 }, effects.Invalid},
		{"the last of no request", func(p *engine.Put) { p.Last = true }, effects.Invalid},
		{"negative timeout", func(p *engine.Put) { p.Timeout = -1 }, effects.Invalid},
		{"too long a request id", func(p *engine.Put) { p.Request = []byte("123456789") }, effects.TooLarge},
		{"another layout", func(p *engine.Put) { p.Layout.Dtype = protocol.DtypeBFloat16 }, effects.Mismatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			from := r.reserve(2, 0)
			r.wantOutcome(r.put(from, c.change), c.want, false)
			if r.source.Len() != 0 || r.requests() != 0 || len(r.opens) != 0 {
				t.Fatalf("%d puts, %d requests, %d opens are left", r.source.Len(), r.requests(), len(r.opens))
			}
			if code := r.release(from); code != effects.OK {
				t.Fatalf("its pages: %v", code)
			}
		})
	}
}

// A whole put: the request names the incarnation that it believes in, the transfer goes
// to the pages granted and ends before the lease does, and the memory is the engine's
// again.
func TestPut(t *testing.T) {
	r := newRig(t, nil)
	from := r.reserve(2, 0)
	given := r.put(from, nil)
	r.shakeHands()
	e, m := r.popRequest()
	if len(m.Keys) != 2 || m.Ext.Incarnation != protocol.UUID(ours) || m.Ext.To != protocol.UUID(theirs) ||
		m.Ext.Attempt != 1 || m.Ext.PatienceNS != uint64(effects.Second) {
		t.Fatalf("asked %+v", m)
	}
	if code := r.release(from); code != effects.Invalid {
		t.Fatalf("pages of an open put were released: %v", code)
	}
	asked := r.now
	r.advance(effects.Second / 2)
	r.replyTo(e, grantReply(3, 1))
	x := pop(r, &r.transfers)
	if x.Grant != 77 || x.Peer != theirs || x.Link != 5 || x.Pairs[0].Remote.Index != 3 ||
		x.Pairs[1].Remote.Generation != 101 {
		t.Fatalf("moved %+v", x)
	}
	if want := asked.Add(7 * effects.Second); x.NotAfter != want {
		t.Fatalf("not after %d; the lease of 8 s, less a guard of 1 s, counts from the request: %d", x.NotAfter, want)
	}
	r.completeTransfer(x, effects.OK, true)
	if d := r.wantOutcome(given, effects.OK, false); d.Sent != 2 || d.Skipped != 0 {
		t.Fatalf("delivered %+v", d)
	}
	if code := r.release(from); code != effects.OK || r.source.Len() != 0 {
		t.Fatalf("release: %v with %d puts", code, r.source.Len())
	}
}

// Answers that make no sense move nothing: the put ends, and the grant goes back.
func TestRepliesThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*protocol.AllocResponse)
	}{
		{"too few pages", func(m *protocol.AllocResponse) { *m = grantReply(0) }},
		{"too many pages", func(m *protocol.AllocResponse) { *m = grantReply(0, 1, 2) }},
		{"a page that is not there", func(m *protocol.AllocResponse) { *m = grantReply(0, pagesMax) }},
		{"a page before the first", func(m *protocol.AllocResponse) { *m = grantReply(0, -1) }},
		{"a buffer that nobody listed", func(m *protocol.AllocResponse) { m.RemoteUUIDs[1][5]++ }},
		{"pages without generations", func(m *protocol.AllocResponse) { m.Ext.Generations = m.Ext.Generations[:0] }},
		{"pages without a grant", func(m *protocol.AllocResponse) { m.Ext.Grant = 0 }},
		{"already sent beyond the batch", func(m *protocol.AllocResponse) { *m = grantReply(0); m.AlreadySent = []int64{2} }},
		{"already sent out of order", func(m *protocol.AllocResponse) { *m = grantReply(); m.AlreadySent = []int64{1, 0} }},
		{"already sent twice", func(m *protocol.AllocResponse) { *m = grantReply(); m.AlreadySent = []int64{0, 0} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			given := r.put(r.reserve(2, 0), nil)
			r.shakeHands()
			e, _ := r.popRequest()
			m := grantReply(0, 1)
			c.change(&m)
			r.replyTo(e, m)
			r.wantOutcome(given, effects.Malformed, false)
			if len(r.transfers) != 0 {
				t.Fatal("something was moved")
			}
			if m.Ext.Grant == 0 {
				return
			}
			r.completeOpen()
			if _, m := r.popRequest(); !slices.Equal(m.Ext.Abort, []uint64{77}) || len(m.Keys) != 0 {
				t.Fatalf("the grant went back as %+v", m)
			}
		})
	}
}

// What the peer has already is skipped; with nothing left nothing moves.
func TestSkips(t *testing.T) {
	r := newRig(t, nil)
	from := r.reserve(2, 0)
	given := r.put(from, nil)
	r.shakeHands()
	e, _ := r.popRequest()
	m := grantReply(2)
	m.AlreadySent = []int64{0}
	r.replyTo(e, m)
	x := pop(r, &r.transfers)
	if len(x.Pairs) != 1 || x.Pairs[0].Local.Index != r.outcomes[from].Pages[1].Index {
		t.Fatalf("moved %+v", x.Pairs)
	}
	r.completeTransfer(x, effects.OK, true)
	if d := r.wantOutcome(given, effects.OK, false); d.Sent != 1 || d.Skipped != 1 {
		t.Fatalf("delivered %+v", d)
	}
	given = r.put(from, nil)
	e, _ = r.popRequest()
	m = protocol.AllocResponse{HasExt: true, AlreadySent: []int64{0, 1}, Ext: protocol.AllocReplyExt{Version: 1}}
	r.replyTo(e, m)
	if d := r.wantOutcome(given, effects.OK, false); d.Skipped != 2 || len(r.transfers) != 0 {
		t.Fatalf("delivered %+v with %d transfers", d, len(r.transfers))
	}
}

// An outcome in time and memory in safety are two promises: what is stopped while it
// moves is delivered held, and returned exactly once, when it is settled (M8).
func TestHeldUntilSettled(t *testing.T) {
	for _, settledAtOnce := range []bool{true, false} {
		r := newRig(t, nil)
		from := r.reserve(1, 0)
		given := r.put(from, nil)
		r.shakeHands()
		e, _ := r.popRequest()
		r.replyTo(e, grantReply(0))
		x := pop(r, &r.transfers)
		if code := r.abort(given); code != effects.OK {
			t.Fatalf("abort: %v", code)
		}
		r.wantOutcome(given, effects.Cancelled, true)
		if len(r.cancels) != 1 || len(r.returns) != 0 {
			t.Fatalf("%d cancels, %d returns", len(r.cancels), len(r.returns))
		}
		if code := r.abort(given); code != effects.NotFound {
			t.Fatalf("the second abort: %v", code)
		}
		if code := r.release(from); code != effects.Invalid {
			t.Fatalf("held pages were released: %v", code)
		}
		r.completeTransfer(x, effects.Cancelled, settledAtOnce)
		if !settledAtOnce {
			if len(r.returns) != 0 {
				t.Fatal("returned although something may still read it")
			}
			r.settleTransfer(x)
		}
		if !slices.Equal(r.returns, []effects.Ticket{given}) {
			t.Fatalf("returned %v", r.returns)
		}
		if code := r.release(from); code != effects.OK {
			t.Fatalf("release: %v", code)
		}
		r.completeOpen()
		if _, m := r.popRequest(); !slices.Equal(m.Ext.Abort, []uint64{77}) {
			t.Fatalf("the grant went back as %+v", m)
		}
	}
}

// A transfer that ends badly and unsettled has its outcome at once, and holds.
func TestUnsettledFailure(t *testing.T) {
	r := newRig(t, nil)
	given := r.put(r.reserve(1, 0), nil)
	r.shakeHands()
	e, _ := r.popRequest()
	r.replyTo(e, grantReply(0))
	x := pop(r, &r.transfers)
	r.completeTransfer(x, effects.Faulted, false)
	r.wantOutcome(given, effects.Faulted, true)
	r.settleTransfer(x)
	if !slices.Equal(r.returns, []effects.Ticket{given}) {
		t.Fatalf("returned %v", r.returns)
	}
}

// On leased planes the bytes count only after the peer took the commit.
func TestCommit(t *testing.T) {
	for name, c := range map[string]struct {
		ext  protocol.AllocReplyExt
		want effects.Code
	}{
		"taken": {protocol.AllocReplyExt{Version: 1, Committed: []uint64{77}}, effects.OK},
		"gone":  {protocol.AllocReplyExt{Version: 1, Gone: []uint64{77}}, effects.Withdrawn},
		"other": {protocol.AllocReplyExt{Version: 1, Committed: []uint64{78}}, effects.Withdrawn},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *config) { c.Leased = true })
			given := r.put(r.reserve(1, 0), nil)
			r.shakeHands()
			e, _ := r.popRequest()
			r.replyTo(e, grantReply(0))
			r.completeTransfer(pop(r, &r.transfers), effects.OK, true)
			r.wantOpen(given)
			r.completeOpen()
			e, m := r.popRequest()
			if !slices.Equal(m.Ext.Commit, []uint64{77}) || m.Ext.To != protocol.UUID(theirs) || len(m.Keys) != 0 {
				t.Fatalf("committed as %+v", m)
			}
			r.replyTo(e, protocol.AllocResponse{HasExt: true, Ext: c.ext})
			r.wantOutcome(given, c.want, false)
		})
	}
}

// An answer that is overdue closes the lane; the same operation is asked for again, a
// bounded number of times.
func TestAsksAgain(t *testing.T) {
	r := newRig(t, nil)
	given := r.put(r.reserve(1, 0), nil)
	r.shakeHands()
	var operation uint64
	for attempt := uint32(1); attempt <= attemptsMax; attempt++ {
		e, m := r.popRequest()
		if operation == 0 {
			operation = m.Ext.Operation
		}
		if m.Ext.Attempt != attempt || m.Ext.Operation != operation {
			t.Fatalf("attempt %d of operation %d; want %d of %d", m.Ext.Attempt, m.Ext.Operation, attempt, operation)
		}
		r.closes = nil
		r.advance(2 * effects.Second)
		if len(r.closes) != 1 || r.closes[0] != e.Conn {
			t.Fatalf("closed %v; want the lane %d", r.closes, e.Conn)
		}
		r.wantOpen(given)
		ref := r.closeCorr(e.Corr)
		r.runStep(func(e *flow.Env) { r.source.Step(e, ref, &effects.Unanswered{Code: effects.Closed}) })
		if attempt < attemptsMax {
			r.completeOpen()
		}
	}
	r.wantOutcome(given, effects.Expired, false)
	if r.source.Len() != 0 {
		t.Fatalf("%d puts are left", r.source.Len())
	}
}

// Puts that waited for their peer leave as soon as it is there, as many as may be in flight to it.
func TestAsManyLeaveAsTheWindowAllows(t *testing.T) {
	for _, window := range []uint16{1, 2, 3} {
		r := newWindowRig(t, window, nil)
		for range 3 {
			r.put(r.reserve(1, 0), nil)
		}
		r.shakeHands()
		if len(r.sends) != int(window) {
			t.Fatalf("%d requests are in flight, want %d", len(r.sends), window)
		}
		first, _ := r.popRequest()
		r.replyTo(first, grantReply(0))
		if left := 3 - int(window); len(r.sends) != int(window)-1+min(left, 1) {
			t.Fatalf("%d requests are in flight after an answer, of %d that waited", len(r.sends), left)
		}
	}
}

// The proxy is told of a request once, when its last batch has ended and no other is
// open, with what is missing; a refused word is said again, and then it is remembered.
func TestTellsTheProxyOnce(t *testing.T) {
	r := newRig(t, func(c *config) { c.Proxy = effects.Addr{Host: "proxy", Port: 9} })
	from := r.reserve(2, 0)
	of := func(last bool) func(*engine.Put) {
		return func(p *engine.Put) { p.Request, p.Last = []byte("r1"), last }
	}
	first, last := r.put(from, of(false)), r.put(from, of(true))
	r.wantOutcome(r.put(from, of(false)), effects.Ended, false)
	r.abort(last)
	r.wantOutcome(last, effects.Cancelled, false)
	if len(r.posts) != 0 || len(r.opens) != 1 {
		t.Fatal("told while a batch is open")
	}
	r.shakeHands()
	e, _ := r.popRequest()
	r.replyTo(e, grantReply(0, 1))
	r.completeTransfer(pop(r, &r.transfers), effects.OK, true)
	r.wantOutcome(first, effects.OK, false)
	if ch := r.completeOpen(); ch != effects.ChannelProxy {
		t.Fatalf("opened %v", ch)
	}
	for try := range 2 {
		x := pop(r, &r.posts)
		var m protocol.ProxyNotif
		lim := protocol.DefaultLimits()
		if err := m.Decode(x.Body, &lim); err != nil || string(m.RequestID) != "r1" || m.Failed != 2 {
			t.Fatalf("told %q with %d missing: %v", m.RequestID, m.Failed, err)
		}
		code, ref := effects.OK, r.closeCorr(x.Corr)
		if try == 0 {
			code = effects.Refused
		}
		r.runStep(func(e *flow.Env) { r.commands.Step(&e.Env, ref, &effects.SendDone{Code: code}) })
		if try == 0 {
			r.advance(effects.Second)
			r.completeOpen()
		}
	}
	if len(r.posts) != 0 || r.told() != 1 {
		t.Fatalf("%d posts more, %d remembered", len(r.posts), r.told())
	}
	r.wantOutcome(r.put(from, of(false)), effects.Ended, false)
	r.advance(100 * effects.Second)
	if r.requests() != 0 {
		t.Fatalf("%d requests are remembered for ever", r.requests())
	}
}

// The table of requests is bounded: told ones make room, open ones do not.
func TestRequestsAreBounded(t *testing.T) {
	r := newRig(t, nil)
	from := r.reserve(1, 0)
	named := func(id string, last bool) func(*engine.Put) {
		return func(p *engine.Put) { p.Request, p.Last = []byte(id), last }
	}
	a, b := r.put(from, named("a", true)), r.put(from, named("b", false))
	r.wantOutcome(r.put(from, named("c", false)), effects.TooMany, false)
	r.abort(a)
	r.wantOutcome(a, effects.Cancelled, false)
	c := r.put(from, named("c", false))
	r.wantOpen(b)
	r.wantOpen(c)
	if r.requests() != 2 {
		t.Fatalf("%d requests", r.requests())
	}
}

// A receiver that is full is left alone from that word on, also where a grant comes beside it that is to be given back.
func TestNothingIsAskedOfWhoIsFull(t *testing.T) {
	r := newRig(t, func(c *config) { c.BreakerTTL = effects.Second })
	first := r.put(r.reserve(1, 0), nil)
	r.shakeHands()
	e, _ := r.popRequest()
	second := r.put(r.reserve(1, 0), nil)
	refusal := grantReply()
	refusal.AllocFailed, refusal.Ext.Code = true, uint32(effects.NoMemory)
	r.replyTo(e, refusal)
	r.wantOutcome(first, effects.NoMemory, false)
	r.wantOutcome(second, effects.BackedOff, false)
	for len(r.opens) > 0 {
		r.completeOpen()
	}
	if _, m := r.popRequest(); len(m.Keys) != 0 || len(m.Ext.Abort) != 1 || len(r.sends) != 0 {
		t.Fatalf("it is told %+v, and %d more", m, len(r.sends))
	}
}

func (r *rig) requests() int { all, _ := r.commands.CountRequests(); return all }
func (r *rig) told() int     { _, told := r.commands.CountRequests(); return told }

// A breaker is its peer's, not a flow's: what another flow learns ends who waits here, when the peer is looked at next.
func TestAnotherFlowOpensTheBreaker(t *testing.T) {
	r := newRig(t, func(c *config) { c.BreakerTTL = effects.Second })
	first := r.put(r.reserve(1, 0), nil)
	r.shakeHands()
	asked, _ := r.popRequest()
	second := r.put(r.reserve(1, 0), nil)
	r.runStep(func(e *flow.Env) {
		e.Breakers.Trip(e.Now, link.PeerAddr(peer), effects.NoMemory, "", false, 0)
		r.wantOpen(second)
		to := e.Links.AcquirePeer(&e.Env, link.PeerAddr(peer))
		r.source.OnSignal(e, kernel.Ref{Subject: to}, flow.Signal{Kind: flow.PeerChanged})
		e.Links.ReleasePeer(to)
	})
	r.wantOutcome(second, effects.BackedOff, false)
	r.wantOpen(first) // What was sent ends by its own answer.
	r.replyTo(asked, grantReply(0))
	r.completeTransfer(pop(r, &r.transfers), effects.OK, true)
	r.wantOutcome(first, effects.OK, false)
}
