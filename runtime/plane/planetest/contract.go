package planetest

import (
	"bytes"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

const (
	pages     = 64
	pageBytes = 96<<10 + 24 // Not a multiple of any system page, hold or buffer.
)

// A pair is two nodes with a link from a to b.
type pair struct {
	a, b *Node
	link effects.Link
}

func newPair(tb testing.TB, open plane.Opener) pair {
	tb.Helper()
	p := pair{a: OpenNode(tb, open, 1, pages, pageBytes), b: OpenNode(tb, open, 2, pages, pageBytes)}
	p.link = p.a.Import(tb, p.b.Inc, p.b.Plane.Blob())
	return p
}

// newPush prepares a push of count whole pages, beginning at page first, to the same pages of b.
func (p pair) newPush(first, count int) Push {
	from := p.a.PublishPages(first, count, pageBytes)
	for _, page := range from {
		fillPattern(p.a.Pool.Bytes(page), uint64(page.Index)<<32|uint64(page.Generation))
	}
	grant, into := p.b.GrantWrite(p.a.Inc, first, count, pageBytes)
	return p.pushTo(grant, from, into)
}

func (p pair) pushTo(grant effects.GrantID, from, into []effects.Page) Push {
	return Push{To: p.b.Inc, Link: p.link, Grant: grant, From: from, Into: into, Buffer: p.b.Pool.Buffer().ID}
}

func (p pair) wantArrived(tb testing.TB, push Push) {
	tb.Helper()
	for i := range push.From {
		if !bytes.Equal(p.a.Pool.Bytes(push.From[i]), p.b.Pool.Bytes(push.Into[i])) {
			tb.Fatalf("page %d differs from what was pushed", push.Into[i].Index)
		}
	}
}

// wantEnd runs a push that must end with code, and waits until it is settled.
func (p pair) wantEnd(tb testing.TB, push Push, code effects.Code) {
	tb.Helper()
	done := p.a.AwaitDone(tb, p.a.StartPush(push))
	if done.Code != code || code == effects.OK && !done.Settled {
		tb.Fatalf("transfer ended as %s, settled %v; want %s", done.Code, done.Settled, code)
	}
	p.awaitSettled(tb, done)
}

// revokeGrant revokes a grant and waits until the revocation is complete.
func (p pair) revokeGrant(tb testing.TB, grant effects.GrantID) {
	tb.Helper()
	p.b.Pool.Revoke(grant)
	AwaitEvent(tb, p.b, func(e *effects.Revoked) bool { return e.Grant == grant })
}

// Run runs the whole suite for fenced planes.
func Run(t *testing.T, open plane.Opener) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, plane.Opener)
	}{
		{"pushes arrive byte for byte", pushesArrive},
		{"pages are put together byte for byte", gathersArrive},
		{"what is put together is checked", gathersAreChecked},
		{"many transfers at once", manyAtOnce},
		{"both directions", bothDirections},
		{"a revoked grant refuses", revokedRefuses},
		{"a landed page refuses", landedRefuses},
		{"claims are checked", claimsAreChecked},
		{"links are checked", linksAreChecked},
		{"a forged import is refused", forgedImport},
		{"a peer is lost with its last link", lostOnce},
		{"done waits for confirm", doneWaitsForConfirm},
		{"expired before it began", expiredPush},
		{"cancel", cancelledPushes},
		{"drop ends transfers", dropEnds},
		{"the peer closes", peerCloses},
		{"closing ends transfers", closingEnds},
		{"revoke during pushes", revokeDuringPushes},
		{"reads arrive byte for byte", readsArrive},
		{"many reads at once", manyReads},
		{"reads beside pushes", readsBesidePushes},
		{"reads are checked", readsAreChecked},
		{"cancelled reads", readsAreCancelled},
		{"drop ends reads", dropEndsReads},
		{"the owner of read pages closes", ownerCloses},
		{"closing ends reads", readerCloses},
		{"revoke during reads", revokeDuringReads},
		{"garbage harms nobody", garbageIsRefused},
		{"scenarios", playScenarios},
		{"the target is killed", targetKilled},
		{"the initiator is killed", initiatorKilled},
		{"the target is stopped", targetStopped},
		{"the owner of read pages is killed", ownerKilled},
		{"the reader is killed", readerKilled},
		{"the reader is stopped", readerStopped},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}

