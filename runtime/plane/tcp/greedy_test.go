package tcp_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// A peer that opens links without end takes no room from other peers, and gets in again itself.
func TestLinksOfOnePeer(t *testing.T) {
	const links = 8
	opener := func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		env.Bounds.Links = links
		return tcp.Config{Streams: 1}.Open(ctx, env)
	}
	a, b := planetest.OpenNode(t, opener, 1, 2, 4096), planetest.OpenNode(t, opener, 2, 2, 4096)
	c := planetest.OpenNode(t, opener, 3, 2, 4096)
	refused := 0
	for range links { // as many as its own limit allows
		if e := a.TryImport(t, b.Inc, b.Plane.Blob()); e.Code == effects.TooMany {
			refused++
		} else if e.Code != effects.OK {
			t.Fatalf("a link ended as %s", e.Code)
		}
	}
	if refused == 0 {
		t.Errorf("one peer has all %d links", links)
	}
	push := planetest.NewWholePush(c, b, c.Import(t, b.Inc, b.Plane.Blob()), 0, 1, 4096)
	if done := c.AwaitDone(t, c.StartPush(push)); done.Code != effects.OK {
		t.Errorf("another peer's push ended as %s", done.Code)
	}
}

// A host can create any number of peers; still, another address gets in.
func TestLinksOfOneAddress(t *testing.T) {
	const links = 8
	b := planetest.OpenNode(t, open(io.Discard, plane.Bounds{Links: links}), 2, 2, 4096)
	greet := func(from string, who byte) (effects.Code, error) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := dialer.Dial("tcp", string(b.Plane.Blob()[3:]))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		h := link.Hello{From: effects.Incarnation{0: who, 15: 9}, To: b.Inc, Session: [16]byte{who}}
		h.Proof = h.ComputeProof(link.KindHello, planetest.Key.Token(tcp.Name, h.From, h.To), nil)
		if _, err := conn.Write(link.AppendHello(nil, link.KindHello, h)); err != nil {
			return 0, err
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		kind, body, _, err := link.ReadFrame(conn, nil, link.SmallFrame)
		if err != nil || kind != link.KindWelcome {
			return 0, err
		}
		return effects.CodeFromWire(uint32(body[0])), nil
	}
	in := 0
	for who := range byte(2 * links) {
		if code, err := greet("127.0.0.2", who+1); err == nil && code == effects.OK {
			in++
		}
	}
	if code, err := greet("127.0.0.3", 100); code != effects.OK || err != nil || in < links/2 || in >= links {
		t.Errorf("%d of one address have links, and then one of another got %v, %v", in, code, err)
	}
}

// A reader may name one page any number of times, but cannot make its owner keep all of that.
func TestPagesOfOneLinkAreBounded(t *testing.T) {
	const size, batch = 64 << 10, 256
	opener := func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		env.Bounds.PagesPerBatch = batch
		return tcp.Config{Streams: 1}.Open(ctx, env)
	}
	a, b := planetest.OpenNode(t, opener, 1, 2, size), planetest.OpenNode(t, opener, 2, 2, size)
	r, blob := newRelay(t, b.Plane.Blob(), stall{conn: 1, back: true, after: 1 << 10})
	pull := planetest.NewPull(a, b, a.Import(t, b.Inc, blob), 0, 1, size)
	many := pull
	for len(many.From) < batch {
		many.From, many.Into = append(many.From, pull.From[0]), append(many.Into, pull.Into[0])
	}
	first := a.StartRead(many)
	<-r.stalled
	if done := a.AwaitDone(t, a.StartRead(many)); done.Code != effects.TooMany {
		t.Errorf("a second read of all pages often beside a first one ended as %s", done.Code)
	}
	r.goOn()
	if done := a.AwaitDone(t, first); done.Code != effects.OK {
		t.Errorf("the first ended as %s", done.Code)
	}
	if done := a.AwaitDone(t, a.StartRead(many)); done.Code != effects.OK {
		t.Errorf("when it had ended, another ended as %s", done.Code)
	}
}
