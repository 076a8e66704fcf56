package link

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// A handshake goes open, hello, import, list; the lanes come only when somebody takes
// one, each is opened once, and carries one request at a time.
func TestHandshakeAndLanes(t *testing.T) {
	r := newRig(t)
	h := r.acquirePeer(receiverAddr)
	r.wantState(h, Opening)
	if e, _ := r.completeOpen(effects.OK); e.Channel != effects.ChannelInit || e.Addr != (effects.Addr{Host: "h1", Port: 11}) {
		t.Fatalf("opened %v to %v", e.Channel, e.Addr)
	}
	r.wantState(h, Greeting)
	init := r.answerSend(nil)
	r.wantState(h, Importing)
	if e := r.completeImport(effects.OK, 5); e.Plane != "shm" || string(e.Blob[:1]) != "s" || len(e.Blob) != 17 ||
		e.Us != ours || e.Peer != theirs {
		t.Fatalf("imported %s with %q of %x", e.Plane, e.Blob, e.Peer)
	}
	r.wantState(h, Listing)
	r.answerSend(nil)
	r.wantState(h, Ready)
	if len(r.closes) != 1 || r.closes[0] != init {
		t.Fatalf("closed %v; the init connection is %d and has done its work", r.closes, init)
	}
	if id, who := r.links.IncarnationOf(h).Link(); id != 5 || who != theirs || !r.links.IncarnationOf(h).HasExtensions() ||
		!r.links.IncarnationOf(h).AcceptsCommits() {
		t.Fatalf("link %d to %x", id, who)
	}
	if b, ok := r.links.IncarnationOf(h).FindBuffer(effects.BufferID{7, 2}); !ok || b.Pages != 4 || b.PageBytes != pageBytes {
		t.Fatalf("buffer %+v, %v", b, ok)
	}
	if _, ok := r.links.IncarnationOf(h).FindBuffer(effects.BufferID{7, 1}); ok {
		t.Fatal("a buffer of nobody was found")
	}

	takes := func(lane Lane) (c effects.Conn) {
		r.runStep(func(v *env.Env) { c = r.links.AcquireLane(v, h, lane) })
		return c
	}
	for _, lane := range []Lane{LaneAlloc, LaneCommit} {
		first := takes(lane)
		if first != 0 || takes(lane) != 0 || len(r.opens) != 1 {
			t.Fatalf("lane %d: %d opens for two that wait", lane, len(r.opens))
		}
		e, conn := r.completeOpen(effects.OK)
		if e.Channel != effects.ChannelAlloc || e.Addr.Port != 12 {
			t.Fatalf("lane %d opened %v to %v", lane, e.Channel, e.Addr)
		}
		if got := takes(lane); got != conn || takes(lane) != 0 {
			t.Fatalf("lane %d gave %d; it is %d, and free once", lane, got, conn)
		}
		r.releaseLane(h, lane, conn+100) // Another's answer frees nothing.
		if takes(lane) != 0 {
			t.Fatal("a lane was freed by an answer on another connection")
		}
		r.releaseLane(h, lane, conn)
		if takes(lane) != conn {
			t.Fatal("an answered lane is not free")
		}
		r.closes = nil
		r.runStep(func(v *env.Env) { r.links.CloseLane(v, h, lane, conn) })
		r.runStep(func(v *env.Env) { r.links.CloseLane(v, h, lane, conn) })
		if len(r.closes) != 1 {
			t.Fatalf("a lane was closed %d times", len(r.closes))
		}
		if takes(lane) != 0 {
			t.Fatal("a closed lane was given")
		}
		r.completeOpen(effects.OK)
	}
}

// The second plane is tried when the first does not come up; a peer of another life is
// greeted anew instead.
func TestPlanesInTurn(t *testing.T) {
	r := newRig(t)
	h := r.acquirePeer(receiverAddr)
	r.completeOpen(effects.OK)
	r.answerSend(nil)
	r.completeImport(effects.Faulted, 0)
	r.wantState(h, Importing)
	if e := r.completeImport(effects.OK, 6); e.Plane != "tcp" || string(e.Blob[:1]) != "t" {
		t.Fatalf("then imported %s with %q", e.Plane, e.Blob)
	}
	r.wantState(h, Listing)

	r = newRig(t)
	h = r.acquirePeer(receiverAddr)
	r.completeOpen(effects.OK)
	r.answerSend(nil)
	r.completeImport(effects.Stale, 0)
	r.wantState(h, Backoff)
	if len(r.imports) != 0 {
		t.Fatal("the next plane of a former life was tried")
	}
}

