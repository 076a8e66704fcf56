package tcp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// A reader that takes no bytes in the middle of a page can keep neither the page from its owner nor other readers from
// their pages. When the reader continues, that read fails, and the next read works.
func TestRevokeDoesNotWaitForAStalledReader(t *testing.T) {
	const size = 16 << 20 // more than all socket buffers on the way hold
	open := tcp.Config{Streams: 1}.Open
	a, b := planetest.OpenNode(t, open, 1, 2, size), planetest.OpenNode(t, open, 2, 2, size)
	r, blob := newRelay(t, b.Plane.Blob(), stall{conn: 1, back: true, after: 64 << 10})
	pull := planetest.NewPull(a, b, a.Import(t, b.Inc, blob), 0, 1, size)
	corr := a.StartRead(pull)
	<-r.stalled

	c := planetest.OpenNode(t, open, 3, 2, size)
	other := planetest.NewPull(c, b, c.Import(t, b.Inc, b.Plane.Blob()), 1, 1, size)
	if done := c.AwaitDone(t, c.StartRead(other)); done.Code != effects.OK {
		t.Fatalf("another peer's read ended as %s", done.Code)
	}
	planetest.WantLeasedContent(t, c, other)

	b.Pool.Revoke(pull.Grant)
	planetest.AwaitEvent(t, b, func(e *effects.Revoked) bool { return e.Grant == pull.Grant })
	for _, page := range pull.From { // in the same generation
		copy(b.Pool.Bytes(page), bytes.Repeat([]byte{0xee}, size))
	}
	r.goOn()
	if done := a.AwaitDone(t, corr); done.Code != effects.Withdrawn {
		t.Fatalf("ended as %s", done.Code)
	}
	next := planetest.NewPull(a, b, pull.Link, 0, 1, size)
	if done := a.AwaitDone(t, a.StartRead(next)); done.Code != effects.OK {
		t.Fatalf("the read after it ended as %s", done.Code)
	}
	planetest.WantLeasedContent(t, a, next)
}

// A stalled read is settled at once when it is cancelled: nobody stores while waiting for bytes. Bytes that arrive
// later are discarded.
func TestCancelOfAStalledRead(t *testing.T) {
	const size = 16 << 20
	open := tcp.Config{Streams: 1}.Open
	a, b := planetest.OpenNode(t, open, 1, 2, size), planetest.OpenNode(t, open, 2, 2, size)
	r, blob := newRelay(t, b.Plane.Blob(), stall{conn: 1, back: true, after: 64 << 10})
	pull := planetest.NewPull(a, b, a.Import(t, b.Inc, blob), 0, 1, size)
	corr := a.StartRead(pull)
	<-r.stalled
	a.Plane.Cancel(corr)
	done := a.AwaitDone(t, corr)
	if done.Code != effects.Cancelled {
		t.Fatalf("ended as %s", done.Code)
	}
	if !done.Settled { // It was storing what had arrived.
		planetest.AwaitEvent(t, a, func(e *effects.Settled) bool { return e.Corr == corr })
	}
	mine := bytes.Repeat([]byte{0xee}, size)
	copy(a.Pool.Bytes(pull.Into[0]), mine)
	for range 100 { // Cancelled reads do not pile up at the owner: none is left when the stream continues.
		corr := a.StartRead(pull)
		a.Plane.Cancel(corr)
		if done := a.AwaitDone(t, corr); done.Code != effects.Cancelled || !done.Settled {
			t.Fatalf("another read on the stalled stream ended as %s, settled %v", done.Code, done.Settled)
		}
	}
	r.goOn()
	next := planetest.NewPull(a, b, pull.Link, 1, 1, size)
	if done := a.AwaitDone(t, a.StartRead(next)); done.Code != effects.OK {
		t.Fatalf("the read after it ended as %s", done.Code)
	}
	planetest.WantLeasedContent(t, a, next)
	if !bytes.Equal(a.Pool.Bytes(pull.Into[0]), mine) {
		t.Fatal("a page was stored into after its read was settled")
	}
}

