package planetest

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// forgeImports makes a peer import target in the name of another peer, in every way that is possible with the blobs and
// tokens that peers receive. Each import must be refused (M2).
func forgeImports(tb testing.TB, introduce func(us effects.Incarnation, invitation []byte) *effects.Imported,
	target plane.Plane, of, forger, victim effects.Incarnation) {
	tb.Helper()
	for _, c := range []struct {
		how        string
		us         effects.Incarnation
		invitation []byte
	}{
		{"the victim's name, and the forger's own token", victim, NewInvitation(target.Name(), target.Blob(), forger, of)},
		{"the forger's name, and the victim's token", forger, NewInvitation(target.Name(), target.Blob(), victim, of)},
		{"the victim's name, and its token of another plane", victim, NewInvitation(target.Name()+"2", target.Blob(), victim, of)},
		{"the victim's name, and its token of another life", victim,
			NewInvitation(target.Name(), target.Blob(), victim, effects.Incarnation{9})},
		{"the victim's name, and no token", victim,
			append(target.Blob()[:len(target.Blob()):len(target.Blob())], make([]byte, 16)...)},
	} {
		if e := introduce(c.us, c.invitation); e.Code != effects.Refused {
			tb.Fatalf("%s: the import ended as %s, want %s", c.how, e.Code, effects.Refused)
		}
	}
}

// A peer that has only its own token cannot act as another peer, and when the links of that peer end, nothing of
// another peer ends.
func forgedImport(t *testing.T, open plane.Opener) {
	a, b, c := OpenNode(t, open, 1, pages, pageBytes), OpenNode(t, open, 2, pages, pageBytes), OpenNode(t, open, 3, pages, pageBytes)
	p := pair{a: a, b: b}
	push := p.newPush(0, 2) // Granted to a, which has no link yet: a forged link that ends would count as a's last link.
	forgeImports(t, func(us effects.Incarnation, invitation []byte) *effects.Imported {
		return c.ImportAs(t, us, b.Inc, invitation)
	},
		b.Plane, b.Inc, c.Inc, a.Inc)

	own := c.Import(t, b.Inc, b.Plane.Blob())
	theft := push
	theft.Link, theft.From = own, c.PublishPages(0, 2, pageBytes)
	if done := c.AwaitDone(t, c.StartPush(theft)); done.Code != effects.Refused {
		t.Fatalf("a push under another's grant ended as %s", done.Code)
	}
	c.closePlane(t)
	AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Peer == c.Inc })
	push.Link = a.Import(t, b.Inc, b.Plane.Blob())
	p.wantEnd(t, push, effects.OK)
	p.wantArrived(t, push)
	b.closePlane(t) // Close posts everything that is still due.
	if n := CountEvents(b, func(e *effects.LinkLost) bool { return e.Peer == c.Inc }); n != 0 {
		t.Fatalf("the forger was lost %d more times than it had links", n)
	}
	if n := CountEvents(b, func(e *effects.LinkLost) bool { return e.Peer == a.Inc }); n != 1 {
		t.Fatalf("the victim was lost %d times; want once, when its only link ended", n)
	}
}

// A peer with links to two planes of the same pool is lost once, when the last link ends.
func lostOnce(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	second, err := open(context.Background(), plane.Env{Pool: p.b.Pool, Sink: p.b, IDs: &plane.IDs{}, Incarnation: p.b.Inc,
		Key:    Key,
		Bounds: bounds, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	p.a.Import(t, p.b.Inc, second.Blob())
	push := p.newPush(0, 2)
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	if err := second.Close(ctx); err != nil { // Close posts everything that is due.
		t.Fatal(err)
	}
	if n := CountEvents(p.b, func(e *effects.LinkLost) bool { return e.Peer == p.a.Inc }); n != 0 {
		t.Fatal("a peer was lost that has a link to another plane of the pool")
	}
	p.wantEnd(t, push, effects.OK)
	p.a.Plane.Drop(p.link)
	AwaitEvent(t, p.b, func(e *effects.LinkLost) bool { return e.Peer == p.a.Inc })
}

// leasedForged is forgedImport for leased pools.
func leasedForged(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	c := OpenLeased(t, open, 3, leasedPages, leasedPageBytes)
	forgeImports(t, func(us effects.Incarnation, invitation []byte) *effects.Imported {
		return c.ImportAs(t, us, p.B.Inc, invitation)
	},
		p.B.Plane, p.B.Inc, c.Inc, p.A.Inc)
	c.Close(t)
	push := p.NewPush(t, 0, 2)
	p.WantEnd(t, push, effects.OK)
	p.WantArrived(t, push)
	if n := CountEvents(p.B, func(*effects.LinkLost) bool { return true }); n != 0 {
		t.Fatalf("%d peers were lost; nobody had a link but the one that still has it", n)
	}
}
