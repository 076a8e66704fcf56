package zmq_test

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
)

// stranger is a connection on which a test can send any bytes.
type stranger struct {
	t  testing.TB
	in *bufio.Reader
	net.Conn
}

func knock(t testing.TB, addr effects.Addr) *stranger {
	t.Helper()
	conn, err := net.DialTCP("tcp4", nil, &net.TCPAddr{IP: net.ParseIP(addr.Host), Port: int(addr.Port)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &stranger{t: t, in: bufio.NewReader(conn), Conn: conn}
}

// greets completes a handshake as a socket of that type.
func (s *stranger) greets(kind string) *stranger {
	s.t.Helper()
	if _, err := s.Write(zmtp.AppendReady(zmtp.AppendGreeting(nil), kind)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := zmtp.ReadGreeting(s.in); err != nil {
		s.t.Fatal(err)
	}
	if _, err := zmtp.ReadReady(s.in); err != nil {
		s.t.Fatal(err)
	}
	return s
}

// ends waits for the end of the connection.
func (s *stranger) ends() {
	s.t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, s.in); err != nil && strings.Contains(err.Error(), "timeout") {
		s.t.Fatal("the connection stands after a minute")
	}
}

func guarded(t testing.TB, c zmq.Config, channel effects.Channel) (*controltest.Endpoint, effects.Addr, *logged) {
	t.Helper()
	lines := &logged{}
	c.Log = lines.Logger()
	end := controltest.Start(t, c.Opener(), control.Server{Channel: channel, Addr: local})
	return end, end.Servers()[0].Addr, lines
}

// isServed checks that a well-behaved peer gets replies.
func isServed(t testing.TB, server *controltest.Endpoint, addr effects.Addr, question string) {
	t.Helper()
	client := controltest.Start(t, zmq.Config{}.Opener())
	corr := client.SendRequest(client.Dial(effects.ChannelInit, addr), question)
	server.SendReply(server.AwaitReceived(question).Request, "here")
	client.WantReply(corr, "here")
}

// A message without an end ends its connection after a bounded number of bytes, and is logged once.
func TestEndlessMessages(t *testing.T) {
	const message = 64 << 10
	server, addr, lines := guarded(t, zmq.Config{MaxMessage: message}, effects.ChannelInit)
	for i, size := range []int{0, 100, 100_000} {
		s := knock(t, addr).greets("DEALER")
		frame := zmtp.AppendFrame(nil, make([]byte, size), true)
		// What the system holds on the way is its own to bound; a writer that never blocks would prove nothing.
		for sent := 0; sent < 1<<28; sent += len(frame) {
			if _, err := s.Write(frame); err != nil {
				break
			}
		}
		if _, err := s.Write(frame); err == nil {
			s.ends()
		}
		isServed(t, server, addr, "after "+string(rune('a'+i)))
	}
	lines.await(t, "a message that does not end within the limits")
	if said := lines.LinesWith("a message that does not end within the limits"); len(said) != 1 || !strings.Contains(said[0], "65536") ||
		!strings.Contains(said[0], "from=127.0.0.1") {
		t.Errorf("logged %q, want one line", said)
	}
}

// Silent connections take each other's slots, not those of peers that send requests.
func TestSilentConnections(t *testing.T) {
	server, addr, lines := guarded(t, zmq.Config{HandshakingPerAddress: 20, MaxInbound: 100}, effects.ChannelInit)
	client := controltest.Start(t, zmq.Config{}.Opener())
	conn := client.Dial(effects.ChannelInit, addr)
	ask := func(question string) {
		corr := client.SendRequest(conn, question)
		server.SendReply(server.AwaitReceived(question).Request, "here")
		client.WantReply(corr, "here")
	}
	ask("before")
	var silent []*stranger
	for range 200 {
		silent = append(silent, knock(t, addr))
	}
	ask("meanwhile")
	isServed(t, server, addr, "and somebody new")
	silent[0].ends()
	if got := server.Stats(); got.InboundConns > 30 || got.InboundEvicted < 150 {
		t.Errorf("stats %+v", got)
	}
	lines.await(t, "sent nothing was closed in favour of")
	if said := lines.LinesWith("sent nothing was closed in favour of"); len(said) != 1 || !strings.Contains(said[0], "strangers_max=20") {
		t.Errorf("logged %q, want one line", said)
	}
}

// Connections that completed their handshake and stay idle give way, too; those that wait for a reply do not.
func TestIdleConnections(t *testing.T) {
	server, addr, _ := guarded(t, zmq.Config{MaxInbound: 40, InboundPerAddress: 30}, effects.ChannelInit)
	client := controltest.Start(t, zmq.Config{}.Opener())
	corr := client.SendRequest(client.Dial(effects.ChannelInit, addr), "slow")
	request := server.AwaitReceived("slow").Request
	var idle []*stranger
	for range 100 {
		idle = append(idle, knock(t, addr).greets("REQ"))
	}
	idle[0].ends()
	isServed(t, server, addr, "somebody new")
	server.SendReply(request, "at last")
	client.WantReply(corr, "at last")
	if got := server.Stats(); got.InboundConns > 30 || got.InboundEvicted < 60 {
		t.Errorf("stats %+v", got)
	}
}

// A connection that makes no progress is closed.
func TestSlowConnectionsEnd(t *testing.T) {
	server, addr, lines := guarded(t, zmq.Config{Handshake: 20 * time.Millisecond, MessageTimeout: 20 * time.Millisecond,
		Heartbeat: 10 * time.Millisecond, HeartbeatTimeout: 20 * time.Millisecond}, effects.ChannelInit)
	knock(t, addr).ends()
	half := knock(t, addr)
	_, _ = half.Write(zmtp.AppendGreeting(nil)[:32])
	half.ends()
	slow := knock(t, addr).greets("REQ")
	_, _ = slow.Write(zmtp.AppendFrame(nil, nil, true))
	slow.ends()
	dead := knock(t, addr).greets("REQ") // It answers no ping.
	dead.ends()
	if n := server.Stats().InboundExpired; n == 0 {
		t.Error("no stranger was counted")
	}
	lines.await(t, "completed no handshake in time")
}

// Peers of a wrong socket type are logged with the type that they met.
func TestPeersOfWrongType(t *testing.T) {
	_, addr, lines := guarded(t, zmq.Config{}, effects.ChannelInit)
	http := knock(t, addr)
	_, _ = http.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	http.ends()
	lines.await(t, "another protocol")
	_, addr, lines = guarded(t, zmq.Config{}, effects.ChannelInit)
	push := knock(t, addr).greets("PUSH")
	push.ends()
	lines.await(t, "cannot talk to a ROUTER")
}

// One connection has a bounded number of requests in the machine's hands; further ones wait on the wire.
func TestRequestsOfOneConnectionAreBounded(t *testing.T) {
	server, addr, _ := guarded(t, zmq.Config{}, effects.ChannelInit)
	s := knock(t, addr).greets("DEALER")
	for range 100 {
		_, _ = s.Write(zmtp.AppendFrame(zmtp.AppendFrame(nil, nil, true), []byte("greedy"), false))
	}
	isServed(t, server, addr, "modest")
	done := map[effects.Request]bool{}
	for len(done) < 100 {
		got := controltest.Await(t, server.Recorder, func(ev *effects.Received) bool {
			return string(ev.Body) == "greedy" && !done[ev.Request]
		})
		if n := controltest.Count(server.Recorder,
			func(ev *effects.Received) bool { return string(ev.Body) == "greedy" }); n > len(done)+16 {
			t.Fatalf("%d questions are in hand, %d answered", n, len(done))
		}
		server.SendReply(got.Request, "")
		done[got.Request] = true
	}
}

// A program with several transports sets how many inbound connections each may have.
func TestInboundBoundOfSeveralTransports(t *testing.T) {
	const most = 6
	server := controltest.Start(t, func(env control.Env) (control.Transport, error) {
		env.MaxInbound = most
		return zmq.Config{}.Opener()(env)
	}, control.Server{Channel: effects.ChannelInit, Addr: local})
	addr := server.Servers()[0].Addr
	for range 10 * most {
		knock(t, addr)
	}
	isServed(t, server, addr, "somebody new") // After all of them were let in.
	if got := server.Stats(); got.InboundConns > most {
		t.Errorf("there are %d connections, of at most %d", got.InboundConns, most)
	}
}
