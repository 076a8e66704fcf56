package zmq_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
)

// handServer serves connections by hand and can send any bytes.
type handServer struct {
	t testing.TB
	net.Listener
	addr effects.Addr
}

func newHandServer(t testing.TB) *handServer {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &handServer{t, l, effects.Addr{Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)}}
}

// accept waits for one connection.
func (h *handServer) accept() *stranger {
	h.t.Helper()
	_ = h.Listener.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	conn, err := h.Accept()
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	return &stranger{t: h.t, in: bufio.NewReader(conn), Conn: conn}
}

// wantMessage reads one message and compares its last frame.
func (s *stranger) wantMessage(want string) {
	s.t.Helper()
	r := zmtp.Reader{R: s.in, Limits: zmtp.Limits{Frames: 2, Bytes: 16 << 20}}
	_ = s.SetReadDeadline(time.Now().Add(time.Minute))
	m, err := r.Next()
	if err != nil || len(m.Frames) == 0 || string(m.Frames[len(m.Frames)-1]) != want {
		s.t.Fatalf("heard %d frames instead of %.20q: %v", len(m.Frames), want, err)
	}
}

func (s *stranger) says(frames ...string) {
	s.t.Helper()
	var wire []byte
	for i, f := range frames {
		wire = zmtp.AppendFrame(wire, []byte(f), i < len(frames)-1)
	}
	if _, err := s.Write(wire); err != nil {
		s.t.Fatal(err)
	}
}

// endings counts the completions of a Send or Post.
func endings(c *controltest.Endpoint, corr effects.Corr) int {
	return controltest.Count(c.Recorder, func(e *effects.Unanswered) bool { return e.Corr == corr }) +
		controltest.Count(c.Recorder, func(e *effects.Replied) bool { return e.Corr == corr }) +
		controltest.Count(c.Recorder, func(e *effects.SendDone) bool { return e.Corr == corr })
}

// wantPosted checks that a posted message arrives.
func (s *stranger) wantPosted(c *controltest.Endpoint, corr effects.Corr) {
	s.t.Helper()
	done := func(e *effects.SendDone) bool { return e.Corr == corr }
	if got := controltest.Await(s.t, c.Recorder, done); got.Code != effects.OK {
		s.t.Errorf("told: %s", got.Code)
	}
}

func quietConfig(c zmq.Config) (zmq.Config, *logged) {
	lines := &logged{}
	c.Log = lines.Logger()
	return c, lines
}

// A reply without an end costs a bounded number of bytes, ends its request, and is logged once. The Conn is usable for
// the next request.
func TestEndlessReplies(t *testing.T) {
	const message, most = 64 << 10, 1 << 20
	huge := []byte{3, 0, 0, 1, 0, 0, 0, 0, 0}
	for name, frame := range map[string][]byte{
		"empty frames":           zmtp.AppendFrame(nil, nil, true),
		"small frames":           zmtp.AppendFrame(nil, make([]byte, 100), true),
		"half of what there may": zmtp.AppendFrame(nil, make([]byte, message/2), true),
		"frames that are large":  zmtp.AppendFrame(nil, make([]byte, 100_000), true),
		"a frame of a TiB":       append(huge, make([]byte, 100_000)...),
	} {
		t.Run(name, func(t *testing.T) {
			config, lines := quietConfig(zmq.Config{MaxMessage: message})
			client, h := controltest.Start(t, config.Opener()), newHandServer(t)
			conn := client.Dial(effects.ChannelInit, h.addr)
			s := h.accept().greets("ROUTER")
			for i := range 3 {
				corr := client.SendRequest(conn, "question")
				if i > 0 {
					s = h.accept().greets("ROUTER")
				}
				s.wantMessage("question")
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				sent, err := 0, error(nil)
				for n := 0; err == nil && sent < 1<<28; sent += n {
					n, err = s.Write(frame)
				}
				if err == nil {
					t.Fatalf("%d bytes of one answer were taken", sent)
				}
				client.WantUnanswered(corr, effects.Malformed)
				if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > most {
					t.Errorf("%d bytes took %d of ours", sent, after.TotalAlloc-before.TotalAlloc)
				}
			}
			corr := client.SendRequest(conn, "and now")
			s = h.accept().greets("ROUTER")
			s.wantMessage("and now")
			s.says("", "an answer")
			client.WantReply(corr, "an answer")
			lines.await(t, "is malformed")
			said := lines.LinesWith("a connection to a peer has ended")
			if len(said) != 1 || !strings.Contains(said[0], "from="+h.Addr().String()) {
				t.Errorf("logged %q, want one line", said)
			}
			if n := client.Stats().Malformed; n != 3 {
				t.Errorf("%d malformed answers were counted", n)
			}
		})
	}
}