// Wherever a handshake fails, everything it made is given up, and after a delay it
// begins from the start as long as somebody wants it.
func TestEachStageCanFail(t *testing.T) {
	garbage := func([]byte) []byte { return []byte{0xC1} }
	steps := []struct {
		state State
		pass  func(*rig)
		fail  map[effects.Code]func(*rig)
	}{
		{Opening, func(r *rig) { r.completeOpen(effects.OK) }, map[effects.Code]func(*rig){
			effects.Unreachable: func(r *rig) { r.completeOpen(effects.Unreachable) },
		}},
		{Greeting, func(r *rig) { r.answerSend(nil) }, map[effects.Code]func(*rig){
			effects.Refused: func(r *rig) { r.answerSend(garbage) },
			effects.Closed: func(r *rig) {
				e := r.sends[0]
				r.runStep(func(v *env.Env) { r.links.OnUnanswered(v, r.closeCorr(e.Corr), effects.Closed) })
			},
		}},
		{Importing, func(r *rig) { r.completeImport(effects.OK, 9) }, map[effects.Code]func(*rig){
			effects.Unreachable: func(r *rig) { r.completeImport(effects.Faulted, 0); r.completeImport(effects.Faulted, 0) },
			effects.Stale:       func(r *rig) { r.completeImport(effects.Stale, 0) },
		}},
		{Listing, func(r *rig) { r.answerSend(nil) }, map[effects.Code]func(*rig){
			effects.Malformed: func(r *rig) { r.answerSend(garbage) },
			effects.PeerLost:  func(r *rig) { r.runStep(func(v *env.Env) { r.links.OnLinkLost(v, 9) }) },
		}},
		{Ready, nil, map[effects.Code]func(*rig){
			effects.PeerLost: func(r *rig) { r.runStep(func(v *env.Env) { r.links.OnLinkLost(v, 9) }) },
		}},
	}
	for at, step := range steps {
		fails := step.fail
		if step.state != Ready {
			fails[effects.Expired] = func(r *rig) {
				if waited := r.runNextTimer(); waited != replyTimeout {
					r.t.Fatalf("the stage waited %d ns", waited)
				}
			}
		}
		for code, fail := range fails {
			t.Run(fmt.Sprint(step.state, " ", code), func(t *testing.T) {
				r := newRig(t)
				h := r.acquirePeer(receiverAddr)
				for _, before := range steps[:at] {
					r.wantState(h, before.state)
					before.pass(r)
				}
				r.wantState(h, step.state)
				hadLink := step.state == Listing || step.state == Ready
				r.closes, r.drops = nil, nil
				fail(r)
				r.wantState(h, Backoff)
				if _, cause := r.links.Outbound(h).State(); cause != code {
					t.Fatalf("failed as %v", cause)
				}
				if hadConn := step.state == Greeting || step.state == Importing ||
					step.state == Listing; (len(r.closes) > 0) != hadConn {
					t.Fatalf("closed %v", r.closes)
				}
				if hadLink != (len(r.drops) > 0) {
					t.Fatalf("dropped %v", r.drops)
				}
				if id, who := r.links.IncarnationOf(h).Link(); id != 0 || who != (effects.Incarnation{}) {
					t.Fatalf("link %d to %x is left", id, who)
				}
				r.opens, r.sends, r.bodies = nil, nil, nil
				r.runNextTimer()
				r.wantState(h, Opening)
				if len(r.opens) != 1 {
					t.Fatalf("%d opens of the next try", len(r.opens))
				}
			})
		}
	}
}

