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
	a := OpenNode(t, open, 1, pages, pageBytes)
	p := startPeer(t, "stopped")
	b := p.readLine(t)
	p.SendJSON(line{Inc: a.Inc})
	large, small := p.readLine(t), p.readLine(t)
	link := a.Import(t, b.Inc, b.Blob)
	from := a.PublishPages(0, pages, pageBytes)
	var pushed [][]byte
	for _, page := range from {
		fillPattern(a.Pool.Bytes(page), uint64(page.Index))
		pushed = append(pushed, bytes.Clone(a.Pool.Bytes(page)))
	}
	push := func(granted line, from []effects.Page) effects.Corr {
		return a.StartPush(Push{To: b.Inc, Link: link, Grant: granted.Grant, From: from, Into: granted.Pages, Buffer: b.Buffer})
	}
	corr := push(large, from[:pages-1])
	push(small, from[pages-1:])
	p.AwaitFrozen()

	a.Plane.Cancel(corr)
	done := a.AwaitDone(t, corr)
	if done.Code != effects.Cancelled {
		t.Fatalf("ended as %s", done.Code)
	}
	a.Plane.Drop(link) // A blocked write to a frozen peer ends with its link.
	AwaitEvent(t, a, func(e *effects.Dropped) bool { return e.Link == link })
	pair{a: a}.awaitSettled(t, done)
	for _, page := range from {
		fillPattern(a.Pool.Bytes(page), ^uint64(page.Index))
	}
	p.Resume()
	l := p.readLine(t)
	t.Logf("%d of %d pages landed", len(l.Pages), pages)
	for i, page := range l.Pages {
		if !bytes.Equal(l.Contents[i], pushed[page.Index]) {
			t.Errorf("page %d landed with bytes that were not pushed", page.Index)
		}
	}
}

// runStoppedTarget is the target in a separate process.
func runStoppedTarget(t testing.TB, n *Node, initiator effects.Incarnation, out *json.Encoder) error {
	var large, small line
	large.Grant, large.Pages = n.GrantWrite(initiator, 0, pages-1, pageBytes)
	small.Grant, small.Pages = n.GrantWrite(initiator, pages-1, 1, pageBytes)
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
	AwaitEvent(t, n, func(e *effects.LinkLost) bool { return e.Peer == initiator })
	var l line
	for CountEvents(n, func(*effects.Landed) bool { return true }) > 0 {
		l.Pages = append(l.Pages, AwaitEvent(t, n, func(*effects.Landed) bool { return true }).Pages...)
	}
	for _, page := range l.Pages {
		l.Contents = append(l.Contents, n.Pool.Bytes(page))
	}
	return out.Encode(l)
}