// A reply without a request is not taken for the reply to the next request.
func TestRepliesWithoutRequest(t *testing.T) {
	config, lines := quietConfig(zmq.Config{})
	client, h := controltest.Start(t, config.Opener()), newHandServer(t)
	conn := client.Dial(effects.ChannelAlloc, h.addr)
	s := h.accept().greets("REP")
	corr := client.SendRequest(conn, "one")
	s.wantMessage("one")
	s.says("", "first")
	client.WantReply(corr, "first")
	s.says("", "second")
	s.ends()
	corr = client.SendRequest(conn, "two")
	s = h.accept().greets("REP")
	s.wantMessage("two")
	s.says("", "third")
	client.WantReply(corr, "third")
	lines.await(t, "no request in flight")
	if n := client.Stats().Unrequested; n != 1 {
		t.Errorf("%d replies without a request were counted", n)
	}
}

// A PUSH gets no replies: a connection on which the peer sends one is closed, and the next message uses another one.
func TestReplyOnOneWayChannelClosesConnection(t *testing.T) {
	client, h := controltest.Start(t, zmq.Config{}.Opener()), newHandServer(t)
	conn := client.Dial(effects.ChannelProxy, h.addr)
	s := h.accept().greets("PULL")
	s.says("thanks")
	s.ends()
	corr := effects.Corr(100)
	client.Transport.Post(&effects.Post{Corr: corr, Conn: conn, Body: []byte("word")})
	s = h.accept().greets("PULL")
	s.wantMessage("word")
	s.wantPosted(client, corr)
}

// A request ends with the connection that has it, and is never sent again.
func TestRequestEndsWithItsConnection(t *testing.T) {
	config := zmq.Config{Heartbeat: 10 * time.Millisecond, HeartbeatTimeout: 20 * time.Millisecond}
	client, h := controltest.Start(t, config.Opener()), newHandServer(t)
	conn := client.Dial(effects.ChannelInit, h.addr)
	for i, end := range []func(*stranger){
		func(s *stranger) { _ = s.Close() },
		func(s *stranger) { _ = s.Conn.(*net.TCPConn).SetLinger(0); _ = s.Close() },
		func(s *stranger) {}, // It answers no ping.
	} {
		if i == 0 {
			client.SendRequest(conn, "lost")
		}
		s := h.accept().greets("ROUTER")
		s.wantMessage("lost")
		end(s)
		corr := effects.Corr(i + 2)
		client.WantUnanswered(corr, effects.PeerLost)
		if got := client.SendRequest(conn, "lost"); got != corr+1 {
			t.Fatalf("corr %d", got)
		}
	}
	s := h.accept().greets("ROUTER")
	s.wantMessage("lost")
	s.says("", "found")
	client.WantReply(5, "found")
}

// A message that no connection has taken waits for one that completes its handshake, even if others fail to.
func TestMessagesWaitForAHandshake(t *testing.T) {
	config, lines := quietConfig(zmq.Config{Reconnect: time.Millisecond, ReconnectMax: time.Millisecond,
		Handshake: 20 * time.Millisecond, ConnectTimeout: time.Minute})
	for _, c := range []struct {
		channel effects.Channel
		kind    string
	}{{effects.ChannelInit, "ROUTER"}, {effects.ChannelDone, "PULL"}} {
		client, h := controltest.Start(t, config.Opener()), newHandServer(t)
		conn := client.Dial(c.channel, h.addr)
		corr, asks := effects.Corr(100), c.kind == "ROUTER"
		if asks {
			client.Send(&effects.Send{Corr: corr, Conn: conn, Body: []byte("patient")})
		} else {
			client.Transport.Post(&effects.Post{Corr: corr, Conn: conn, Body: []byte("patient")})
		}
		_ = h.accept().Close()
		h.accept().ends() // It is given the time of a handshake.
		if n := endings(client, corr); n != 0 {
			t.Fatalf("%s: it has ended %d times", c.channel, n)
		}
		s := h.accept().greets(c.kind)
		s.wantMessage("patient")
		if asks {
			s.says("", "at last")
			client.WantReply(corr, "at last")
		} else {
			s.wantPosted(client, corr)
		}
	}
	lines.await(t, "took too long")
}