// A server with another identity between two requests of a handshake is a process that has replaced the first, so the
// handshake is soon repeated.
func TestReplacedServerIsGreetedSoon(t *testing.T) {
	r := newRig(t)
	h := r.acquirePeer(receiverAddr)
	r.completeOpen(effects.OK)
	r.answerAs(0xA)
	r.completeImport(effects.OK, 1)
	r.answerAs(0xB)
	if gate, code := r.links.Outbound(h).Gate(); gate != GateShut || code != effects.Stale {
		t.Fatalf("the gate is %d because of %v", gate, code)
	}
	if waited := r.runNextTimer(); waited > backoffMin {
		t.Fatalf("the next hello is sent after %v", waited)
	}
	r.completeOpen(effects.OK)
	r.answerAs(0xB)
	r.completeImport(effects.OK, 2)
	r.answerAs(0xB)
	if gate, _ := r.links.Outbound(h).Gate(); gate != GateOpen {
		t.Fatalf("the gate is %d after the second handshake", gate)
	}
}

// Nobody is left who wants it: then a failed peer is not tried again.
func TestUnwantedIsNotRetried(t *testing.T) {
	r := newRig(t)
	h := r.acquirePeer(receiverAddr)
	r.completeOpen(effects.Unreachable)
	r.links.ReleasePeer(h)
	r.runNextTimer()
	r.wantState(h, Idle)
	if len(r.opens) != 0 {
		t.Fatal("a peer that nobody wants was tried")
	}
	if r.acquirePeer(receiverAddr) != h || len(r.opens) != 1 {
		t.Fatal("the next one who wants it did not find it")
	}
}

// Delays grow twofold up to the bound, each drawn from its upper half; success ends it.
func TestBackoff(t *testing.T) {
	r := newRig(t)
	h := r.acquirePeer(receiverAddr)
	full := backoffMin
	distinct := map[effects.Duration]bool{}
	for range 12 {
		r.completeOpen(effects.Unreachable)
		r.wantState(h, Backoff)
		waited := r.runNextTimer()
		if waited < full/2 || waited > full {
			t.Fatalf("waited %d ns; want %d to %d", waited, full/2, full)
		}
		distinct[waited-full/2] = true
		full = min(2*full, backoffMax)
	}
	if len(distinct) < 6 {
		t.Errorf("12 delays have only %d different parts that are drawn", len(distinct))
	}
	r.completeOpen(effects.OK)
	r.answerSend(nil)
	r.completeImport(effects.OK, 3)
	r.answerSend(nil)
	r.runStep(func(v *env.Env) { r.links.OnLinkLost(v, 3) })
	if waited := r.runNextTimer(); waited > backoffMin {
		t.Fatalf("after a success the first delay is %d ns", waited)
	}
}

// What was asked for by an attempt that is over is given back when it comes after all.
func TestCompletionsOfFormerAttempts(t *testing.T) {
	r := newRig(t)
	h := r.acquirePeer(receiverAddr)
	late := r.opens[0]
	r.runNextTimer() // The Open takes too long.
	r.runNextTimer() // Again.
	r.opens = r.opens[1:]
	r.runStep(func(v *env.Env) {
		r.links.OnOpened(v, r.closeCorr(late.Corr), &effects.Opened{Corr: late.Corr, Conn: 77})
	})
	if len(r.closes) != 1 || r.closes[0] != 77 {
		t.Fatalf("closed %v; want the connection of the first attempt", r.closes)
	}
	r.wantState(h, Opening)

	r.completeOpen(effects.OK)
	r.answerSend(nil)
	old := r.imports[0]
	r.imports = nil
	r.runNextTimer()
	r.runNextTimer()
	r.runStep(func(v *env.Env) {
		r.links.OnImported(v, r.closeCorr(old.Corr), &effects.Imported{Corr: old.Corr, Link: 66})
	})
	if len(r.drops) != 1 || r.drops[0] != 66 {
		t.Fatalf("dropped %v; want the link of the attempt before", r.drops)
	}
	r.wantState(h, Opening)

	r.completeOpen(effects.OK)
	answer := r.sends[0]
	r.runNextTimer()
	r.runStep(func(v *env.Env) {
		r.links.OnReplied(v, r.closeCorr(answer.Corr), &effects.Replied{Body: []byte("late")})
	})
	r.wantState(h, Backoff)
}

