package zmq_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
)

// A peer that pings and reads nothing costs no memory: the bytes that wait for it show that this end is alive just as
// well as a PONG.
func TestPongsDoNotAccumulate(t *testing.T) {
	const pings = 400_000
	server, addr, _ := guarded(t, zmq.Config{HeartbeatTimeout: time.Minute}, effects.ChannelInit)
	s := knock(t, addr).greets("DEALER")
	ping := append(zmtp.AppendPing(nil, 0), "0123456789abcdef"...)
	ping[1] += 16
	many := bytes.Repeat(ping, 1000)
	for range pings / 1000 {
		if _, err := s.Write(many); err != nil {
			t.Fatal(err)
		}
	}
	// Behind all of them, and read when they are.
	question := zmtp.AppendFrame(zmtp.AppendFrame(nil, nil, true), []byte("and now"), false)
	if _, err := s.Write(question); err != nil {
		t.Fatal(err)
	}
	server.SendReply(server.AwaitReceived("and now").Request, "the end")
	pongs, tail := 0, make([]byte, 0, 1<<16)
	buf := make([]byte, 32<<10)
	for !bytes.HasSuffix(tail, []byte("the end")) {
		n, err := s.in.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		pongs += bytes.Count(buf[:n], []byte("PONG"))
		tail = append(tail[max(len(tail)-16, 0):], buf[:n]...)
	}
	if pongs == 0 || pongs > pings/2 {
		t.Errorf("%d pings of one who reads nothing were answered with %d pongs", pings, pongs)
	}
}

// While a peer reads no replies, no further requests are read from its connection.
func TestPeerThatReadsNoRepliesIsNotRead(t *testing.T) {
	const questions, answer = 200, 256 << 10
	server, addr, _ := guarded(t, zmq.Config{HeartbeatTimeout: time.Minute}, effects.ChannelInit)
	s := knock(t, addr).greets("DEALER")
	if err := s.Conn.(*net.TCPConn).SetReadBuffer(answer); err != nil { // Else the system takes some megabytes for it.
		t.Fatal(err)
	}
	for range questions {
		_, _ = s.Write(zmtp.AppendFrame(zmtp.AppendFrame(nil, nil, true), []byte("deaf"), false))
	}
	done, read := map[effects.Request]bool{}, int64(0)
	most := 0
	for len(done) < questions {
		before := len(done)
		for {
			got := take(server, func(ev *effects.Received) bool { return string(ev.Body) == "deaf" && !done[ev.Request] })
			if got == nil {
				break
			}
			done[got.Request] = true
			server.SendReply(got.Request, strings.Repeat("x", answer))
		}
		if most = max(most, int(int64(len(done))-read/answer)); most > 24 {
			t.Fatalf("%d answers wait for one who takes none", most)
		}
		if len(done) > before {
			continue
		}
		// A little is read, and more is asked.
		_ = s.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		n, err := io.CopyN(io.Discard, s.in, answer)
		if read += n; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	isServed(t, server, addr, "somebody else")
}

// take returns a message that has already arrived, or nil.
func take(e *controltest.Endpoint, fits func(*effects.Received) bool) *effects.Received {
	for _, ev := range e.Events() {
		if r, ok := ev.(*effects.Received); ok && fits(r) {
			return r
		}
	}
	return nil
}

// Envelopes are kept until the reply, so their frames are bounded: they are names of routers, which are short.
func TestEnvelopesAreShort(t *testing.T) {
	server, addr, lines := guarded(t, zmq.Config{HeartbeatTimeout: time.Minute}, effects.ChannelInit)
	s := knock(t, addr).greets("ROUTER")
	ask := func(hop int, body string) {
		wire := zmtp.AppendFrame(nil, bytes.Repeat([]byte("h"), hop), true)
		if _, err := s.Write(zmtp.AppendFrame(zmtp.AppendFrame(wire, nil, true), []byte(body), false)); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(want ...string) {
		t.Helper()
		r := zmtp.Reader{R: s.in, Limits: zmtp.Limits{Frames: 8, Bytes: 1 << 20, Skip: 1 << 20}}
		m, err := r.Next()
		if err != nil || len(m.Frames) != len(want) {
			t.Fatalf("%d frames, %v", len(m.Frames), err)
		}
		for i, f := range m.Frames {
			if string(f) != want[i] {
				t.Errorf("frame %d is %.20q of %d bytes", i, f, len(f))
			}
		}
	}
	ask(255, "short")
	server.SendReply(server.AwaitReceived("short").Request, "here")
	answered(strings.Repeat("h", 255), "", "here")
	ask(256, "long")
	got := controltest.Await(t, server.Recorder, func(ev *effects.Received) bool {
		return len(ev.Body) == 0 || string(ev.Body) == "long"
	})
	server.SendReply(got.Request, "no")
	answered("no")
	lines.await(t, "a frame before the body has more than 255 bytes")
}
