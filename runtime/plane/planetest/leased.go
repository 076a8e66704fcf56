package planetest

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

const (
	leasedPages     = 64
	leasedPageBytes = 32 << 10
)

// RunLeased runs the suite that every leased plane must pass. The suite corresponds to Run, without the promises that
// need a fence. Package contract checks both ends of each test.
func RunLeased(t *testing.T, open LeasedMaker) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, LeasedMaker)
	}{
		{"pushes and reads arrive byte for byte", leasedArrive},
		{"many transfers at once, both ways", leasedMany},
		{"transfers are checked", leasedChecked},
		{"links are checked", leasedLinks},
		{"a forged import is refused", leasedForged},
		{"expired before it began", leasedExpired},
		{"cancelled at any moment", leasedCancelled},
		{"drop ends transfers", leasedDrop},
		{"the peer closes", leasedPeerCloses},
		{"closing ends transfers", leasedCloses},
		{"a revoked grant ends, and its peer goes on", leasedRevoked},
		{"revoke while pushes are under way", leasedRevokedBusy},
		{"revoke without a link", leasedRevokedAlone},
		{"revoked long ago", leasedRevokedLongAgo},
		{"two pushes under one grant, as something ends", leasedHolders},
		{"two reads of the same pages", leasedReaders},
		{"pages lent in two lengths", leasedOverlaps},
		{"another link while one is busy", leasedBusy},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}

func leasedPair(t *testing.T, open LeasedMaker) *LeasedPair {
	t.Helper()
	return NewLeasedPair(t, open, leasedPages, leasedPageBytes)
}

func leasedArrive(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	for round := range 3 {
		push := p.Push(t, round, leasedPages-round)
		p.Ends(t, push, effects.OK)
		p.Arrived(t, push)
		read := p.Read(t, 0, leasedPages-round)
		p.Ends(t, read, effects.OK)
		p.Arrived(t, read)
	}
	// Pages that are not adjacent, and transfers of less than whole pages.
	push := p.Push(t, 0, leasedPages)
	for i := range push.Local {
		push.Remote[i].Index = uint32((i*5 + 3) % leasedPages)
	}
	p.Ends(t, push, effects.OK)
	p.Arrived(t, push)
	part := p.Push(t, 0, 2)
	for i := range part.Local {
		part.Local[i].Length, part.Remote[i].Length = 1000, 1000
	}
	kept := p.B.Bytes(t, effects.Page{Pool: p.B.Pool.ID(), Index: 1, Length: leasedPageBytes})
	p.Ends(t, part, effects.OK)
	after := p.B.Bytes(t, effects.Page{Pool: p.B.Pool.ID(), Index: 1, Length: leasedPageBytes})
	if string(after[1000:]) != string(kept[1000:]) || string(after[:1000]) == string(kept[:1000]) {
		t.Fatal("a push of part of a page did not store just that")
	}
}

func leasedMany(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	back := &LeasedPair{A: p.B, B: p.A, Link: p.B.Import(t, p.A.Inc, p.A.Plane.Blob())}
	type going struct {
		p    *LeasedPair
		m    Move
		corr effects.Corr
	}
	for range 3 {
		var all []going
		for i := range 8 {
			// Each transfer has pages of its own at both ends.
			for _, g := range []going{{p, p.Push(t, i*8, 2), 0}, {p, p.Read(t, i*8+2, 2), 0}, {back, back.Push(t, i*8+4, 2), 0},
				{back, back.Read(t, i*8+6, 2), 0}} {
				g.corr = g.p.A.Start(g.m)
				all = append(all, g)
			}
		}
		for _, g := range all {
			if done := g.p.A.Done(t, g.corr); done.Code != effects.OK {
				t.Fatalf("ended as %s", done.Code)
			}
			g.p.Arrived(t, g.m)
		}
	}
}

func leasedChecked(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	good := p.Push(t, 0, 2)
	for _, c := range []struct {
		want   effects.Code
		change func(*Move)
	}{
		{effects.Stale, func(m *Move) { m.To[3]++ }},
		{effects.PeerLost, func(m *Move) { m.Link += 100 }},
		{effects.Stale, func(m *Move) { m.Buffer[3]++ }},
		{effects.Invalid, func(m *Move) { m.Remote[1].Index = leasedPages }},
		{effects.Invalid, func(m *Move) { m.Local, m.Remote = nil, nil }},
	} {
		m := good
		m.Local, m.Remote = append([]effects.Page(nil), good.Local...), append([]effects.Page(nil), good.Remote...)
		c.change(&m)
		if done := p.Ends(t, m, c.want); !done.Settled {
			t.Errorf("%s is not settled", c.want)
		}
	}
	p.A.Do(&effects.Cancel{Corr: 12345}) // Not a transfer of this plane, so the cancel is ignored.
	p.Ends(t, good, effects.OK)
	p.Arrived(t, good)
}

