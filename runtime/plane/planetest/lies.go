package planetest

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/liar"
)

const (
	liedPage = 1 << 20 // more than what sockets buffer
	// oneLieIn says that every oneLieIn-th lie is told; with KVFERRY_HOSTILE=1 all lies are told.
	oneLieIn = 5
)

// withShortTimeouts opens a plane with short timeouts, because in these tests many peers are silent.
func withShortTimeouts(open plane.Opener) plane.Opener {
	return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		env.Bounds.HandshakeTimeout, env.Bounds.StallTimeout = 300*time.Millisecond, 300*time.Millisecond
		return open(ctx, env)
	}
}

// RunLies lets each lie be told between two nodes of a plane. Whatever is sent at any step, to either end: no byte is
// sent or stored that must not be, pages that were given back are not touched, honest peers are served during and
// after the lie, and all resources are released.
func RunLies(t *testing.T, open plane.Opener, lies []liar.Lie) {
	before, running := countFiles(t), goleak.IgnoreCurrent()
	for i, lie := range lies {
		if os.Getenv("KVFERRY_HOSTILE") == "" && i%oneLieIn != 0 {
			continue
		}
		t.Run(string(lie.Step)+" "+string(lie.Way), func(t *testing.T) { tellLie(t, open, lie) })
	}
	if after := countFiles(t); after > before {
		t.Errorf("%d files are open, %d were", after, before)
	}
	goleak.VerifyNone(t, running)
}

func countFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func tellLie(t testing.TB, open plane.Opener, lie liar.Lie) {
	secret := bytes.Repeat([]byte("another request's"), 16)
	others := bytes.Repeat(secret, liedPage/len(secret)+1)[:liedPage]
	a, b, c := OpenNode(t, withShortTimeouts(open), 1, 6, liedPage), OpenNode(t, open, 2, 6, liedPage), OpenNode(t, open, 3, 1, liedPage)
	good := c.Import(t, b.Inc, b.Plane.Blob())
	b.PublishPages(2, 1, liedPage)
	keeps := func(n *Node, what string, indexes ...uint32) {
		t.Helper()
		for _, index := range indexes {
			if !bytes.Equal(n.Pool.Bytes(effects.Page{Index: index, Length: liedPage}), others) {
				t.Errorf("page %d is not what its owner stored: %s", index, what)
			}
		}
	}
	owns := func(n *Node, indexes ...uint32) {
		for _, index := range indexes {
			copy(n.Pool.Bytes(effects.Page{Index: index, Length: liedPage}), others)
		}
	}
	owns(a, 2, 3, 4, 5)
	owns(b, 2)
	honest := func(when string) {
		t.Helper()
		p := Push{To: b.Inc, Link: good, From: c.PublishPages(0, 1, liedPage), Buffer: b.Pool.Buffer().ID}
		p.Grant, p.Into = b.GrantWrite(c.Inc, 3, 1, liedPage)
		if done := c.AwaitDone(t, c.StartPush(p)); done.Code != effects.OK {
			t.Errorf("%s, a push of another peer ended as %s", when, done.Code)
		}
	}

	l, blob, err := liar.New(b.Plane.Blob(), lie, secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	link := a.TryImport(t, b.Inc, blob)
	if link.Code == effects.OK {
		for round := range 3 {
			push := NewWholePush(a, b, link.Link, 0, 2, liedPage)
			corr := a.StartPush(push)
			if round == 2 {
				a.Plane.Cancel(corr)
			}
			awaitEnd(t, a, corr, l)
			owns(a, 0, 1) // Settled, so the memory belongs to another request.
			b.Pool.Revoke(push.Grant)
			AwaitEvent(t, b, func(e *effects.Revoked) bool { return e.Grant == push.Grant })
			owns(b, 0, 1)
			keeps(a, "it was stored into after it was settled", 4, 5)

			pull := NewPull(a, b, link.Link, 4, 2, liedPage)
			read := a.StartRead(pull)
			done := awaitEnd(t, a, read, l)
			if done.Code == effects.OK && lie.Step != liar.PageIn {
				WantLeasedContent(t, a, pull)
			}
			owns(a, 4, 5)
			b.Pool.Revoke(pull.Grant)
			AwaitEvent(t, b, func(e *effects.Revoked) bool { return e.Grant == pull.Grant })
			honest("beside the lie")
			keeps(a, "it was stored into after it was settled", 4, 5)
			keeps(b, "it was stored into after it was revoked", 0, 1)
		}
	}
	honest("after the lie")
	direct := a.Import(t, b.Inc, b.Plane.Blob())
	if done := a.AwaitDone(t, a.StartPush(NewWholePush(a, b, direct, 0, 2, liedPage))); done.Code != effects.OK {
		t.Errorf("a push to the same peer, by which nobody lies, ended as %s", done.Code)
	}
	l.Close()
	keeps(a, "it had no part in anything", 2, 3)
	keeps(a, "it was stored into after it was settled", 4, 5)
	keeps(b, "it had no part in anything", 2)
	if l.SawSecret() {
		t.Error("bytes of another request have left")
	}
}

// awaitEnd waits until a transfer has ended and is settled, and cancels the transfer if the lie has prevented an end.
func awaitEnd(t testing.TB, a *Node, corr effects.Corr, l *liar.Liar) *effects.TransferDone {
	t.Helper()
	isDone := func(e *effects.TransferDone) bool { return e.Corr == corr }
	told, late := false, time.Time{}
	for CountEvents(a, isDone) == 0 {
		select {
		case <-l.LieDone():
			if !told {
				told, late = true, time.Now().Add(50*time.Millisecond)
			}
		default:
		}
		// A transfer that ends without a cancel has had time to end.
		if told && time.Now().After(late) {
			a.Plane.Cancel(corr)
			break
		}
		runtime.Gosched()
	}
	done := a.AwaitDone(t, corr)
	if !done.Settled {
		AwaitEvent(t, a, func(e *effects.Settled) bool { return e.Corr == corr })
	}
	return done
}