// A link that went down takes its lanes with it, those that are only being opened too.
func TestResetClosesLanes(t *testing.T) {
	r := newRig(t)
	h := r.shakeHands(4)
	r.runStep(func(v *env.Env) { r.links.AcquireLane(v, h, LaneAlloc) })
	_, alloc := r.completeOpen(effects.OK)
	r.runStep(func(v *env.Env) { r.links.AcquireLane(v, h, LaneCommit) })
	r.closes = nil
	r.runStep(func(v *env.Env) { r.links.OnLinkLost(v, 4) })
	if len(r.closes) != 1 || r.closes[0] != alloc || len(r.drops) != 1 {
		t.Fatalf("closed %v and dropped %v", r.closes, r.drops)
	}
	_, commit := r.completeOpen(effects.OK)
	if len(r.closes) != 2 || r.closes[1] != commit {
		t.Fatalf("closed %v; the lane that came too late is %d", r.closes, commit)
	}
	var c effects.Conn
	r.runStep(func(v *env.Env) { c = r.links.AcquireLane(v, h, LaneAlloc) })
	if c != 0 {
		t.Fatal("a lane of a peer in backoff was given")
	}
	r.runStep(func(v *env.Env) { r.links.OnLinkLost(v, 4) }) // Told again, or of nobody's: nothing.
	if len(r.drops) != 1 {
		t.Fatalf("dropped %v", r.drops)
	}
}

// Peers are told apart by host and ports, one by one; the table is bounded, and one
// that nobody wants makes room.
func TestPeersAreBounded(t *testing.T) {
	r := newRig(t)
	a, b := r.acquirePeer(PeerAddr{"h", 11, 1}), r.acquirePeer(PeerAddr{"h1", 1, 1})
	if a == b || r.acquirePeer(PeerAddr{"h", 11, 1}) != a {
		t.Fatal("peers whose addresses only look alike when joined are one")
	}
	if c := r.acquirePeer(PeerAddr{"h", 11, 2}); c != 0 {
		t.Fatalf("a third peer got %d in a table of %d", c, peersMax)
	}
	r.links.ReleasePeer(b)
	r.opens = nil
	for _, ok := r.links.NextChanged(); ok; _, ok = r.links.NextChanged() {
	}
	c := r.acquirePeer(PeerAddr{"h", 11, 2})
	if c == 0 || c == b || r.links.CountOutbound() != peersMax {
		t.Fatalf("got %d, with %d peers", c, r.links.CountOutbound())
	}
	if r.acquirePeer(PeerAddr{"h", 11, 1}) != a {
		t.Fatal("the peer that was wanted had to go")
	}
}

// A rank's inbound peers are bounded too. Who has pages here, or waits for some, keeps its
// place; of the others the one unseen for longest goes.
func TestInboundPeersAreBounded(t *testing.T) {
	r := newRig(t)
	busy := make([]uint32, r.links.CountClasses())
	admit := func(who effects.Incarnation) (ok bool) {
		r.now++
		r.runStep(func(v *env.Env) { ok = admitPeer(v, &r.links, who, busy) != 0 })
		return ok
	}
	meet := func(who effects.Incarnation) (class int, ok bool) {
		r.runStep(func(v *env.Env) {
			var code effects.Code
			class, code = r.links.IdentifyPeer(v, &effects.Received{}, who, r.links.cfg.Key.InboundName(who))
			ok = code == effects.OK
		})
		return class, ok
	}
	one, two, three := effects.Incarnation{0xA}, effects.Incarnation{0xB}, effects.Incarnation{0xC}
	if !admit(one) || !admit(two) || !admit(one) || r.links.CountInbound() != 2 {
		t.Fatalf("%d inbound peers", r.links.CountInbound())
	}
	class, ok := meet(one)
	if !ok || class < 1 || class >= r.links.CountClasses() {
		t.Fatalf("class %d of %d", class, r.links.CountClasses())
	}
	if _, known := meet(three); known {
		t.Fatal("a stranger is an inbound peer")
	}
	if !admit(three) {
		t.Fatal("nobody made room")
	}
	if _, known := meet(two); known {
		t.Fatal("the inbound peer unseen for longest stayed")
	}
	r.pools.GrantPages(r.pool, class, []uint32{pageBytes}, nil, kernel.Ref{})
	three3, _ := meet(three)
	r.pools.GrantPages(r.pool, three3, []uint32{pageBytes}, nil, kernel.Ref{})
	if admit(two) {
		t.Fatal("an inbound peer with pages had to go")
	}
	if _, known := meet(one); !known {
		t.Fatal("an inbound peer with pages is forgotten")
	}
}

