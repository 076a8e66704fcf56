package tcp_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// A relay stands between two nodes and does to their bytes what networks do.
type relay struct {
	listener net.Listener
	wg       sync.WaitGroup
	stalled  chan struct{} // closed when the first stream has stopped in the middle
	resume   chan struct{} // closed to let it go on

	mu      sync.Mutex
	conns   []net.Conn
	targets []net.Conn // towards the target, in order of connection: requests first, then streams
}

// newRelay relays to the address of blob; the first stream stops after so many bytes.
func newRelay(t *testing.T, blob []byte, after int64) (*relay, []byte) {
	const head = 1 + 16 + 2
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, stalled: make(chan struct{}), resume: make(chan struct{})}
	r.wg.Go(func() {
		for n := 0; ; n++ {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", string(blob[head:]))
			if err != nil {
				_ = from.Close()
				continue
			}
			r.mu.Lock()
			r.conns, r.targets = append(r.conns, from, to), append(r.targets, to)
			r.mu.Unlock()
			r.wg.Go(func() {
				if n == 1 && after > 0 {
					_ = from.(*net.TCPConn).SetReadBuffer(64 << 10) // It shall not swallow a whole page.
					_, _ = io.CopyN(to, from, after)
					close(r.stalled)
					<-r.resume
				}
				_, _ = io.Copy(to, from)
				_ = to.Close()
			})
			r.wg.Go(func() {
				_, _ = io.Copy(from, to)
				_ = from.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		r.wg.Wait()
	})
	ours := append([]byte(nil), blob[:head-2]...)
	ours = binary.LittleEndian.AppendUint16(ours, uint16(len(listener.Addr().String())))
	return r, append(ours, listener.Addr().String()...)
}

func whole(a, b *planetest.Node, link effects.Link, first, count int, size uint32) planetest.Push {
	p := planetest.Push{To: b.Inc, Link: link, From: a.Life(first, count, size), Buffer: b.Pool.Buffer().ID}
	for _, page := range p.From {
		copy(a.Pool.Host(page), bytes.Repeat([]byte{byte(page.Generation)}, int(size)))
	}
	p.Grant, p.Into = b.Grant(a.Inc, first, count, size)
	return p
}

// A peer that stops in the middle of a page cannot keep the page from its owner, and when it goes on,
// what is left of the page goes nowhere.
func TestRevokeNeedsNoHelpOfAStalledPeer(t *testing.T) {
	const size = 1 << 20
	open := tcp.Config{Streams: 1}.Open
	a, b := planetest.Open(t, open, 1, 4, size), planetest.Open(t, open, 2, 4, size)
	r, blob := newRelay(t, b.Plane.Blob(), size/2)
	link := a.Import(t, b.Inc, blob)
	push := whole(a, b, link, 0, 2, size)
	corr := a.Start(push)
	<-r.stalled
	b.Pool.Revoke(push.Grant)
	planetest.Await(t, b, func(e *effects.Revoked) bool { return e.Grant == push.Grant })
	mine := bytes.Repeat([]byte{0xee}, size)
	for _, page := range push.Into {
		copy(b.Pool.Host(page), mine)
	}
	close(r.resume)
	if done := a.Done(t, corr); done.Code != effects.Withdrawn {
		t.Fatalf("ended as %s", done.Code)
	}
	next := whole(a, b, link, 2, 2, size)
	if done := a.Done(t, a.Start(next)); done.Code != effects.OK {
		t.Fatalf("the push after it ended as %s", done.Code)
	}
	for i := range next.From {
		if !bytes.Equal(b.Pool.Host(push.Into[i]), mine) {
			t.Fatalf("page %d changed after Revoked", i)
		}
		if !bytes.Equal(b.Pool.Host(next.Into[i]), a.Pool.Host(next.From[i])) {
			t.Fatalf("page %d differs from what was pushed", i+2)
		}
	}
}

// Cancel is settled only when no stream reads the page any more.
func TestCancelOfAStalledWrite(t *testing.T) {
	const size = 16 << 20 // More than all socket buffers on the way hold.
	open := tcp.Config{Streams: 1}.Open
	a, b := planetest.Open(t, open, 1, 2, size), planetest.Open(t, open, 2, 2, size)
	r, blob := newRelay(t, b.Plane.Blob(), 64<<10)
	push := whole(a, b, a.Import(t, b.Inc, blob), 0, 1, size)
	corr := a.Start(push)
	<-r.stalled
	a.Plane.Cancel(corr)
	if done := a.Done(t, corr); done.Code != effects.Cancelled || done.Settled {
		t.Fatalf("ended as %s, settled %v, while the page was being written", done.Code, done.Settled)
	}
	close(r.resume)
	planetest.Await(t, a, func(e *effects.Settled) bool { return e.Corr == corr && e.Code == effects.Cancelled })
}

// Bytes that are no frame end a link that was in order until then, on both sides.
func TestMalformedFramesEndTheLink(t *testing.T) {
	const size = 4096
	for name, bytes := range map[string][]byte{
		"frame of four billion bytes": {0xff, 0xff, 0xff, 0xff, 3},
		"frame of no bytes":           {0, 0, 0, 0, 3},
		"unknown kind":                {1, 0, 0, 0, 99},
		"hello after the hello":       {1, 0, 0, 0, 1},
		"done from the initiator":     {10, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"push without a body":         {1, 0, 0, 0, 3},
		"cancel with half a body":     {5, 0, 0, 0, 4, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := planetest.Open(t, tcp.Open, 1, 4, size), planetest.Open(t, tcp.Open, 2, 4, size)
			b.OnLanded(nil)
			r, blob := newRelay(t, b.Plane.Blob(), 0)
			link := a.Import(t, b.Inc, blob)
			corr := a.Start(whole(a, b, link, 0, 4, size))
			planetest.Await(t, b, func(*effects.Landed) bool { return true })
			r.mu.Lock()
			_, err := r.targets[0].Write(bytes)
			r.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			planetest.Await(t, b, func(e *effects.LinkLost) bool { return e.Peer == a.Inc })
			if done := a.Done(t, corr); done.Code != effects.PeerLost || !done.Settled {
				t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
			}
			planetest.Await(t, a, func(e *effects.LinkLost) bool { return e.Link == link })
		})
	}
}
