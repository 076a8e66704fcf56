//go:build cgo && linux

package libzmq_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/controltest/plaintest"
	"github.com/kvferry/kvferry/runtime/control/libzmq"
	"github.com/kvferry/kvferry/runtime/control/reserve"
	"github.com/kvferry/kvferry/runtime/internal/logtest"
)

var local = effects.Addr{Host: "127.0.0.1"}

func serve(t testing.TB, channel effects.Channel) (*controltest.Endpoint, effects.Addr) {
	t.Helper()
	end := controltest.Start(t, libzmq.Config{MaxMessage: 1 << 20}.Opener(),
		control.Server{Channel: channel, Addr: local})
	return end, end.Servers()[0].Addr
}

// absent is where nobody serves until the end of the test, or somebody who names it does.
func absent(t testing.TB) effects.Addr {
	t.Helper()
	port, err := reserve.Open(local.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	return port.Addr()
}

// mute is where connections are taken and nothing is ever said.
func mute(t testing.TB) effects.Addr {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return effects.Addr{Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)}
}

// until waits for a condition that the transport brings about in its own time.
func until(t testing.TB, holds func() bool) {
	t.Helper()
	for late := time.Now().Add(time.Minute); !holds(); runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatal("it did not come within a minute")
		}
	}
}

func TestBoundsHaveTheirCodes(t *testing.T) {
	server, addr := serve(t, effects.ChannelInit)
	client := controltest.Start(t, libzmq.Config{MaxConns: 1, MaxMessage: 4096, QueueBytes: 4096}.Opener())
	conn := client.Dial(effects.ChannelInit, addr)
	if got := client.TryDial(effects.ChannelInit, addr); got.Code != effects.TooMany {
		t.Errorf("second conn of one: %s", got.Code)
	}
	fits := strings.Repeat("x", 4096)
	client.WantUnanswered(client.SendRequest(conn, fits+"x"), effects.TooLarge)
	if got := client.PostMessage(conn, fits+"x"); got != effects.TooLarge {
		t.Errorf("post that is too large: %s", got)
	}
	corr := client.SendRequest(conn, fits)
	server.SendReply(server.AwaitReceived(fits).Request, "ok")
	client.WantReply(corr, "ok")
	for range 3 {
		client.Close(conn)
		if got := client.TryDial(effects.ChannelInit, absent(t)); got.Code != effects.Unreachable {
			t.Fatalf("open to nobody: %s", got.Code)
		}
		conn = client.Dial(effects.ChannelInit, addr) // The place has come back.
	}
}

func TestBindErrorsSayWhatToDo(t *testing.T) {
	server, addr := serve(t, effects.ChannelAlloc)
	for _, c := range []struct {
		server control.Server
		code   effects.Code
		says   []string
	}{
		{server.Servers()[0], effects.Refused,
			[]string{"channel alloc", `host "127.0.0.1"`, fmt.Sprint("port ", addr.Port), "already in use", "another port"}},
		{control.Server{Channel: effects.ChannelInit, Addr: effects.Addr{Host: "no..such.host"}}, effects.Refused,
			[]string{"channel init", `"no..such.host"`, "IP address"}},
		{control.Server{Channel: effects.ChannelInit, Addr: effects.Addr{Host: "a;b"}}, effects.Invalid,
			[]string{`"a;b"`, "IP address"}},
		{control.Server{Channel: 20, Addr: local}, effects.Invalid, []string{"init, alloc", "heartbeat"}},
		{control.Server{Channel: effects.ChannelFeed, Addr: local, ReportLost: true}, effects.Unsupported,
			[]string{"channel feed", "lost connections", "control.transport: zmq"}},
	} {
		// The first server is fine and must be let go again.
		fine := control.Server{Channel: effects.ChannelProxy, Addr: local}
		_, err := libzmq.Listen(libzmq.Config{}, []control.Server{fine, c.server}, controltest.NewRecorder())
		var e *control.Error
		if !errors.As(err, &e) || e.Code != c.code {
			t.Errorf("serve %+v: %v, want code %s", c.server, err, c.code)
			continue
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%q does not say %q", err, says)
			}
		}
	}
}

