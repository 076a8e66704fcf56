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
		push := p.NewPush(t, round, leasedPages-round)
		p.WantEnd(t, push, effects.OK)
		p.WantArrived(t, push)
		read := p.NewRead(t, 0, leasedPages-round)
		p.WantEnd(t, read, effects.OK)
		p.WantArrived(t, read)
	}
	// Pages that are not adjacent, and transfers of less than whole pages.
	push := p.NewPush(t, 0, leasedPages)
	for i := range push.Local {
		push.Remote[i].Index = uint32((i*5 + 3) % leasedPages)
	}
	p.WantEnd(t, push, effects.OK)
	p.WantArrived(t, push)
	part := p.NewPush(t, 0, 2)
	for i := range part.Local {
		part.Local[i].Length, part.Remote[i].Length = 1000, 1000
	}
	kept := p.B.ReadPage(t, effects.Page{Pool: p.B.Pool.ID(), Index: 1, Length: leasedPageBytes})
	p.WantEnd(t, part, effects.OK)
	after := p.B.ReadPage(t, effects.Page{Pool: p.B.Pool.ID(), Index: 1, Length: leasedPageBytes})
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
			for _, g := range []going{{p, p.NewPush(t, i*8, 2), 0}, {p, p.NewRead(t, i*8+2, 2), 0}, {back, back.NewPush(t, i*8+4, 2), 0},
				{back, back.NewRead(t, i*8+6, 2), 0}} {
				g.corr = g.p.A.StartTransfer(g.m)
				all = append(all, g)
			}
		}
		for _, g := range all {
			if done := g.p.A.AwaitDone(t, g.corr); done.Code != effects.OK {
				t.Fatalf("ended as %s", done.Code)
			}
			g.p.WantArrived(t, g.m)
		}
	}
}

func leasedChecked(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	good := p.NewPush(t, 0, 2)
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
		if done := p.WantEnd(t, m, c.want); !done.Settled {
			t.Errorf("%s is not settled", c.want)
		}
	}
	p.A.Do(&effects.Cancel{Corr: 12345}) // Not a transfer of this plane, so the cancel is ignored.
	p.WantEnd(t, good, effects.OK)
	p.WantArrived(t, good)
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
		blob := NewInvitation(p.B.Plane.Name(), p.B.Plane.Blob(), p.A.Inc, p.B.Inc)
		blob[c.at] ^= 1
		if e := p.A.ImportAs(t, p.A.Inc, p.B.Inc, blob); e.Code != c.want {
			t.Fatalf("import with byte %d of the blob changed ended as %s; want %s", c.at, e.Code, c.want)
		}
	}
	if e := p.A.ImportAs(t, p.A.Inc, p.B.Inc, nil); e.Code != effects.Malformed {
		t.Fatalf("import without a blob ended as %s", e.Code)
	}
	p.WantEnd(t, p.NewPush(t, 0, 1), effects.OK)
}

func leasedExpired(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	push := p.NewPush(t, 0, 4)
	late := push
	late.NotAfter = plane.Now() - 1
	before := p.B.ReadPage(t, push.Remote[0])
	if done := p.WantEnd(t, late, effects.Expired); !done.Settled {
		t.Fatal("what never began is not settled")
	}
	if string(p.B.ReadPage(t, push.Remote[0])) != string(before) {
		t.Fatal("a push after its time stored something")
	}
	p.WantEnd(t, push, effects.OK)
}

// A transfer that is cancelled at any moment ends once, and when the transfer is settled, the pages belong to their
// owners again, at both ends.
func leasedCancelled(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	for round := range 12 {
		m := p.NewPush(t, 0, leasedPages/2)
		if round%2 == 1 {
			m = p.NewRead(t, 0, leasedPages/2)
		}
		other := p.NewPush(t, leasedPages/2, leasedPages/2) // A transfer that is not cancelled.
		corr, innocent := p.A.StartTransfer(m), p.A.StartTransfer(other)
		for range round * 2000 { // An arbitrary point of the transfer.
			_ = plane.Now()
		}
		p.A.Do(&effects.Cancel{Corr: corr})
		p.A.Do(&effects.Cancel{Corr: corr})
		if done := p.A.AwaitDone(t, corr); done.Code != effects.OK && done.Code != effects.Cancelled {
			t.Fatalf("round %d ended as %s", round, done.Code)
		}
		into := p.B.newPages(0, leasedPages/2)
		if m.Read {
			into = p.A.newPages(0, leasedPages/2)
		}
		owner := p.B
		if m.Read {
			owner = p.A
		}
		for _, page := range into {
			owner.FillPage(t, page)
		}
		if done := p.A.AwaitDone(t, innocent); done.Code != effects.OK {
			t.Fatalf("round %d: another transfer ended as %s", round, done.Code)
		}
		p.WantArrived(t, other)
		owner.WantContent(t, into, owner, into)
	}
}