func leasedLinks(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	wrong := p.B.Inc
	wrong[1]++
	if e := p.A.TryImport(t, wrong, p.B.Plane.Blob()); e.Code != effects.Stale {
		t.Fatalf("import of another incarnation ended as %s", e.Code)
	}
	for _, c := range []struct {
		at   int
		want effects.Code
	}{{0, effects.Malformed}, {1, effects.Malformed}, {len(p.B.Plane.Blob()), effects.Refused}} {
		blob := Invite(p.B.Plane.Name(), p.B.Plane.Blob(), p.A.Inc, p.B.Inc)
		blob[c.at] ^= 1
		if e := p.A.Introduce(t, p.A.Inc, p.B.Inc, blob); e.Code != c.want {
			t.Fatalf("import with byte %d of the blob changed ended as %s; want %s", c.at, e.Code, c.want)
		}
	}
	if e := p.A.Introduce(t, p.A.Inc, p.B.Inc, nil); e.Code != effects.Malformed {
		t.Fatalf("import without a blob ended as %s", e.Code)
	}
	p.Ends(t, p.Push(t, 0, 1), effects.OK)
}

func leasedExpired(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	push := p.Push(t, 0, 4)
	late := push
	late.NotAfter = plane.Now() - 1
	before := p.B.Bytes(t, push.Remote[0])
	if done := p.Ends(t, late, effects.Expired); !done.Settled {
		t.Fatal("what never began is not settled")
	}
	if string(p.B.Bytes(t, push.Remote[0])) != string(before) {
		t.Fatal("a push after its time stored something")
	}
	p.Ends(t, push, effects.OK)
}

// A transfer that is cancelled at any moment ends once, and when the transfer is settled, the pages belong to their
// owners again, at both ends.
func leasedCancelled(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	for round := range 12 {
		m := p.Push(t, 0, leasedPages/2)
		if round%2 == 1 {
			m = p.Read(t, 0, leasedPages/2)
		}
		other := p.Push(t, leasedPages/2, leasedPages/2) // A transfer that is not cancelled.
		corr, innocent := p.A.Start(m), p.A.Start(other)
		for range round * 2000 { // An arbitrary point of the transfer.
			_ = plane.Now()
		}
		p.A.Do(&effects.Cancel{Corr: corr})
		p.A.Do(&effects.Cancel{Corr: corr})
		if done := p.A.Done(t, corr); done.Code != effects.OK && done.Code != effects.Cancelled {
			t.Fatalf("round %d ended as %s", round, done.Code)
		}
		into := p.B.life(0, leasedPages/2)
		if m.Read {
			into = p.A.life(0, leasedPages/2)
		}
		owner := p.B
		if m.Read {
			owner = p.A
		}
		for _, page := range into {
			owner.Fill(t, page)
		}
		if done := p.A.Done(t, innocent); done.Code != effects.OK {
			t.Fatalf("round %d: another transfer ended as %s", round, done.Code)
		}
		p.Arrived(t, other)
		owner.Holds(t, into, owner, into)
	}
}

func leasedDrop(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	push := p.Push(t, 0, leasedPages)
	corr := p.A.Start(push)
	p.A.Drop(t, p.Link)
	if done := p.A.Done(t, corr); done.Code != effects.PeerLost && done.Code != effects.OK {
		t.Fatalf("ended as %s", done.Code)
	}
	Await(t, p.B, func(e *effects.LinkLost) bool { return e.Peer == p.A.Inc && e.Link == 0 })
	p.Ends(t, push, effects.PeerLost)

	p.Link = p.A.Import(t, p.B.Inc, p.B.Plane.Blob())
	again := p.Push(t, 8, 4)
	p.Ends(t, again, effects.OK)
	p.Arrived(t, again)
}