// Who says hello in one name after the other takes no place of a peer that has spoken, but for one silent for long:
// then those who are new find room.
func TestHellosWithoutEndTakeNoGuestsPlace(t *testing.T) {
	r := newRig(t)
	busy := make([]uint32, r.links.CountClasses())
	hello := func(n int) (who effects.Incarnation) {
		r.now++
		who = effects.Incarnation{byte(n), byte(n >> 8), 1}
		r.runStep(func(v *env.Env) {
			if admitPeer(v, &r.links, who, busy) == 0 {
				t.Fatalf("hello %d finds no room", n)
			}
		})
		return who
	}
	known := func(who effects.Incarnation) bool { return hasInbound(&r.links, who) }
	honest := hello(0)
	r.runStep(func(v *env.Env) {
		r.links.IdentifyPeer(v, &effects.Received{}, honest, r.links.cfg.Key.InboundName(honest))
	})
	for i := range 100 {
		if last := hello(1 + i); !known(last) || !known(honest) {
			t.Fatalf("after %d hellos the peer that spoke is known: %v; who came last is: %v", i+1, known(honest), known(last))
		}
	}
	r.now = r.now.Add(spokeFor)
	before := hello(200)
	if hello(201); known(honest) || !known(before) {
		t.Fatalf("a peer silent for long is known: %v; who came since is: %v", known(honest), known(before))
	}
}

// A connection that is lost is its peer's alone: one to the init port takes the attempt with it, a lane nothing else.
func TestLostConnections(t *testing.T) {
	r := newRig(t)
	lost := func(conn effects.Conn) {
		r.runStep(func(v *env.Env) {
			if ref := r.conns.Find(conn); ref.Owner == kernel.OwnerLink {
				r.links.OnConnLost(v, ref)
			}
		})
	}
	h := r.acquirePeer(receiverAddr)
	_, init := r.completeOpen(effects.OK)
	lost(init + 7)
	r.wantState(h, Greeting)
	lost(init)
	r.wantState(h, Backoff)
	if len(r.closes) != 1 || r.closes[0] != init {
		t.Fatalf("closed: %v; want %d", r.closes, init)
	}
	lost(init) // Told again, or too late.
	r.runNextTimer()
	r.sends, r.bodies = nil, nil
	r.completeOpen(effects.OK)
	r.answerSend(nil)
	r.completeImport(effects.OK, 9)
	r.answerSend(nil)
	var lanes [Lanes]effects.Conn
	for i := range lanes {
		r.runStep(func(v *env.Env) { r.links.AcquireLane(v, h, Lane(i)) })
		_, lanes[i] = r.completeOpen(effects.OK)
	}
	lost(lanes[LaneCommit])
	r.wantState(h, Ready)
	p := r.links.Outbound(h)
	if p.lanes[LaneCommit].ID() != 0 || p.lanes[LaneAlloc].ID() != lanes[LaneAlloc] {
		t.Fatalf("lanes after the second was lost: %+v", p.lanes)
	}
}

// A hello of a connection that was given up may be read after the one of the newer connection. What comes on the newer
// one is its peer's word still; and a wrong stamp, which makes a true hello look old, passes over one hello only.
func TestOlderHellosTakeNoNewerOnesPlace(t *testing.T) {
	r := newRig(t)
	r.acquirePeer(receiverAddr)
	r.completeOpen(effects.OK)
	older := slices.Clone(r.bodies[0])
	for len(r.opens) == 0 { // It is given up, and tried anew.
		r.runNextTimer()
	}
	r.completeOpen(effects.OK)
	newer := slices.Clone(r.bodies[1])
	hear := func(conn effects.Conn, body []byte) []byte {
		r.runStep(func(v *env.Env) {
			r.peer.HandleInit(v, &effects.Received{Conn: conn, Channel: effects.ChannelInit, Request: 1, Body: body},
				make([]uint32, r.peer.CountClasses()))
		})
		return r.replies[len(r.replies)-1]
	}
	known := func(conn effects.Conn) bool {
		i := r.peer.viewInbound(nil)
		return i.findByConn(conn) != nil
	}
	hear(2, newer)
	hear(1, older)
	if !known(2) || known(1) {
		t.Errorf("the older connection is the peer's: %t; the newer one: %t", known(1), known(2))
	}
	hear(1, older)
	if !known(1) {
		t.Error("a peer whose newest stamp was wrong is passed over twice")
	}
}