func pushesArrive(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	for round := range 4 {
		push := p.newPush(round, pages-round)
		p.wantEnd(t, push, effects.OK)
		p.wantArrived(t, push)
		landed := AwaitEvent(t, p.b, func(e *effects.Landed) bool { return e.Grant == push.Grant })
		if !landed.Complete || landed.Peer != p.a.Inc || len(landed.Pages) != len(push.Into) {
			t.Fatalf("landed: complete %v, %d pages of %d, peer %x", landed.Complete, len(landed.Pages), len(push.Into),
				landed.Peer)
		}
		for i, page := range landed.Pages {
			if page != push.Into[i] {
				t.Fatalf("landed page %+v; granted was %+v", page, push.Into[i])
			}
		}
		p.revokeGrant(t, push.Grant) // Pages that have landed are not affected.
	}
}

func manyAtOnce(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	var all []Push
	var corrs []effects.Corr
	for i := range pages / 4 {
		all = append(all, p.newPush(4*i, 4))
	}
	for _, push := range all {
		corrs = append(corrs, p.a.StartPush(push))
	}
	for i, push := range all {
		if done := p.a.AwaitDone(t, corrs[i]); done.Code != effects.OK {
			t.Fatalf("transfer %d ended as %s", i, done.Code)
		}
		p.wantArrived(t, push)
	}
}

func bothDirections(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	back := pair{a: p.b, b: p.a, link: p.b.Import(t, p.a.Inc, p.a.Plane.Blob())}
	there, here := p.newPush(0, pages/2), back.newPush(pages/2, pages/2)
	x, y := p.a.StartPush(there), p.b.StartPush(here)
	if one, two := p.a.AwaitDone(t, x).Code, p.b.AwaitDone(t, y).Code; one != effects.OK || two != effects.OK {
		t.Fatalf("ended as %s and %s", one, two)
	}
	p.wantArrived(t, there)
	back.wantArrived(t, here)
}

func revokedRefuses(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	push := p.newPush(0, 4)
	p.revokeGrant(t, push.Grant)
	before := bytes.Clone(p.b.Pool.Bytes(push.Into[0]))
	p.wantEnd(t, push, effects.Withdrawn)
	if !bytes.Equal(before, p.b.Pool.Bytes(push.Into[0])) {
		t.Fatal("a revoked page was stored into")
	}
	if n := CountEvents(p.b, func(*effects.Landed) bool { return true }); n != 0 {
		t.Fatalf("%d landings of a push that was refused", n)
	}
}

func landedRefuses(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	push := p.newPush(0, 2)
	some := push
	some.From, some.Into = push.From[:1], push.Into[:1]
	p.wantEnd(t, some, effects.OK)
	p.wantEnd(t, push, effects.Withdrawn) // Page 0 has landed, so the whole batch is refused.
	some.From, some.Into = push.From[1:], push.Into[1:]
	p.wantEnd(t, some, effects.OK)
}