func leasedDrop(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	push := p.NewPush(t, 0, leasedPages)
	corr := p.A.StartTransfer(push)
	p.A.DropLink(t, p.Link)
	if done := p.A.AwaitDone(t, corr); done.Code != effects.PeerLost && done.Code != effects.OK {
		t.Fatalf("ended as %s", done.Code)
	}
	AwaitEvent(t, p.B, func(e *effects.LinkLost) bool { return e.Peer == p.A.Inc && e.Link == 0 })
	p.WantEnd(t, push, effects.PeerLost)

	p.Link = p.A.Import(t, p.B.Inc, p.B.Plane.Blob())
	again := p.NewPush(t, 8, 4)
	p.WantEnd(t, again, effects.OK)
	p.WantArrived(t, again)
}

func leasedPeerCloses(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	corr := p.A.StartTransfer(p.NewPush(t, 0, leasedPages))
	p.B.Close(t)
	if done := p.A.AwaitDone(t, corr); done.Code != effects.PeerLost && done.Code != effects.OK {
		t.Fatalf("ended as %s", done.Code)
	}
	AwaitEvent(t, p.A, func(e *effects.LinkLost) bool { return e.Link == p.Link && e.Peer == p.B.Inc })
	p.WantEnd(t, p.NewPush(t, 0, 1), effects.PeerLost)
	p.A.DropLink(t, p.Link)
	if e := p.A.TryImport(t, p.B.Inc, p.B.Plane.Blob()); e.Code != effects.Unreachable {
		t.Fatalf("import of a plane that is gone ended as %s", e.Code)
	}
}

func leasedCloses(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	corr := p.A.StartTransfer(p.NewPush(t, 0, leasedPages))
	p.A.Close(t)
	if done := p.A.AwaitDone(t, corr); done.Code != effects.Closed && done.Code != effects.OK {
		t.Fatalf("ended as %s", done.Code)
	}
	p.WantEnd(t, p.NewPush(t, 60, 1), effects.Closed)
	if e := p.A.TryImport(t, p.B.Inc, p.B.Plane.Blob()); e.Code != effects.Closed {
		t.Fatalf("import after Close ended as %s", e.Code)
	}
}

func leasedRevoked(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	kept := p.NewPush(t, 8, 8)
	for range 3 {
		push := p.NewPush(t, 0, 8)
		p.B.RevokeGrant(t, push.Grant)
		mine := p.B.newPages(0, 8)
		for _, page := range mine {
			p.B.FillPage(t, page)
		}
		p.WantEnd(t, push, effects.Withdrawn)
		p.B.WantContent(t, mine, p.B, mine)
	}
	p.WantEnd(t, kept, effects.OK)
	p.WantArrived(t, kept)
}

// After Revoked a page belongs to its owner: no byte of the page changes any more (M4). Pushes under grants that stand
// arrive.
func leasedRevokedBusy(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	for round := range 6 {
		push, other := p.NewPush(t, 0, leasedPages/2), p.NewPush(t, leasedPages/2, leasedPages/2)
		corr, innocent := p.A.StartTransfer(push), p.A.StartTransfer(other)
		for range round * 3000 { // Some point of the push.
			_ = plane.Now()
		}
		p.B.RevokeGrant(t, push.Grant)
		mine := p.B.newPages(0, leasedPages/2)
		for _, page := range mine {
			p.B.FillPage(t, page)
		}
		if done := p.A.AwaitDone(t, corr); done.Code != effects.OK && done.Code != effects.Withdrawn {
			t.Fatalf("round %d ended as %s", round, done.Code)
		}
		if done := p.A.AwaitDone(t, innocent); done.Code != effects.OK {
			t.Fatalf("round %d: a push under another grant ended as %s", round, done.Code)
		}
		p.WantArrived(t, other)
		p.B.WantContent(t, mine, p.B, mine)
	}
}

func leasedRevokedAlone(t *testing.T, open LeasedMaker) {
	b := OpenLeased(t, open, 2, leasedPages, leasedPageBytes)
	for _, peer := range []effects.Incarnation{{9}, {}} {
		grant, _ := b.GrantWrite(peer, 0, 4)
		b.RevokeGrant(t, grant)
	}
}

// A revoked grant stays revoked even if so many grants were revoked since that the pool no longer records each grant
// of that time (M4).
func leasedRevokedLongAgo(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	old := p.NewPush(t, 0, 4)
	p.B.RevokeGrant(t, old.Grant)
	mine := p.B.newPages(0, 4)
	for _, page := range mine {
		p.B.FillPage(t, page)
	}
	for range 1100 {
		grant, _ := p.B.GrantWrite(effects.Incarnation{9}, 32, 1)
		p.B.RevokeGrant(t, grant)
	}
	last := p.NewPush(t, 8, 4)
	p.B.RevokeGrant(t, last.Grant)
	fresh := p.NewPush(t, 16, 4)
	switch code := p.A.AwaitDone(t, p.A.StartTransfer(fresh)).Code; code {
	case effects.OK:
	// The grant was given before the initiator learned of the last revocation, of which the initiator knows by now.
	case effects.Withdrawn:
		fresh = p.NewPush(t, 20, 4)
		p.WantEnd(t, fresh, effects.OK)
	default:
		t.Fatalf("a push under a grant that stands ended as %s", code)
	}
	p.WantArrived(t, fresh)
	p.WantEnd(t, old, effects.Withdrawn)
	p.B.WantContent(t, mine, p.B, mine)
}