// A host that invents names takes no more than its share of the rows: beyond it, its names replace each other, and no
// peer of another host. If none of them can be replaced, the hello is refused, and says why. A host without its share
// takes the row of a host that has more.
func TestNamesOfAHostReplaceEachOther(t *testing.T) {
	r := newRig(t) // It has two rows.
	busy := make([]uint32, r.links.CountClasses())
	hello := func(n byte, origin effects.Origin) (who effects.Incarnation) {
		r.now++
		who = effects.Incarnation{n, 1}
		r.runStep(func(v *env.Env) {
			i := r.links.viewInbound(v)
			i.admitPeer(who, origin, busy)
		})
		return who
	}
	want := func(when string, known, gone effects.Incarnation) {
		t.Helper()
		if !hasInbound(&r.links, known) || hasInbound(&r.links, gone) {
			t.Errorf("%s: the one that stays is known: %t, the other one: %t", when, hasInbound(&r.links, known), hasInbound(&r.links, gone))
		}
	}
	const liar, honest = 0xA, 0xB
	first, second := hello(1, liar), hello(2, liar)
	other := hello(3, honest)
	want("a new host", second, first)
	want("a new host", other, first)
	third := hello(4, liar) // It was seen before the peer of the other host was.
	want("a further name", other, second)
	want("a further name", third, second)
	r.runStep(func(v *env.Env) { busy[r.links.ClassByID(third)] = 1 })
	fourth := hello(5, liar)
	want("all names busy", other, fourth)
	r.runStep(func(v *env.Env) {
		q := initExchange{r.links.viewInbound(v), &effects.Received{Origin: liar}}
		if why := q.noRowReason(); why.Ours != "2, all in use, 1 of them by this sender's host, which may have 1," {
			t.Errorf("the reason is %q", why.Ours)
		}
		q.ev.Origin = 0xC
		if why := q.noRowReason(); why.Ours != "2, all in use," {
			t.Errorf("the reason for a host without a peer is %q", why.Ours)
		}
	})
	restarted := hello(6, honest)
	want("a restart of the other host", restarted, other)
}

// A peer counts against the Origin of its newest hello.
func TestPeerCountsAgainstItsNewestOrigin(t *testing.T) {
	r := newRig(t)
	busy := make([]uint32, r.links.CountClasses())
	who := effects.Incarnation{1, 1}
	for _, origin := range []effects.Origin{0xA, 0xB} {
		r.runStep(func(v *env.Env) {
			i := r.links.viewInbound(v)
			class := classOf(i.admitPeer(who, origin, busy))
			if v.Pools.OriginSlotOf(class) != v.Pools.FindOrigin(origin) {
				t.Errorf("the peer does not count against origin %x", origin)
			}
		})
	}
}

// A host that keeps half of the rows busy, or more, does not get the last eighth of them: another host finds a row.
func TestLastRowsAreForOtherHosts(t *testing.T) {
	for origin, want := range map[effects.Origin]int{0: 16, 0xA: 14} { // The driver does not know who has Origin 0.
		r := newRig(t)
		cfg := config(key1)
		cfg.PeersMax = 16
		r.links = New(cfg, 1)
		r.pools = memory.New(4, r.links.CountClasses(), prng.Shuffle{}, memory.PoolConfig{Pages: 4, ClassShare: 4})
		busy := slices.Repeat([]uint32{1}, r.links.CountClasses())
		r.runStep(func(v *env.Env) {
			i := r.links.viewInbound(v)
			for n := range byte(20) {
				i.admitPeer(effects.Incarnation{1, n}, origin, busy)
			}
			if r.links.CountInbound() != want {
				t.Errorf("a host with origin %x has %d of 16 rows; want %d", origin, r.links.CountInbound(), want)
			}
			q := initExchange{i, &effects.Received{Origin: origin}}
			if why := q.noRowReason(); origin != 0 && why.Ours != "16, of which this sender's host has 14 in use, and the rest is for others," {
				t.Errorf("the reason is %q", why.Ours)
			}
			if h := i.admitPeer(effects.Incarnation{2}, 0xB, busy); h == 0 && origin != 0 {
				t.Error("another host finds no row")
			}
		})
	}
}
