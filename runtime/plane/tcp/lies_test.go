package tcp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// doneFrame is a peer's message that a transfer has ended.
func doneFrame(number uint64, code effects.Code) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 1+8+1)
	return append(binary.LittleEndian.AppendUint64(append(b, byte(link.KindDone)), number), byte(code))
}

// sendAsTarget writes to the initiator in the target's name, on connection n.
func (r *relay) sendAsTarget(t *testing.T, n int, b []byte) {
	t.Helper()
	if _, err := r.initiatorConn(n).Write(b); err != nil {
		t.Fatal(err)
	}
}

// A target that sends OK while a thread of ours is in the middle of a page does not make us give that page back: the
// engine gets the page back when the thread has left, and the bytes that are sent until then are the pushed content
// (M8).
func TestNoPeerSaysThatAPushIsSettled(t *testing.T) {
	const size = 16 << 20 // more than all socket buffers on the way hold
	open := tcp.Config{Streams: 1}.Open
	a, b := planetest.OpenNode(t, open, 1, 2, size), planetest.OpenNode(t, open, 2, 2, size)
	r, blob := newRelay(t, b.Plane.Blob(), stall{conn: 1, after: 64 << 10})
	l := a.Import(t, b.Inc, blob)
	push, probe := planetest.NewWholePush(a, b, l, 0, 1, size), planetest.NewWholePush(a, b, l, 1, 1, size)
	probe.Grant = 99 // a grant that nobody gave
	corr := a.StartPush(push)
	<-r.stalled
	r.sendAsTarget(t, 0, doneFrame(1, effects.OK))
	// The target refuses the second transfer behind the lie about the first, so the second one's end shows that the
	// lie was received.
	if done := a.AwaitDone(t, a.StartPush(probe)); done.Code != effects.Withdrawn || !done.Settled {
		t.Fatalf("the second ended as %s, settled %v", done.Code, done.Settled)
	}
	if planetest.CountEvents(a, func(e *effects.TransferDone) bool { return e.Corr == corr }) > 0 {
		t.Fatal("a push ended by its target's word while a page of it was being sent")
	}
	a.Plane.Cancel(corr)
	if done := a.AwaitDone(t, corr); done.Code != effects.Cancelled || done.Settled {
		t.Fatalf("ended as %s, settled %v, while the page was being sent", done.Code, done.Settled)
	}
	r.goOn()
	planetest.AwaitEvent(t, a, func(e *effects.Settled) bool { return e.Corr == corr })
}

// A done message for bytes that were not sent ends the link, and so does one for a transfer that was not requested.
func TestEarlyDoneEndsTheLink(t *testing.T) {
	const size = 16 << 20
	open := tcp.Config{Streams: 1}.Open
	a, b := planetest.OpenNode(t, open, 1, 2, size), planetest.OpenNode(t, open, 2, 2, size)
	r, blob := newRelay(t, b.Plane.Blob(), stall{conn: 1, after: 64 << 10})
	l := a.Import(t, b.Inc, blob)
	corr := a.StartPush(planetest.NewWholePush(a, b, l, 0, 2, size)) // The second page waits behind the first.
	<-r.stalled
	r.sendAsTarget(t, 0, doneFrame(1, effects.OK))
	if done := a.AwaitDone(t, corr); done.Code != effects.PeerLost || !done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
	planetest.AwaitEvent(t, a, func(e *effects.LinkLost) bool { return e.Link == l })
}