// Even if all bytes of a read have arrived, the read succeeds only when the owner reports that they were under the
// lease.
func TestReadSucceedsOnlyWithTheOwnersDone(t *testing.T) {
	const size = 4096
	const welcome = 4 + 1 + 1 + 16 + 16 + 4 + 8 + 16
	open := tcp.Config{Streams: 1}.Open
	a, b := planetest.OpenNode(t, open, 1, 2, size), planetest.OpenNode(t, open, 2, 2, size)
	r, blob := newRelay(t, b.Plane.Blob(), stall{conn: 0, back: true, after: welcome})
	l := a.Import(t, b.Inc, blob)
	one, two := planetest.NewPull(a, b, l, 0, 1, size), planetest.NewPull(a, b, l, 1, 1, size)
	first, second := a.StartRead(one), a.StartRead(two)
	last := &a.Pool.Bytes(two.Into[0])[size-1]
	for want := byte(two.From[0].Generation); *last != want; {
		runtime.Gosched() // The second page is stored, and so the first is whole: they share a stream.
	}
	if planetest.CountEvents(a, func(*effects.TransferDone) bool { return true }) != 0 {
		t.Fatal("a read ended before its owner's word")
	}
	r.goOn()
	for _, corr := range []effects.Corr{first, second} {
		if done := a.AwaitDone(t, corr); done.Code != effects.OK {
			t.Fatalf("ended as %s", done.Code)
		}
	}
	planetest.WantLeasedContent(t, a, one)
	planetest.WantLeasedContent(t, a, two)
}

// No part of a page is requested or stored after the deadline.
func TestDeadlineEndsAStalledRead(t *testing.T) {
	const size = 16 << 20
	open := tcp.Config{Streams: 1}.Open
	a, b := planetest.OpenNode(t, open, 1, 1, size), planetest.OpenNode(t, open, 2, 1, size)
	r, blob := newRelay(t, b.Plane.Blob(), stall{conn: 1, back: true, after: 64 << 10})
	pull := planetest.NewPull(a, b, a.Import(t, b.Inc, blob), 0, 1, size)
	notAfter := plane.Now().Add(50 * effects.Millisecond)
	corr := a.StartReadUntil(pull, notAfter)
	for plane.Now() <= notAfter {
		runtime.Gosched()
	}
	r.goOn()
	done := a.AwaitDone(t, corr)
	if done.Code != effects.Expired {
		t.Fatalf("ended as %s", done.Code)
	}
}

// An owner that sends pages that were not requested ends the link, on both sides, and nothing else.
func TestUnrequestedPagesEndTheLink(t *testing.T) {
	const size = 4096
	head := func(number uint64, pair, length uint32) []byte {
		b := binary.LittleEndian.AppendUint64(nil, number)
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, pair), length)
	}
	for name, bytes := range map[string][]byte{
		"of transfer zero":            head(0, 0, size),
		"of a transfer to come":       head(2, 0, size),
		"of a pair that is not there": head(1, 4, size),
		"of another length":           head(1, 0, size-1),
		"longer than pages are":       head(1, 0, size+1),
		"of four billion bytes":       head(1, 0, 1<<32-1),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := planetest.OpenNode(t, tcp.Open, 1, 4, size), planetest.OpenNode(t, tcp.Open, 2, 4, size)
			// The owner never receives the read, so the read stays in flight for as long as the test needs.
			r, blob := newRelay(t, b.Plane.Blob(), stall{conn: 0, after: link.SmallFrame})
			l := a.Import(t, b.Inc, blob)
			corr := a.StartRead(planetest.NewPull(a, b, l, 0, 4, size))
			if _, err := r.initiatorConn(1).Write(bytes); err != nil {
				t.Fatal(err)
			}
			if done := a.AwaitDone(t, corr); done.Code != effects.PeerLost || !done.Settled {
				t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
			}
			planetest.AwaitEvent(t, a, func(e *effects.LinkLost) bool { return e.Link == l })
			r.goOn()
			planetest.AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Peer == a.Inc })
		})
	}
}

// A reader that takes no bytes for longer than Bounds.StallTimeout loses its link.
func TestStalledReaderLosesItsLink(t *testing.T) {
	const size = 16 << 20
	a := planetest.OpenNode(t, tcp.Config{Streams: 1}.Open, 1, 1, size)
	b := planetest.OpenNode(t, func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		env.Bounds.StallTimeout = 10 * time.Millisecond
		return tcp.Open(ctx, env)
	}, 2, 1, size)
	_, blob := newRelay(t, b.Plane.Blob(), stall{conn: 1, back: true, after: 64 << 10})
	pull := planetest.NewPull(a, b, a.Import(t, b.Inc, blob), 0, 1, size)
	corr := a.StartRead(pull)
	planetest.AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Peer == a.Inc })
	b.Pool.Revoke(pull.Grant)
	planetest.AwaitEvent(t, b, func(e *effects.Revoked) bool { return e.Grant == pull.Grant })
	done := a.AwaitDone(t, corr)
	if done.Code != effects.PeerLost {
		t.Fatalf("ended as %s", done.Code)
	}
}
