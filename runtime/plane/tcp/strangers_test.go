package tcp_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/logtest"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

func open(log io.Writer, bounds plane.Bounds) plane.Opener {
	return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		env.Bounds.Links, env.Bounds.Strangers = bounds.Links, bounds.Strangers
		if bounds.HandshakeTimeout != 0 {
			env.Bounds.HandshakeTimeout = bounds.HandshakeTimeout
		}
		env.Log = slog.New(slog.NewTextHandler(log, nil))
		return tcp.Open(ctx, env)
	}
}

// openSilent opens connections that send nothing, and keeps them.
func openSilent(t *testing.T, b *planetest.Node, n int) (conns []net.Conn) {
	t.Helper()
	for range n {
		conn, err := net.Dial("tcp", string(b.Plane.Blob()[3:]))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		conns = append(conns, conn)
	}
	return conns
}

// Silent connections, more than there may be, keep no peer from being served, and end no link.
func TestSilentConnectionsDoNotKeepPeersOut(t *testing.T) {
	const size = 4096
	log := new(logtest.Lines)
	a, c := planetest.OpenNode(t, tcp.Open, 1, 2, size), planetest.OpenNode(t, tcp.Open, 3, 2, size)
	b := planetest.OpenNode(t, open(log, plane.Bounds{Links: 2}), 2, 4, size)
	first := a.Import(t, b.Inc, b.Plane.Blob())
	if done := a.AwaitDone(t, a.StartPush(planetest.NewWholePush(a, b, first, 0, 2, size))); done.Code != effects.OK {
		t.Errorf("a push before anybody came ended as %s", done.Code)
	}
	for range 2 {
		conns := openSilent(t, b, 100)
		if one := conns[0]; one.SetReadDeadline(time.Now().Add(time.Minute)) == nil {
			if _, err := one.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
				t.Fatalf("the one that waited longest was kept: %v", err)
			}
		}
	}
	second := c.Import(t, b.Inc, b.Plane.Blob())
	push := planetest.Push{To: b.Inc, Link: second, From: c.PublishPages(0, 2, size), Buffer: b.Pool.Buffer().ID}
	push.Grant, push.Into = b.GrantWrite(c.Inc, 2, 2, size)
	if done := c.AwaitDone(t, c.StartPush(push)); done.Code != effects.OK {
		t.Errorf("a push over the link that came late ended as %s", done.Code)
	}
	openSilent(t, b, 100)
	for _, p := range []planetest.Push{planetest.NewWholePush(a, b, first, 0, 2, size)} {
		if done := a.AwaitDone(t, a.StartPush(p)); done.Code != effects.OK {
			t.Errorf("a push over the link from before ended as %s", done.Code)
		}
	}
	if n := log.CountText("was closed in favour of"); n != 1 {
		t.Errorf("%d lines say that connections were closed in favour of new ones; want one", n)
	}
}

// A connection without a hello is closed after the handshake's time.
func TestHelloHasADeadline(t *testing.T) {
	b := planetest.OpenNode(t, open(io.Discard, plane.Bounds{HandshakeTimeout: 20 * time.Millisecond}), 2, 1, 4096)
	for _, said := range []string{"", "\x57"} {
		conn := openSilent(t, b, 1)[0]
		if _, err := io.WriteString(conn, said); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after %q: %d, %v", said, n, err)
		}
	}
}

// A stream that is evicted before joining its link is opened again, and the link is up when all streams have joined:
// no flood of strangers can prevent that.
func TestEvictedStreamsAreOpenedAgain(t *testing.T) {
	const size = 4096
	a := planetest.OpenNode(t, tcp.Config{Streams: 4}.Open, 1, 2, size)
	b := planetest.OpenNode(t, open(io.Discard, plane.Bounds{Links: 2, Strangers: 1}), 2, 2, size)
	_, blob := newRelay(t, b.Plane.Blob(), stall{refuse: 3})
	l := a.Import(t, b.Inc, blob)
	openSilent(t, b, 100)
	if done := a.AwaitDone(t, a.StartPush(planetest.NewWholePush(a, b, l, 0, 2, size))); done.Code != effects.OK {
		t.Errorf("a push over the link ended as %s", done.Code)
	}
}