// An owner that sends a page twice loses its link before a byte of the second copy is stored, because the page may
// belong to another transfer by then.
func TestNoPageOfAReadComesTwice(t *testing.T) {
	const size = 4096
	a, b := planetest.OpenNode(t, tcp.Config{Streams: 1}.Open, 1, 1, size), planetest.OpenNode(t, tcp.Open, 2, 1, size)
	// The owner never receives the read, so the read stays in flight for as long as the test needs.
	r, blob := newRelay(t, b.Plane.Blob(), stall{conn: 0, after: link.SmallFrame})
	l := a.Import(t, b.Inc, blob)
	pull := planetest.NewPull(a, b, l, 0, 1, size)
	corr := a.StartRead(pull)
	page := a.Pool.Bytes(pull.Into[0])
	send := func(with byte, length int) {
		head := binary.LittleEndian.AppendUint64(nil, 1)
		head = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(head, 0), size)
		r.sendAsTarget(t, 1, append(head, bytes.Repeat([]byte{with}, length)...))
	}
	send(0xaa, size)
	send(0xbb, size/2)
	for page[0] != 0xbb && planetest.CountEvents(a, func(e *effects.LinkLost) bool { return e.Link == l }) == 0 {
		runtime.Gosched()
	}
	if page[0] != 0xaa || page[size-1] != 0xaa {
		t.Fatalf("the page holds %#x; nothing was to be stored of the second", page[0])
	}
	if done := a.AwaitDone(t, corr); done.Code != effects.PeerLost || !done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
}

// Some codes describe what we ourselves did. A peer's codes describe what the peer did.
func TestAPeerSpeaksForItselfAlone(t *testing.T) {
	const size = 4096
	for code := effects.OK + 1; code <= effects.CodeCount; code++ {
		want := effects.Refused
		switch code {
		case effects.PeerLost, effects.Withdrawn, effects.Faulted, effects.Stale, effects.TooMany, effects.TooLarge,
			effects.Mismatch, effects.Invalid, effects.NotFound, effects.Corrupt:
			want = code
		}
		t.Run(code.String(), func(t *testing.T) {
			a, b := planetest.OpenNode(t, tcp.Open, 1, 1, size), planetest.OpenNode(t, tcp.Open, 2, 1, size)
			b.OnLanded(nil)
			r, blob := newRelay(t, b.Plane.Blob(), stall{})
			corr := a.StartPush(planetest.NewWholePush(a, b, a.Import(t, b.Inc, blob), 0, 1, size))
			planetest.AwaitEvent(t, b, func(*effects.Landed) bool { return true })
			r.sendAsTarget(t, 0, doneFrame(1, code))
			if done := a.AwaitDone(t, corr); done.Code != want {
				t.Fatalf("ended as %s; want %s", done.Code, want)
			}
		})
	}
}

// What a peer requests and cancels waits in its target's mailbox until the machine has confirmed it, and counts as in
// flight until then.
func TestLandingsCountAsUnderWay(t *testing.T) {
	const size, most = 4096, 4
	a, b := planetest.OpenNode(t, tcp.Open, 1, most+1, size), planetest.OpenNode(t, openBounded(most), 2, most+1, size)
	b.OnLanded(nil)
	l := a.Import(t, b.Inc, b.Plane.Blob())
	var landings []*effects.Landed
	for i := range most {
		corr := a.StartPush(planetest.NewWholePush(a, b, l, i, 1, size))
		landings = append(landings, planetest.AwaitEvent(t, b, func(*effects.Landed) bool { return true }))
		a.Plane.Cancel(corr)
		a.AwaitDone(t, corr)
	}
	beyond := planetest.NewWholePush(a, b, l, most, 1, size)
	if done := a.AwaitDone(t, a.StartPush(beyond)); done.Code != effects.TooMany {
		t.Fatalf("the push beyond them ended as %s", done.Code)
	}
	for _, landed := range landings {
		b.Plane.Confirm(landed.Landing, effects.OK)
	}
	b.OnLanded(planetest.ConfirmLanding)
	if done := a.AwaitDone(t, a.StartPush(beyond)); done.Code != effects.OK {
		t.Fatalf("the push after they were confirmed ended as %s", done.Code)
	}
}

func openBounded(transfers int) plane.Opener {
	return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		env.Bounds.Transfers = transfers
		return tcp.Open(ctx, env)
	}
}