func leasedPeerCloses(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	corr := p.A.Start(p.Push(t, 0, leasedPages))
	p.B.Close(t)
	if done := p.A.Done(t, corr); done.Code != effects.PeerLost && done.Code != effects.OK {
		t.Fatalf("ended as %s", done.Code)
	}
	Await(t, p.A, func(e *effects.LinkLost) bool { return e.Link == p.Link && e.Peer == p.B.Inc })
	p.Ends(t, p.Push(t, 0, 1), effects.PeerLost)
	p.A.Drop(t, p.Link)
	if e := p.A.TryImport(t, p.B.Inc, p.B.Plane.Blob()); e.Code != effects.Unreachable {
		t.Fatalf("import of a plane that is gone ended as %s", e.Code)
	}
}

func leasedCloses(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	corr := p.A.Start(p.Push(t, 0, leasedPages))
	p.A.Close(t)
	if done := p.A.Done(t, corr); done.Code != effects.Closed && done.Code != effects.OK {
		t.Fatalf("ended as %s", done.Code)
	}
	p.Ends(t, p.Push(t, 60, 1), effects.Closed)
	if e := p.A.TryImport(t, p.B.Inc, p.B.Plane.Blob()); e.Code != effects.Closed {
		t.Fatalf("import after Close ended as %s", e.Code)
	}
}

func leasedRevoked(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	kept := p.Push(t, 8, 8)
	for range 3 {
		push := p.Push(t, 0, 8)
		p.B.Revoke(t, push.Grant)
		mine := p.B.life(0, 8)
		for _, page := range mine {
			p.B.Fill(t, page)
		}
		p.Ends(t, push, effects.Withdrawn)
		p.B.Holds(t, mine, p.B, mine)
	}
	p.Ends(t, kept, effects.OK)
	p.Arrived(t, kept)
}

// After Revoked a page belongs to its owner: no byte of the page changes any more (M4). Pushes under grants that stand
// arrive.
func leasedRevokedBusy(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	for round := range 6 {
		push, other := p.Push(t, 0, leasedPages/2), p.Push(t, leasedPages/2, leasedPages/2)
		corr, innocent := p.A.Start(push), p.A.Start(other)
		for range round * 3000 { // Some point of the push.
			_ = plane.Now()
		}
		p.B.Revoke(t, push.Grant)
		mine := p.B.life(0, leasedPages/2)
		for _, page := range mine {
			p.B.Fill(t, page)
		}
		if done := p.A.Done(t, corr); done.Code != effects.OK && done.Code != effects.Withdrawn {
			t.Fatalf("round %d ended as %s", round, done.Code)
		}
		if done := p.A.Done(t, innocent); done.Code != effects.OK {
			t.Fatalf("round %d: a push under another grant ended as %s", round, done.Code)
		}
		p.Arrived(t, other)
		p.B.Holds(t, mine, p.B, mine)
	}
}

func leasedRevokedAlone(t *testing.T, open LeasedMaker) {
	b := OpenLeased(t, open, 2, leasedPages, leasedPageBytes)
	for _, peer := range []effects.Incarnation{{9}, {}} {
		grant, _ := b.Grant(peer, 0, 4)
		b.Revoke(t, grant)
	}
}

// A revoked grant stays revoked even if so many grants were revoked since that the pool no longer records each grant
// of that time (M4).
func leasedRevokedLongAgo(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	old := p.Push(t, 0, 4)
	p.B.Revoke(t, old.Grant)
	mine := p.B.life(0, 4)
	for _, page := range mine {
		p.B.Fill(t, page)
	}
	for range 1100 {
		grant, _ := p.B.Grant(effects.Incarnation{9}, 32, 1)
		p.B.Revoke(t, grant)
	}
	last := p.Push(t, 8, 4)
	p.B.Revoke(t, last.Grant)
	fresh := p.Push(t, 16, 4)
	switch code := p.A.Done(t, p.A.Start(fresh)).Code; code {
	case effects.OK:
	// The grant was given before the initiator learned of the last revocation, of which the initiator knows by now.
	case effects.Withdrawn:
		fresh = p.Push(t, 20, 4)
		p.Ends(t, fresh, effects.OK)
	default:
		t.Fatalf("a push under a grant that stands ended as %s", code)
	}
	p.Arrived(t, fresh)
	p.Ends(t, old, effects.Withdrawn)
	p.B.Holds(t, mine, p.B, mine)
}