// A server of another type is logged, and gets no request.
func TestServersOfWrongType(t *testing.T) {
	for want, serves := range map[string]func(*stranger){
		"another protocol":      func(s *stranger) { _, _ = s.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
		"cannot talk to a PUSH": func(s *stranger) { s.greets("REP") },
		"ZMTP version 1":        func(s *stranger) { _, _ = s.Write(append(zmtp.AppendGreeting(nil)[:10], 1)) },
	} {
		config, lines := quietConfig(zmq.Config{})
		client, h := controltest.Start(t, config.Opener()), newHandServer(t)
		client.Dial(effects.ChannelProxy, h.addr)
		s := h.accept()
		serves(s)
		s.ends()
		lines.await(t, want)
	}
}

// A posted message completes once a connection has taken it: each of them can be read later, although the peer reads
// nothing yet.
func TestPostedMessagesCanBeRead(t *testing.T) {
	const size = 100_000
	client, h := controltest.Start(t, zmq.Config{ConnectTimeout: time.Second}.Opener()), newHandServer(t)
	conn := client.Dial(effects.ChannelProxy, h.addr)
	s := h.accept().greets("PULL")
	told := 0
	for word := strings.Repeat("x", size); told < 1000; told++ {
		if code := client.PostMessage(conn, word); code != effects.OK {
			if code != effects.Refused {
				t.Errorf("told: %s", code)
			}
			break
		}
	}
	client.Stop() // What it still has of its own is lost.
	_ = s.SetReadDeadline(time.Now().Add(time.Minute))
	got, err := io.ReadAll(s.in)
	whole := len(zmtp.AppendFrame(nil, make([]byte, size), false))
	if told == 0 || told == 1000 || len(got)/whole < told {
		t.Errorf("%d words were told, and %.2f can be read: %v", told, float64(len(got))/float64(whole), err)
	}
}

// Waiting messages are bounded for each Conn and for all together.
func TestPendingMessagesAreBounded(t *testing.T) {
	config := zmq.Config{MaxMessage: 4096, QueueBytes: 4096, QueueCommands: 3, HighWater: 2, ConnectTimeout: time.Hour}
	client, addr := controltest.Start(t, config.Opener()), mute(t)
	asks, tells := client.Dial(effects.ChannelInit, addr), client.Dial(effects.ChannelProxy, addr)
	large := client.SendRequest(asks, strings.Repeat("x", 4096))
	if got := client.PostMessage(tells, "x"); got != effects.Refused {
		t.Errorf("a byte beyond those of all: %s", got)
	}
	client.Close(asks)
	client.WantUnanswered(large, effects.Closed)
	for range 2 {
		client.Transport.Post(&effects.Post{Corr: 100, Conn: tells, Body: []byte("x")})
	}
	if got := client.PostMessage(tells, "x"); got != effects.Refused {
		t.Errorf("a word beyond those of a Conn: %s", got)
	}
	other := client.Dial(effects.ChannelProxy, addr)
	client.Transport.Post(&effects.Post{Corr: 100, Conn: other, Body: []byte("x")})
	if got := client.PostMessage(other, "x"); got != effects.Refused {
		t.Errorf("a message beyond those of all: %s", got)
	}
}

// A peer that read the messages and does not close its connection delays a Shutdown for Linger at most.
func TestLingerIsBounded(t *testing.T) {
	config := zmq.Config{Linger: 10 * time.Millisecond, Heartbeat: time.Hour, HeartbeatTimeout: time.Hour}
	client, h := controltest.Start(t, config.Opener()), newHandServer(t)
	conn := client.Dial(effects.ChannelProxy, h.addr)
	s := h.accept().greets("PULL")
	if code := client.PostMessage(conn, "word"); code != effects.OK {
		t.Fatal(code)
	}
	client.Stop()
	_ = s.SetReadDeadline(time.Now().Add(time.Minute))
	if got, err := io.ReadAll(s.in); err != nil && !errors.Is(err, net.ErrClosed) || !bytes.Contains(got, []byte("word")) {
		t.Errorf("read %q, %v", got, err)
	}
}

// A slot of a Conn is free again after Close, and after an Open that failed.
func TestConnSlotsAreFreed(t *testing.T) {
	client, h := controltest.Start(t, zmq.Config{MaxConns: 1}.Opener()), newHandServer(t)
	nobody := absentPeer(t)
	for range 3 {
		if got := client.TryDial(effects.ChannelInit, nobody); got.Code != effects.Unreachable {
			t.Fatalf("open to nobody: %s", got.Code)
		}
		conn := client.Dial(effects.ChannelInit, h.addr)
		if got := client.TryDial(effects.ChannelInit, h.addr); got.Code != effects.TooMany {
			t.Fatalf("a second Conn of one: %s", got.Code)
		}
		client.Close(conn)
		client.Close(conn)
	}
}