func TestSettingsOutOfRangeAreNamed(t *testing.T) {
	for field, config := range map[string]libzmq.Config{
		"MaxConns -1":    {MaxConns: -1},
		"MaxConns 65536": {MaxConns: 65536},
		"MaxMessage 100": {MaxMessage: 100},
		"Linger 1ns":     {Linger: 1},
		"Heartbeat 2h":   {Heartbeat: 2 * time.Hour},
		"QueueBytes 10":  {QueueBytes: 10},
		"IOThreads 65":   {IOThreads: 65},
	} {
		_, err := libzmq.Listen(config, nil, controltest.NewRecorder())
		var e *control.Error
		if !errors.As(err, &e) || e.Code != effects.Invalid || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
	_, err := libzmq.Config{}.Opener()(control.Env{Sink: controltest.NewRecorder(), MaxInbound: 4})
	var e *control.Error
	if !errors.As(err, &e) || e.Code != effects.Unsupported || !strings.Contains(err.Error(), "MaxInbound 4") {
		t.Errorf("a bound that libzmq cannot keep: got %v", err)
	}
}

func TestOldestRequestIsEvicted(t *testing.T) {
	server := controltest.Start(t, libzmq.Config{MaxRequests: 2}.Opener(),
		control.Server{Channel: effects.ChannelInit, Addr: local})
	client := controltest.Start(t, libzmq.Config{}.Opener())
	corrs := map[string]effects.Corr{}
	requests := map[string]effects.Request{}
	for _, body := range []string{"a", "b", "c"} {
		corrs[body] = client.SendRequest(client.Dial(effects.ChannelInit, server.Servers()[0].Addr), body)
		requests[body] = server.AwaitReceived(body).Request
	}
	for _, body := range []string{"a", "b", "c"} {
		server.SendReply(requests[body], body)
	}
	client.WantReply(corrs["b"], "b")
	client.WantReply(corrs["c"], "c")
	if got := server.Stats(); got.RequestsEvicted != 1 || got.RepliesDropped != 1 {
		t.Errorf("stats %+v, want one eviction and one reply dropped", got)
	}
}

// A server logs which bounds it lacks.
func TestMissingBoundsAreLogged(t *testing.T) {
	var lines logtest.Lines
	controltest.Start(t, libzmq.Config{Log: lines.Logger()}.Opener(),
		control.Server{Channel: effects.ChannelInit, Addr: local})
	if said := lines.LinesWith("bounds neither inbound connections"); len(said) != 1 ||
		!strings.Contains(said[0], "control.transport: zmq") {
		t.Errorf("logged %q", said)
	}
}

// In lockstep a second reply to one request is not taken for the reply to the next: the connection is replaced.
func TestRepliesWithoutRequest(t *testing.T) {
	router, addr := plaintest.NewServer(t, zmq4.ROUTER)
	client := controltest.Start(t, libzmq.Config{}.Opener())
	conn := client.Dial(effects.ChannelInit, addr)
	asked := func(question string) string {
		got, err := router.RecvMessage(0)
		if err != nil || len(got) != 3 || got[2] != question {
			t.Fatalf("asked %q, %v", got, err)
		}
		return got[0]
	}
	one := client.SendRequest(conn, "one")
	first := asked("one")
	plaintest.SendFrames(t, router, first, "", "to one")
	plaintest.SendFrames(t, router, first, "", "to one, again")
	client.WantReply(one, "to one")
	until(t, func() bool { return client.Stats().Unrequested == 1 })
	two := client.SendRequest(conn, "two")
	second := asked("two")
	if second == first {
		t.Error("the connection is still there")
	}
	plaintest.SendFrames(t, router, second, "", "to two")
	client.WantReply(two, "to two")
}

// On a Conn with ids a reply without a request is dropped and counted, and the connection continues. A reply without an
// id ends all requests of the connection.
func TestRepliesWithUnknownIDs(t *testing.T) {
	router, addr := plaintest.NewServer(t, zmq4.ROUTER)
	client := controltest.Start(t, libzmq.Config{}.Opener())
	conn := client.DialMany(effects.ChannelAlloc, 2, addr)
	one, two := client.SendRequest(conn, "one"), client.SendRequest(conn, "two")
	var got [2][]string
	for i := range got {
		var err error
		if got[i], err = router.RecvMessage(0); err != nil || len(got[i]) != 4 {
			t.Fatalf("asked %q, %v", got[i], err)
		}
	}
	plaintest.SendFrames(t, router, got[0][0], "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "", "to nobody")
	plaintest.SendFrames(t, router, got[1][0], got[1][1], "", "to two")
	client.WantReply(two, "to two")
	if n := client.Stats().Unrequested; n != 1 {
		t.Errorf("%d replies without a request were counted", n)
	}
	plaintest.SendFrames(t, router, got[0][0], "", "to whom")
	client.WantUnanswered(one, effects.Malformed)
	three := client.SendRequest(conn, "three")
	again, err := router.RecvMessage(0)
	if err != nil || len(again) != 4 || again[0] == got[0][0] {
		t.Fatalf("asked %q, %v", again, err)
	}
	plaintest.SendFrames(t, router, again[0], again[1], "", "to three")
	client.WantReply(three, "to three")
}

// A message that no connection has taken is not handed over, even if a queue would have room for it.
func TestPostToMutePeerIsRefused(t *testing.T) {
	client := controltest.Start(t,
		libzmq.Config{Linger: time.Millisecond, ConnectTimeout: 100 * time.Millisecond}.Opener())
	conn := client.Dial(effects.ChannelProxy, mute(t))
	for i := range 2 {
		if got := client.PostMessage(conn, "note"); got != effects.Refused {
			t.Errorf("post %d: %s, want %s", i, got, effects.Refused)
		}
	}
}

// Waiting messages are bounded for each Conn and for all together.
func TestPendingMessagesAreBounded(t *testing.T) {
	config := libzmq.Config{MaxMessage: 4096, QueueBytes: 4096, HighWater: 2, ConnectTimeout: time.Hour,
		Linger: time.Millisecond}
	client, addr := controltest.Start(t, config.Opener()), mute(t)
	one, other := client.Dial(effects.ChannelProxy, addr), client.Dial(effects.ChannelProxy, addr)
	for range 2 {
		client.Transport.Post(&effects.Post{Corr: 100, Conn: one, Body: []byte("x")})
	}
	if got := client.PostMessage(one, "x"); got != effects.Refused {
		t.Errorf("a word beyond those of a Conn: %s", got)
	}
	if got := client.PostMessage(other, strings.Repeat("x", 4095)); got != effects.Refused {
		t.Errorf("bytes beyond those of all: %s", got)
	}
	client.Close(one)
	if n := controltest.Count(client.Recorder, func(e *effects.SendDone) bool { return e.Corr == 100 }); n != 2 {
		until(t, func() bool {
			return controltest.Count(client.Recorder, func(e *effects.SendDone) bool { return e.Corr == 100 }) == 2
		})
	}
	client.Transport.Post(&effects.Post{Corr: 200, Conn: other, Body: make([]byte, 4095)})
	client.Stop()
	done := controltest.Await(t, client.Recorder, func(e *effects.SendDone) bool { return e.Corr == 200 })
	if done.Code != effects.Closed {
		t.Errorf("what waited at the end: %s", done.Code)
	}
}

func TestPeerThatReturnsGetsRequests(t *testing.T) {
	addr := absent(t)
	start := func() *controltest.Endpoint {
		return controltest.Start(t, libzmq.Config{}.Opener(), control.Server{Channel: effects.ChannelInit, Addr: addr})
	}
	var lines logtest.Lines
	client := controltest.Start(t, libzmq.Config{Reconnect: 10 * time.Millisecond, Log: lines.Logger()}.Opener())
	if got := client.TryDial(effects.ChannelInit, addr); got.Code != effects.Unreachable {
		t.Fatalf("open to nobody: %s", got.Code)
	}
	if said := lines.LinesWith("a peer cannot be reached"); len(said) != 1 || !strings.Contains(said[0], "remedy") {
		t.Errorf("logged %q", said)
	}
	first := start()
	corr := client.SendRequest(client.Dial(effects.ChannelInit, addr), "there?")
	first.SendReply(first.AwaitReceived("there?").Request, "yes")
	client.WantReply(corr, "yes")
	first.Stop()
	second := start()
	corr = client.SendRequest(client.Dial(effects.ChannelInit, addr), "and now?")
	second.SendReply(second.AwaitReceived("and now?").Request, "me")
	client.WantReply(corr, "me")
}

// A name server that does not answer delays only connections to its names, because libzmq resolves none.
func TestSilentNameServer(t *testing.T) {
	server, addr := serve(t, effects.ChannelInit)
	var looked atomic.Int32
	client := controltest.Start(t, libzmq.Config{ConnectTimeout: time.Minute, NameTimeout: time.Minute,
		Lookup: func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			looked.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}}.Opener())
	client.Open(&effects.Open{Corr: 1000, Channel: effects.ChannelInit,
		Addr: effects.Addr{Host: "silent.example", Port: 7}})
	until(t, func() bool { return looked.Load() == 1 })
	corr := client.SendRequest(client.Dial(effects.ChannelInit, addr), "ping")
	server.SendReply(server.AwaitReceived("ping").Request, "pong")
	client.WantReply(corr, "pong")
	client.Stop()
	controltest.Await(t, client.Recorder, func(e *effects.Opened) bool { return e.Corr == 1000 && e.Code == effects.Closed })
}

// A server knows the addresses of its clients. Each request of a client that named its own socket has a Conn of its
// own, because another process may have connected under that name since.
func TestClientAddresses(t *testing.T) {
	server, addr := serve(t, effects.ChannelInit)
	loopback := netip.MustParseAddr("127.0.0.1")
	named, plain := plaintest.NewSocket(t, zmq4.REQ), plaintest.NewClient(t, zmq4.REQ, addr)
	if err := errors.Join(named.SetIdentity("rank-0"),
		named.Connect(fmt.Sprintf("tcp://127.0.0.1:%d", addr.Port))); err != nil {
		t.Fatal(err)
	}
	conns := map[effects.Conn]int{}
	for i, socket := range []*zmq4.Socket{named, named, plain, plain} {
		body := fmt.Sprint("question ", i)
		plaintest.SendFrames(t, socket, body)
		got := server.AwaitReceived(body)
		conns[got.Conn]++
		if got.Origin == 0 {
			t.Errorf("question %d has no origin", i)
		}
		if from := server.Caller(got.Conn); socket == plain && from != loopback {
			t.Errorf("question %d comes from %v", i, from)
		}
		server.SendReply(got.Request, body)
		plaintest.WantFrames(t, socket, body)
	}
	if len(conns) != 3 {
		t.Errorf("the Conns are %v, want two of one question and one of two", conns)
	}
	if from := server.Caller(1 << 40); from.IsValid() {
		t.Errorf("a Conn that never was comes from %v", from)
	}
}

// A message whose frames are too large together gets a reply like a malformed request, although each frame is allowed.
func TestManyFramesOfTooManyBytes(t *testing.T) {
	server, addr := serve(t, effects.ChannelMeta)
	dealer := plaintest.NewClient(t, zmq4.DEALER, addr)
	part := strings.Repeat("x", 1<<20)
	plaintest.SendFrames(t, dealer, "", part, part)
	got := controltest.Await(t, server.Recorder, func(ev *effects.Received) bool { return ev.Request == 1 })
	if len(got.Body) != 0 {
		t.Fatalf("it has a body of %d bytes", len(got.Body))
	}
	if n := server.Stats().Malformed; n != 1 {
		t.Errorf("%d malformed messages counted, want 1", n)
	}
}
