package planetest

import (
	"bytes"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A Pull describes a read: page From[i] of the peer's Buffer is read into Into[i].
type Pull struct {
	Of         effects.Incarnation
	Link       effects.Link
	Grant      effects.GrantID
	From, Into []effects.Page
	Buffer     effects.BufferID
}

// GrantRead grants a read lease to a peer, on pages in their present generations.
func (n *Node) GrantRead(peer effects.Incarnation, pages []effects.Page) effects.GrantID {
	n.grants++
	n.Pool.Grant(&effects.Grant{ID: n.grants, Peer: peer, Read: true, Pages: pages})
	return n.grants
}

// StartRead starts a read.
func (n *Node) StartRead(p Pull) effects.Corr {
	return n.StartReadUntil(p, plane.Now().Add(effects.Duration(2*eventTimeout)))
}

// StartReadUntil starts a read that must not begin a page after notAfter.
func (n *Node) StartReadUntil(p Pull, notAfter effects.Time) effects.Corr {
	n.corr++
	e := &effects.Transfer{Corr: n.corr, Link: p.Link, Peer: p.Of, Grant: p.Grant, Read: true, NotAfter: notAfter}
	for i, into := range p.Into {
		e.Pairs = append(e.Pairs, effects.Pair{Local: into, Remote: effects.RemotePage{
			Buffer: p.Buffer, Index: p.From[i].Index, Generation: p.From[i].Generation}})
	}
	n.Plane.Transfer(e)
	clear(e.Pairs) // Slices in effects are borrowed.
	return e.Corr
}

// FillPages stores content that depends on each page's index and generation.
func (n *Node) FillPages(pages []effects.Page) {
	for _, page := range pages {
		fillPattern(n.Pool.Bytes(page), patternSeed(page))
	}
}

// wantFilled fails unless pages have the content that FillPages stored.
func (n *Node) wantFilled(tb testing.TB, pages []effects.Page) {
	tb.Helper()
	for _, page := range pages {
		want := make([]byte, page.Length)
		if fillPattern(want, patternSeed(page)); !bytes.Equal(n.Pool.Bytes(page), want) {
			tb.Fatalf("page %d does not hold what was stored in life %d", page.Index, page.Generation)
		}
	}
}

func patternSeed(page effects.Page) uint64 { return uint64(page.Index)<<32 | uint64(page.Generation) }

// newPull prepares a read by a of count whole pages of b, beginning at page first, into the same pages of a.
func (p pair) newPull(first, count int) Pull {
	from := p.b.PublishPages(first, count, pageBytes)
	p.b.FillPages(from)
	return p.pullOf(p.b.GrantRead(p.a.Inc, from), from, p.a.PublishPages(first, count, pageBytes))
}

func (p pair) pullOf(grant effects.GrantID, from, into []effects.Page) Pull {
	return Pull{Of: p.b.Inc, Link: p.link, Grant: grant, From: from, Into: into, Buffer: p.b.Pool.Buffer().ID}
}

// pullAgain returns a read of the same pages into new generations of pages of a.
func (p pair) pullAgain(pull Pull, first int) Pull {
	pull.Into = p.a.PublishPages(first, len(pull.From), pageBytes)
	return pull
}

// wantLeasedContent fails unless the pages that were read have the content that FillPages stored in the leased pages.
func (p pair) wantLeasedContent(tb testing.TB, pull Pull) {
	tb.Helper()
	want := make([]byte, pageBytes)
	for i, into := range pull.Into {
		fillPattern(want, patternSeed(pull.From[i]))
		if got := p.a.Pool.Bytes(into); !bytes.Equal(got, want[:len(got)]) {
			tb.Fatalf("page %d differs from what was lent in life %d", pull.From[i].Index, pull.From[i].Generation)
		}
	}
}

// wantRead runs a read that must end with code, and waits until it is settled.
func (p pair) wantRead(tb testing.TB, pull Pull, code effects.Code) {
	tb.Helper()
	done := p.a.AwaitDone(tb, p.a.StartRead(pull))
	if done.Code != code || code == effects.OK && !done.Settled {
		tb.Fatalf("read ended as %s, settled %v; want %s", done.Code, done.Settled, code)
	}
	if p.awaitSettled(tb, done); code == effects.OK {
		p.wantLeasedContent(tb, pull)
	}
}

func readsArrive(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	for round := range 4 {
		pull := p.newPull(round, pages-round)
		p.wantRead(t, pull, effects.OK)
		again := p.pullAgain(pull, 0)
		p.wantRead(t, again, effects.OK)
		p.revokeGrant(t, pull.Grant)
		p.b.PublishPages(round, pages-round, pageBytes)
		p.wantLeasedContent(t, again) // The bytes that were read belong to the reader.
	}
	if n := CountEvents(p.b, func(*effects.Landed) bool { return true }); n != 0 {
		t.Fatalf("%d landings at who was only read from", n)
	}
	short := p.newPull(0, 1)
	short.Into[0].Length = 100
	p.wantRead(t, short, effects.OK)
}

// Many reads at once, of the same pages and of different pages, under two leases.
func manyReads(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	pull := p.newPull(0, pages/4)
	second := p.b.GrantRead(p.a.Inc, pull.From)
	var all []Pull
	var corrs []effects.Corr
	for i := range 4 {
		next := p.pullAgain(pull, i*pages/4)
		if i%2 == 1 {
			next.Grant = second
		}
		all = append(all, next)
	}
	for _, pull := range all {
		corrs = append(corrs, p.a.StartRead(pull))
	}
	for i, pull := range all {
		if done := p.a.AwaitDone(t, corrs[i]); done.Code != effects.OK {
			t.Fatalf("read %d ended as %s", i, done.Code)
		}
		p.wantLeasedContent(t, pull)
	}
}

// Reads and pushes on a link, and reads in the opposite direction, at the same time.
func readsBesidePushes(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	back := pair{a: p.b, b: p.a, link: p.b.Import(t, p.a.Inc, p.a.Plane.Blob())}
	const part = pages / 4
	push, pull, other := p.newPush(0, part), p.newPull(part, part), back.newPull(2*part, part)
	x, y, z := p.a.StartPush(push), p.a.StartRead(pull), p.b.StartRead(other)
	for _, c := range []effects.Code{p.a.AwaitDone(t, x).Code, p.a.AwaitDone(t, y).Code, p.b.AwaitDone(t, z).Code} {
		if c != effects.OK {
			t.Fatalf("one of three ended as %s", c)
		}
	}
	p.wantArrived(t, push)
	p.wantLeasedContent(t, pull)
	back.wantLeasedContent(t, other)
}

func readsAreChecked(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	good := p.newPull(0, 4)
	change := func(f func(*Pull)) Pull {
		q := good
		q.From, q.Into = append([]effects.Page(nil), good.From...), append([]effects.Page(nil), good.Into...)
		f(&q)
		return q
	}
	p.wantRead(t, change(func(q *Pull) { q.From[3].Generation++ }), effects.Stale)
	p.wantRead(t, change(func(q *Pull) { q.Grant += 7 }), effects.Withdrawn)
	// The low bits are equal to the low bits of a lease that stands.
	p.wantRead(t, change(func(q *Pull) { q.Grant += 1 << 16 }), effects.Withdrawn)
	p.wantRead(t, change(func(q *Pull) { q.From[2].Index = 9 }), effects.Withdrawn)
	p.wantRead(t, change(func(q *Pull) { q.From[2].Index = pages }), effects.Invalid)
	p.wantRead(t, change(func(q *Pull) { q.Into[2].Index = pages }), effects.Invalid)
	p.wantRead(t, change(func(q *Pull) { q.Into[1].Length = pageBytes + 1 }), effects.Invalid)
	p.wantRead(t, change(func(q *Pull) { q.From, q.Into = nil, nil }), effects.Invalid)
	p.wantRead(t, change(func(q *Pull) { q.Buffer[3]++ }), effects.Stale)
	p.wantRead(t, change(func(q *Pull) { q.Of[3]++ }), effects.Stale)
	p.wantRead(t, change(func(q *Pull) { q.Link += 100 }), effects.PeerLost)

	shorter := p.b.PublishPages(10, 1, 100)
	p.wantRead(t, p.pullOf(p.b.GrantRead(p.a.Inc, shorter), shorter, p.a.PublishPages(10, 1, 101)), effects.TooLarge)
	foreign := p.b.PublishPages(20, 1, 100)
	p.wantRead(t, p.pullOf(p.b.GrantRead(effects.Incarnation{9}, foreign), foreign, p.a.PublishPages(20, 1, 100)), effects.Refused)
	bearer := p.b.PublishPages(30, 1, 100)
	grant := p.b.GrantRead(effects.Incarnation{}, bearer)
	p.wantRead(t, p.pullOf(grant, bearer, p.a.PublishPages(30, 1, 100)), effects.Withdrawn)
	p.revokeGrant(t, grant)

	if done := p.a.AwaitDone(t, p.a.StartReadUntil(good, plane.Now()-1)); done.Code != effects.Expired || !done.Settled {
		t.Fatalf("a read after its time ended as %s, settled %v", done.Code, done.Settled)
	}
	p.wantRead(t, good, effects.OK) // All refused reads left the lease as it was.
}
