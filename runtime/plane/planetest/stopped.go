package planetest

import (
	"bytes"
	"encoding/json"
	"os"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// targetStopped freezes a real process in the middle of a push into that process, cancels the push, and stores new
// bytes as soon as the push is settled. The resumed target continues the push, and may land only bytes that were
// pushed (M3).
//
// A small push right behind the large push makes the target freeze itself when the small push lands. On shm the pages
// of both pushes are copied in turn, so most of the large push is still to come then. On a plane with streams most of
// the large push has been sent.
func targetStopped(t *testing.T, open plane.Opener) {
	a := Open(t, open, 1, pages, pageBytes)
	p := startPeer(t, "stopped")
	b := p.read(t)
	p.Say(line{Inc: a.Inc})
	large, small := p.read(t), p.read(t)
	link := a.Import(t, b.Inc, b.Blob)
	from := a.Life(0, pages, pageBytes)
	var pushed [][]byte
	for _, page := range from {
		fill(a.Pool.Bytes(page), uint64(page.Index))
		pushed = append(pushed, bytes.Clone(a.Pool.Bytes(page)))
	}
	push := func(granted line, from []effects.Page) effects.Corr {
		return a.Start(Push{To: b.Inc, Link: link, Grant: granted.Grant, From: from, Into: granted.Pages, Buffer: b.Buffer})
	}
	corr := push(large, from[:pages-1])
	push(small, from[pages-1:])
	p.AwaitFrozen()

	a.Plane.Cancel(corr)
	done := a.Done(t, corr)
	if done.Code != effects.Cancelled {
		t.Fatalf("ended as %s", done.Code)
	}
	a.Plane.Drop(link) // A blocked write to a frozen peer ends with its link.
	Await(t, a, func(e *effects.Dropped) bool { return e.Link == link })
	pair{a: a}.settle(t, done)
	for _, page := range from {
		fill(a.Pool.Bytes(page), ^uint64(page.Index))
	}
	p.Thaw()
	l := p.read(t)
	t.Logf("%d of %d pages landed", len(l.Pages), pages)
	for i, page := range l.Pages {
		if !bytes.Equal(l.Held[i], pushed[page.Index]) {
			t.Errorf("page %d landed with bytes that were not pushed", page.Index)
		}
	}
}

// stopsItself is the target in a separate process.
func stopsItself(t testing.TB, n *Node, initiator effects.Incarnation, out *json.Encoder) error {
	var large, small line
	large.Grant, large.Pages = n.Grant(initiator, 0, pages-1, pageBytes)
	small.Grant, small.Pages = n.Grant(initiator, pages-1, 1, pageBytes)
	n.OnLanded(func(l *effects.Landed) (effects.Code, bool) {
		if l.Grant == small.Grant {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // Cannot fail for the own process.
		}
		return effects.OK, false
	})
	for _, l := range []line{large, small} {
		if err := out.Encode(l); err != nil {
			return err
		}
	}
	Await(t, n, func(e *effects.LinkLost) bool { return e.Peer == initiator })
	var l line
	for Has(n, func(*effects.Landed) bool { return true }) > 0 {
		l.Pages = append(l.Pages, Await(t, n, func(*effects.Landed) bool { return true }).Pages...)
	}
	for _, page := range l.Pages {
		l.Held = append(l.Held, n.Pool.Bytes(page))
	}
	return out.Encode(l)
}