func claimsAreChecked(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	good := p.newPush(0, 4)
	change := func(f func(*Push)) Push {
		q := good
		q.From, q.Into = append([]effects.Page(nil), good.From...), append([]effects.Page(nil), good.Into...)
		f(&q)
		return q
	}
	p.wantEnd(t, change(func(q *Push) { q.Into[3].Generation++ }), effects.Stale)
	p.wantEnd(t, change(func(q *Push) { q.Grant += 7 }), effects.Withdrawn)
	p.wantEnd(t, change(func(q *Push) { q.Into[2].Index = 9 }), effects.Withdrawn)
	p.wantEnd(t, change(func(q *Push) { q.Into[2].Index = pages }), effects.Invalid)
	p.wantEnd(t, change(func(q *Push) { q.From[1].Length-- }), effects.Mismatch)
	p.wantEnd(t, change(func(q *Push) { q.Into[1] = q.Into[0] }), effects.Refused)
	p.wantEnd(t, change(func(q *Push) { q.Buffer[3]++ }), effects.Stale)

	short, into := p.b.GrantWrite(p.a.Inc, 10, 1, 100)
	p.wantEnd(t, p.pushTo(short, p.a.PublishPages(10, 1, 101), into), effects.TooLarge)
	foreign, into := p.b.GrantWrite(effects.Incarnation{9}, 20, 1, 100)
	p.wantEnd(t, p.pushTo(foreign, p.a.PublishPages(20, 1, 100), into), effects.Refused)
	bearer, into := p.b.GrantWrite(effects.Incarnation{}, 30, 1, 100)
	p.wantEnd(t, p.pushTo(bearer, p.a.PublishPages(30, 1, 100), into), effects.Withdrawn)
	p.revokeGrant(t, bearer)

	p.wantEnd(t, good, effects.OK) // All refused pushes left the grant as it was.
	p.wantArrived(t, good)
}

func linksAreChecked(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	push := p.newPush(0, 1)
	other := push
	other.To[3]++
	p.wantEnd(t, other, effects.Stale)
	other = push
	other.Link += 100
	p.wantEnd(t, other, effects.PeerLost)

	wrong := p.b.Inc
	wrong[1]++
	if e := p.a.TryImport(t, wrong, p.b.Plane.Blob()); e.Code != effects.Stale {
		t.Fatalf("import of another incarnation ended as %s", e.Code)
	}
	for _, c := range []struct {
		at   int
		want effects.Code
	}{{0, effects.Malformed}, {1, effects.Malformed}, {len(p.b.Plane.Blob()), effects.Refused}} {
		blob := NewInvitation(p.b.Plane.Name(), p.b.Plane.Blob(), p.a.Inc, p.b.Inc)
		blob[c.at] ^= 1
		if e := p.a.ImportAs(t, p.a.Inc, p.b.Inc, blob); e.Code != c.want {
			t.Fatalf("import with byte %d of the blob changed ended as %s; want %s", c.at, e.Code, c.want)
		}
	}
	if e := p.a.ImportAs(t, p.a.Inc, p.b.Inc, nil); e.Code != effects.Malformed {
		t.Fatalf("import without a blob ended as %s", e.Code)
	}
	p.wantEnd(t, push, effects.OK)
}

func doneWaitsForConfirm(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	p.b.OnLanded(nil)
	push := p.newPush(0, 3)
	corr := p.a.StartPush(push)
	landed := AwaitEvent(t, p.b, func(*effects.Landed) bool { return true })
	if n := CountEvents(p.a, func(e *effects.TransferDone) bool { return e.Corr == corr }); n != 0 {
		t.Fatal("done before the target confirmed")
	}
	p.b.Plane.Confirm(landed.Landing+1000, effects.OK) // Not a landing of this plane, so it is ignored.
	p.b.Plane.Confirm(landed.Landing, effects.Faulted)
	p.b.Plane.Confirm(landed.Landing, effects.OK) // A second confirmation is ignored.
	if done := p.a.AwaitDone(t, corr); done.Code != effects.Faulted || done.At == 0 {
		t.Fatalf("ended as %s at %d", done.Code, done.At)
	}
}

func expiredPush(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	push := p.newPush(0, 1)
	p.a.Plane.Transfer(&effects.Transfer{Corr: 900, Link: p.link, Peer: p.b.Inc, Grant: push.Grant,
		NotAfter: plane.Now() - 1,
		Pairs: []effects.Pair{{Local: push.From[0], Remote: effects.RemotePage{Buffer: push.Buffer, Index: push.Into[0].Index,
			Generation: push.Into[0].Generation}}}})
	if done := p.a.AwaitDone(t, 900); done.Code != effects.Expired || !done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
	p.wantEnd(t, push, effects.OK)
}
