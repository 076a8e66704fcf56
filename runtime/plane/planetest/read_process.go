package planetest

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// runOwner is an owner in a separate process: all pages are leased, until the parent asks to revoke the lease and to
// store new bytes.
func runOwner(t testing.TB, n *Node, reader effects.Incarnation, in *json.Decoder, out *json.Encoder) error {
	var l line
	l.Pages = n.PublishPages(0, pages, pageBytes)
	n.FillPages(l.Pages)
	l.Grant = n.GrantRead(reader, l.Pages)
	if err := out.Encode(l); err != nil {
		return err
	}
	if err := in.Decode(&line{}); err != nil {
		return err // Killed, or the test has ended.
	}
	n.Pool.Revoke(l.Grant)
	AwaitEvent(t, n, func(e *effects.Revoked) bool { return e.Grant == l.Grant })
	n.FillPages(n.PublishPages(0, pages, pageBytes))
	if err := out.Encode(line{}); err != nil {
		return err
	}
	return in.Decode(&line{}) // Waits for the end of the test.
}

// startOwner starts and imports a process that runs runOwner. The returned pull reads all pages of that process.
func (n *Node) startOwner(t testing.TB) (*peer, pair, Pull) {
	p := startPeer(t, "owner")
	b := p.readLine(t)
	p.SendJSON(line{Inc: n.Inc})
	lent := p.readLine(t)
	link := n.Import(t, b.Inc, b.Blob)
	return p, pair{a: n, link: link}, Pull{Of: b.Inc, Link: link, Grant: lent.Grant, From: lent.Pages,
		Into: n.PublishPages(0, pages, pageBytes), Buffer: b.Buffer}
}

func ownerKilled(t *testing.T, open plane.Opener) {
	p, here, pull := OpenNode(t, open, 1, pages, pageBytes).startOwner(t)
	for round := 0; ; round++ {
		pull = here.pullAgain(pull, 0)
		corr := here.a.StartRead(pull)
		if round == 3 {
			p.Kill() // Somewhere in the read.
		}
		done := here.a.AwaitDone(t, corr)
		here.awaitSettled(t, done)
		if done.Code == effects.PeerLost && round >= 3 {
			break
		}
		if done.Code != effects.OK {
			t.Fatalf("round %d ended as %s", round, done.Code)
		}
		here.wantLeasedContent(t, pull)
	}
	AwaitEvent(t, here.a, func(e *effects.LinkLost) bool { return e.Link == pull.Link && e.Peer == pull.Of })
	here.a.Plane.Drop(pull.Link)
	AwaitEvent(t, here.a, func(e *effects.Dropped) bool { return e.Link == pull.Link })
}

// ReadFromFrozen is for planes on which a read does not need the owner's process: reads of a frozen owner's pages
// continue.
func ReadFromFrozen(t *testing.T, open plane.Opener) {
	p, here, pull := OpenNode(t, open, 1, pages, pageBytes).startOwner(t)
	p.Freeze()
	for range 3 {
		here.wantRead(t, here.pullAgain(pull, 0), effects.OK)
	}
	p.Resume()
	p.SendJSON(line{})
	p.readLine(t)
	here.wantRead(t, here.pullAgain(pull, 0), effects.Withdrawn)
}

// CancelFromFrozen is for planes on which the owner sends the pages: a read from a frozen owner ends when the reader
// cancels the read. The pages belong to the reader at once, and nothing that the resumed owner sends is stored into
// these pages.
func CancelFromFrozen(t *testing.T, open plane.Opener) {
	p, here, pull := OpenNode(t, open, 1, pages, pageBytes).startOwner(t)
	p.Freeze()
	corr := here.a.StartRead(pull)
	here.a.Plane.Cancel(corr)
	if done := here.a.AwaitDone(t, corr); done.Code != effects.Cancelled || !done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
	here.a.FillPages(pull.Into)
	p.Resume()
	few := pull
	few.From = few.From[:4]
	here.wantRead(t, here.pullAgain(few, 0), effects.OK)
	here.a.wantFilled(t, pull.Into[4:])
	p.SendJSON(line{})
	p.readLine(t)
	here.wantRead(t, here.pullAgain(pull, 0), effects.Withdrawn)
}

// runReader is a reader in a separate process: the pages named by the parent are read, and each byte checked, until
// a read fails. The parent is told when the first read has succeeded, and how the last read ended.
func runReader(t testing.TB, n *Node, owner line, in *json.Decoder, out *json.Encoder) error {
	link := n.Import(t, owner.Inc, owner.Blob)
	for {
		var l line
		if err := in.Decode(&l); err != nil {
			return err
		}
		want := make([]byte, pageBytes)
		for round := 0; ; round++ {
			into := n.PublishPages(0, pages, pageBytes)
			done := n.AwaitDone(t, n.StartRead(Pull{Of: owner.Inc, Link: link, Grant: l.Grant, From: l.Pages, Into: into,
				Buffer: owner.Buffer}))
			pair{a: n}.awaitSettled(t, done)
			if done.Code != effects.OK {
				if err := out.Encode(line{Code: done.Code}); err != nil {
					return err
				}
				break
			}
			for i, page := range into {
				if fillPattern(want, patternSeed(l.Pages[i])); !bytes.Equal(n.Pool.Bytes(page), want) {
					t.Fatalf("page %d was delivered with bytes that were not lent", l.Pages[i].Index)
				}
			}
			if round == 0 {
				if err := out.Encode(line{}); err != nil {
					return err
				}
			}
		}
	}
}

// grantReadTo leases pages to a process that runs runReader, and returns when the first read has succeeded.
func grantReadTo(t *testing.T, b *Node, p *peer, reader effects.Incarnation) (effects.GrantID, []effects.Page) {
	from := b.PublishPages(0, pages, pageBytes)
	b.FillPages(from)
	grant := b.GrantRead(reader, from)
	p.SendJSON(line{Grant: grant, Pages: from})
	p.readLine(t)
	return grant, from
}

// readerStopped freezes a real process in the middle of reads. The owner has the pages back at once, and stores new
// bytes. The resumed reader must not deliver any of these bytes (M3).
func readerStopped(t *testing.T, open plane.Opener) {
	b := OpenNode(t, open, 2, pages, pageBytes)
	p := startPeer(t, "reader")
	a := p.readLine(t)
	p.SendJSON(line{Inc: b.Inc, Blob: b.Plane.Blob(), Buffer: b.Pool.Buffer().ID})
	for range 3 {
		grant, from := grantReadTo(t, b, p, a.Inc)
		p.Freeze()
		pair{b: b}.revokeGrant(t, grant)
		for _, page := range from { // In the same generation.
			fillPattern(b.Pool.Bytes(page), ^patternSeed(page))
		}
		p.Resume()
		if end := p.readLine(t); end.Code != effects.Withdrawn {
			t.Fatalf("the last read ended as %s", end.Code)
		}
	}
}

func readerKilled(t *testing.T, open plane.Opener) {
	b := OpenNode(t, open, 2, pages, pageBytes)
	p := startPeer(t, "reader")
	a := p.readLine(t)
	p.SendJSON(line{Inc: b.Inc, Blob: b.Plane.Blob(), Buffer: b.Pool.Buffer().ID})
	grant, _ := grantReadTo(t, b, p, a.Inc)
	p.Kill()
	AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Peer == a.Inc && e.Link == 0 })
	pair{b: b}.revokeGrant(t, grant)
}
