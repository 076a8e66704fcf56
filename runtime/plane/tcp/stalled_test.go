package tcp_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// A peer that stops in the middle of a page cannot keep the page from its owner (M3). When the peer continues, the
// rest of the page is discarded.
func TestRevokeDoesNotWaitForAStalledPeer(t *testing.T) {
	const size = 1 << 20
	open := tcp.Config{Streams: 1}.Open
	a, b := planetest.OpenNode(t, open, 1, 4, size), planetest.OpenNode(t, open, 2, 4, size)
	r, blob := newRelay(t, b.Plane.Blob(), stall{conn: 1, after: size / 2})
	link := a.Import(t, b.Inc, blob)
	push := planetest.NewWholePush(a, b, link, 0, 2, size)
	corr := a.StartPush(push)
	<-r.stalled
	b.Pool.Revoke(push.Grant)
	planetest.AwaitEvent(t, b, func(e *effects.Revoked) bool { return e.Grant == push.Grant })
	mine := bytes.Repeat([]byte{0xee}, size)
	for _, page := range push.Into {
		copy(b.Pool.Bytes(page), mine)
	}
	r.goOn()
	if done := a.AwaitDone(t, corr); done.Code != effects.Withdrawn {
		t.Fatalf("ended as %s", done.Code)
	}
	next := planetest.NewWholePush(a, b, link, 2, 2, size)
	if done := a.AwaitDone(t, a.StartPush(next)); done.Code != effects.OK {
		t.Fatalf("the push after it ended as %s", done.Code)
	}
	for i := range next.From {
		if !bytes.Equal(b.Pool.Bytes(push.Into[i]), mine) {
			t.Fatalf("page %d changed after Revoked", i)
		}
		if !bytes.Equal(b.Pool.Bytes(next.Into[i]), a.Pool.Bytes(next.From[i])) {
			t.Fatalf("page %d differs from what was pushed", i+2)
		}
	}
}

// A cancelled push is settled only when no stream reads the page any more.
func TestCancelOfAStalledWrite(t *testing.T) {
	const size = 16 << 20 // more than all socket buffers on the way hold
	open := tcp.Config{Streams: 1}.Open
	a, b := planetest.OpenNode(t, open, 1, 2, size), planetest.OpenNode(t, open, 2, 2, size)
	r, blob := newRelay(t, b.Plane.Blob(), stall{conn: 1, after: 64 << 10})
	push := planetest.NewWholePush(a, b, a.Import(t, b.Inc, blob), 0, 1, size)
	corr := a.StartPush(push)
	<-r.stalled
	a.Plane.Cancel(corr)
	if done := a.AwaitDone(t, corr); done.Code != effects.Cancelled || done.Settled {
		t.Fatalf("ended as %s, settled %v, while the page was being written", done.Code, done.Settled)
	}
	r.goOn()
	planetest.AwaitEvent(t, a, func(e *effects.Settled) bool { return e.Corr == corr && e.Code == effects.Cancelled })
}

// Bytes that are not a frame end a link that was in order until then, on both sides.
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
		"read without a body":         {1, 0, 0, 0, 7},
		"read of nothing":             readFrame(99, 0, 0),
		"read with a slot":            readFrame(99, 1, 1),
		"read of an older number":     readFrame(1, 0, 1),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := planetest.OpenNode(t, tcp.Open, 1, 4, size), planetest.OpenNode(t, tcp.Open, 2, 4, size)
			b.OnLanded(nil)
			r, blob := newRelay(t, b.Plane.Blob(), stall{})
			link := a.Import(t, b.Inc, blob)
			corr := a.StartPush(planetest.NewWholePush(a, b, link, 0, 4, size))
			planetest.AwaitEvent(t, b, func(*effects.Landed) bool { return true })
			r.mu.Lock()
			_, err := r.targets[0].Write(bytes)
			r.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			planetest.AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Peer == a.Inc })
			if done := a.AwaitDone(t, corr); done.Code != effects.PeerLost || !done.Settled {
				t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
			}
			planetest.AwaitEvent(t, a, func(e *effects.LinkLost) bool { return e.Link == link })
		})
	}
}

// readFrame requests pages, with as many pairs of zeros.
func readFrame(number uint64, slot, pairs uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 1+8+4+8+4+28*pairs)
	b = binary.LittleEndian.AppendUint64(append(b, byte(link.KindRead)), number)
	b = binary.LittleEndian.AppendUint32(b, slot)
	b = binary.LittleEndian.AppendUint64(b, 1)
	b = binary.LittleEndian.AppendUint32(b, pairs)
	return append(b, make([]byte, 28*pairs)...)
}
