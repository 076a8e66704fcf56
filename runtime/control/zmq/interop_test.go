//go:build cgo && linux

package zmq_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/reserve"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

var local = effects.Addr{Host: "127.0.0.1"}

// plain makes a socket of plain ZeroMQ, as an LMCache process has it. What it waits for must come within
// half a minute.
func plain(t testing.TB, kind zmq4.Type) *zmq4.Socket {
	t.Helper()
	context, err := zmq4.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	s, err := context.NewSocket(kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), context.Term()); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(s.SetLinger(0), s.SetRcvtimeo(30*time.Second), s.SetSndtimeo(30*time.Second)); err != nil {
		t.Fatal(err)
	}
	return s
}

// plainServer binds a plain socket to a free port.
func plainServer(t testing.TB, kind zmq4.Type) (*zmq4.Socket, effects.Addr) {
	t.Helper()
	s := plain(t, kind)
	if err := s.Bind("tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	endpoint, err := s.GetLastEndpoint()
	if err != nil {
		t.Fatal(err)
	}
	addr := local
	if _, err := fmt.Sscanf(endpoint, "tcp://127.0.0.1:%d", &addr.Port); err != nil {
		t.Fatalf("endpoint %q: %v", endpoint, err)
	}
	return s, addr
}

func plainClient(t testing.TB, kind zmq4.Type, addr effects.Addr) *zmq4.Socket {
	t.Helper()
	s := plain(t, kind)
	if err := s.Connect(fmt.Sprintf("tcp://%s:%d", addr.Host, addr.Port)); err != nil {
		t.Fatal(err)
	}
	return s
}

func say(t testing.TB, s *zmq4.Socket, frames ...string) {
	t.Helper()
	parts := make([][]byte, len(frames))
	for i, frame := range frames {
		parts[i] = []byte(frame)
	}
	if _, err := s.SendMessage(parts); err != nil {
		t.Fatalf("send %q: %v", frames, err)
	}
}

func hear(t testing.TB, s *zmq4.Socket, want ...string) {
	t.Helper()
	got, err := s.RecvMessage(0)
	if err != nil {
		t.Fatalf("waiting for %q: %v", want, err)
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("received %q, want %q", got, want)
	}
}

func serve(t testing.TB, channel effects.Channel) (*controltest.End, effects.Addr) {
	t.Helper()
	end := controltest.Start(t, zmq.Config{MaxMessage: 1 << 20}.Opener(), control.Server{Channel: channel, Addr: local})
	return end, end.Servers()[0].Addr
}

func TestPlainREQIsServed(t *testing.T) {
	server, addr := serve(t, effects.ChannelAlloc)
	req := plainClient(t, zmq4.REQ, addr)
	for _, body := range []string{"\x81\xa1k\x01", "", strings.Repeat("x", 100_000)} {
		say(t, req, body)
		server.Answer(server.Asked(body).Request, "re "+body)
		hear(t, req, "re "+body)
	}
}

func TestPlainREPIsAsked(t *testing.T) {
	rep, addr := plainServer(t, zmq4.REP)
	client := controltest.Start(t, zmq.Config{}.Opener())
	conn := client.Dial(effects.ChannelInit, addr)
	for _, body := range []string{"one", "", "three"} {
		corr := client.Ask(conn, body)
		hear(t, rep, body)
		say(t, rep, "") // LMCache-Ascend answers what it cannot do with one empty frame
		client.WantReply(corr, "")
	}
}

// oneWay are the channels of PUSH and PULL: to the proxy, and to a sender whose offers were read.
var oneWay = []effects.Channel{effects.ChannelProxy, effects.ChannelDone}

func TestPlainPULLIsTold(t *testing.T) {
	for _, channel := range oneWay {
		pull, addr := plainServer(t, zmq4.PULL)
		client := controltest.Start(t, zmq.Config{}.Opener())
		if code := client.Tell(client.Dial(channel, addr), "req-1"); code != effects.OK {
			t.Fatal(code)
		}
		hear(t, pull, "req-1")
	}
}

// Words of many receivers reach the one socket on which a sender takes them, each whole and with no way to answer.
func TestPlainPUSHesAreHeard(t *testing.T) {
	server, addr := serve(t, effects.ChannelDone)
	for i := range 20 {
		say(t, plainClient(t, zmq4.PUSH, addr), fmt.Sprint("done ", i))
	}
	for i := range 20 {
		if got := server.Asked(fmt.Sprint("done ", i)); got.Request != 0 || got.Channel != effects.ChannelDone {
			t.Errorf("received %+v", got)
		}
	}
}

// Whoever asks wrongly is answered as whoever asks nothing: what comes before the body goes back in front of the answer.
func TestMalformedQuestionsAreAnswered(t *testing.T) {
	server, addr := serve(t, effects.ChannelAlloc)
	dealer := plainClient(t, zmq4.DEALER, addr)
	for i, c := range []struct{ asked, answered []string }{
		{[]string{"no delimiter"}, []string{"no"}},
		{[]string{""}, []string{"", "no"}},
		{[]string{"not empty", "body"}, []string{"no"}},
		{[]string{"", "body", "and more"}, []string{"", "no"}},
		{[]string{"", "", "two delimiters"}, []string{"", "no"}},
		{[]string{"", "", "", "", "", "", "", "", "", "", ""}, []string{"", "no"}},
		{[]string{"", strings.Repeat("x", 2<<20)}, []string{"", "no"}},
	} {
		say(t, dealer, c.asked...)
		got := controltest.Await(t, server.Recorder, func(ev *effects.Received) bool { return ev.Request == effects.Request(i+1) })
		if len(got.Body) != 0 {
			t.Fatalf("message %d has the body %q", i, got.Body)
		}
		server.Answer(got.Request, "no")
		hear(t, dealer, c.answered...)
	}
	if n := server.Stats().Malformed; n != 7 {
		t.Errorf("%d malformed messages counted, want 7", n)
	}
	// An envelope is no fault: routers make it.
	for _, frames := range [][]string{{"", "well formed"}, {"0123", "", "of a correlating REQ"}} {
		say(t, dealer, frames...)
		server.Answer(server.Asked(frames[len(frames)-1]).Request, "understood")
		hear(t, dealer, append(frames[:len(frames)-1:len(frames)-1], "understood")...)
	}
	if n := server.Stats().Malformed; n != 7 {
		t.Errorf("%d malformed messages counted, want 7", n)
	}
}

func TestMalformedPushIsCountedAndSurvived(t *testing.T) {
	for _, channel := range oneWay {
		server, addr := serve(t, channel)
		push := plainClient(t, zmq4.PUSH, addr)
		say(t, push, "two", "frames")
		say(t, push, "one frame")
		server.Asked("one frame")
		if n := server.Stats().Malformed; n != 1 {
			t.Errorf("%s: %d malformed messages counted, want 1", channel, n)
		}
	}
}

func TestMalformedAnswerEndsTheSend(t *testing.T) {
	router, addr := plainServer(t, zmq4.ROUTER)
	client := controltest.Start(t, zmq.Config{}.Opener())
	conn := client.Dial(effects.ChannelInit, addr)
	corr := client.Ask(conn, "question")
	asked, err := router.RecvMessage(0)
	if err != nil || len(asked) != 3 || asked[1] != "" || asked[2] != "question" {
		t.Fatalf("asked %q, %v", asked, err)
	}
	say(t, router, asked[0], "no delimiter", "answer")
	client.WantUnanswered(corr, effects.Malformed)
	if n := client.Stats().Malformed; n != 1 {
		t.Errorf("%d malformed messages counted, want 1", n)
	}
}

// A Conn is one connection, whatever its client calls itself.
func TestSelfNamedClientsKeepTheirConn(t *testing.T) {
	server, addr := serve(t, effects.ChannelInit)
	conns := map[effects.Conn]bool{}
	for range 2 {
		req := plain(t, zmq4.REQ)
		if err := errors.Join(req.SetIdentity("rank-0"), req.Connect(fmt.Sprintf("tcp://127.0.0.1:%d", addr.Port))); err != nil {
			t.Fatal(err)
		}
		for round := range 2 {
			body := fmt.Sprint(len(conns), round)
			say(t, req, body)
			got := server.Asked(body)
			conns[got.Conn] = true
			if from := server.Caller(got.Conn); from != netip.MustParseAddr("127.0.0.1") {
				t.Errorf("it comes from %v", from)
			}
			server.Answer(got.Request, body)
			hear(t, req, body)
		}
	}
	if len(conns) != 2 {
		t.Errorf("two connections are %d Conns", len(conns))
	}
}

func TestReplyToWhoIsGoneIsCounted(t *testing.T) {
	server, addr := serve(t, effects.ChannelInit)
	client := controltest.Start(t, zmq.Config{}.Opener())
	conn := client.Dial(effects.ChannelInit, addr)
	client.Ask(conn, "question")
	request := server.Asked("question").Request
	client.Stop()

	// The end is learnt in its own time. Until then replies are taken; each request can be
	// replied to once, so a second client keeps asking until the first is known to be gone.
	other := controltest.Start(t, zmq.Config{}.Opener())
	conn = other.Dial(effects.ChannelInit, addr)
	server.Answer(request, "to nobody")
	corr := other.Ask(conn, "still there?")
	server.Answer(server.Asked("still there?").Request, "yes")
	other.WantReply(corr, "yes")
	// The unknown request is dropped for certain, whatever became of the first.
	server.Answer(request, "again")
	corr = other.Ask(conn, "and now?")
	server.Answer(server.Asked("and now?").Request, "yes")
	other.WantReply(corr, "yes")
	if n := server.Stats().RepliesDropped; n < 1 || n > 2 {
		t.Errorf("%d replies dropped, want 1 or 2", n)
	}
}

func TestOldestRequestGivesWay(t *testing.T) {
	server := controltest.Start(t, zmq.Config{MaxRequests: 2}.Opener(),
		control.Server{Channel: effects.ChannelInit, Addr: local})
	client := controltest.Start(t, zmq.Config{}.Opener())
	corrs := map[string]effects.Corr{}
	requests := map[string]effects.Request{}
	for _, body := range []string{"a", "b", "c"} {
		corrs[body] = client.Ask(client.Dial(effects.ChannelInit, server.Servers()[0].Addr), body)
		requests[body] = server.Asked(body).Request
	}
	for _, body := range []string{"a", "b", "c"} {
		server.Answer(requests[body], body)
	}
	client.WantReply(corrs["b"], "b")
	client.WantReply(corrs["c"], "c")
	if got := server.Stats(); got.RequestsEvicted != 1 || got.RepliesDropped != 1 {
		t.Errorf("stats %+v, want one eviction and one reply dropped", got)
	}
}

// absentPeer is where nobody serves until somebody who names it does.
func absentPeer(t testing.TB) effects.Addr {
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

// Where nobody listens that is known at once; who comes later is found by who asks later.
func TestPeerThatIsNotThereIsUnreachable(t *testing.T) {
	for _, channel := range []effects.Channel{effects.ChannelInit, effects.ChannelAlloc, effects.ChannelProxy, effects.ChannelDone} {
		var lines logged
		addr := absentPeer(t)
		client := controltest.Start(t, zmq.Config{Log: lines.Logger()}.Opener())
		for range 3 {
			if got := client.TryDial(channel, addr); got.Code != effects.Unreachable {
				t.Fatalf("%s: %s", channel, got.Code)
			}
		}
		if said := lines.With("a peer cannot be reached"); len(said) != 1 ||
			!strings.Contains(said[0], fmt.Sprintf("127.0.0.1:%d", addr.Port)) ||
			!strings.Contains(said[0], "connection refused") || !strings.Contains(said[0], "remedy") {
			t.Errorf("logged %q", said)
		}
		server := controltest.Start(t, zmq.Config{}.Opener(), control.Server{Channel: channel, Addr: addr})
		conn := client.Dial(channel, addr)
		if channel == effects.ChannelProxy || channel == effects.ChannelDone {
			client.Tell(conn, "anybody?")
			server.Asked("anybody?")
			continue
		}
		corr := client.Ask(conn, "anybody?")
		server.Answer(server.Asked("anybody?").Request, "me")
		client.WantReply(corr, "me")
	}
}

// A Conn finds its peer again when that was away.
func TestPeerThatComesBackIsAsked(t *testing.T) {
	addr := absentPeer(t)
	start := func() *controltest.End {
		return controltest.Start(t, zmq.Config{}.Opener(), control.Server{Channel: effects.ChannelInit, Addr: addr})
	}
	first := start()
	client := controltest.Start(t, zmq.Config{Reconnect: 10 * time.Millisecond}.Opener())
	patient := client.Dial(effects.ChannelInit, addr)
	corr := client.Ask(patient, "there?")
	first.Answer(first.Asked("there?").Request, "yes")
	client.WantReply(corr, "yes")
	first.Stop()
	second := start()
	// What crosses with the end of a connection is lost, and its asker's to give up; each try has a Conn of its own but the last.
	corr = client.Ask(client.Dial(effects.ChannelInit, addr), "and now?")
	second.Answer(second.Asked("and now?").Request, "me")
	client.WantReply(corr, "me")
}

// What no connection has taken was not handed over, whatever queue would have room for it.
func TestPostToWhoTakesNothingIsRefused(t *testing.T) {
	for _, channel := range oneWay {
		client := controltest.Start(t, zmq.Config{Linger: time.Millisecond, ConnectTimeout: 100 * time.Millisecond}.Opener())
		conn := client.Dial(channel, mute(t))
		for i := range 2 {
			if got := client.Tell(conn, "note"); got != effects.Refused {
				t.Errorf("%s: post %d: %s, want %s", channel, i, got, effects.Refused)
			}
		}
	}
}

func TestBoundsHaveTheirCodes(t *testing.T) {
	server, addr := serve(t, effects.ChannelInit)
	client := controltest.Start(t, zmq.Config{MaxConns: 1, MaxMessage: 4096, QueueBytes: 4096}.Opener())
	conn := client.Dial(effects.ChannelInit, addr)
	if got := client.TryDial(effects.ChannelInit, addr); got.Code != effects.TooMany {
		t.Errorf("second conn of one: %s", got.Code)
	}
	fits := strings.Repeat("x", 4096)
	client.WantUnanswered(client.Ask(conn, fits+"x"), effects.TooLarge)
	if got := client.Tell(conn, fits+"x"); got != effects.TooLarge {
		t.Errorf("post that is too large: %s", got)
	}
	corr := client.Ask(conn, fits)
	server.Answer(server.Asked(fits).Request, "ok")
	client.WantReply(corr, "ok")
}

func TestBindErrorsSayWhatToDo(t *testing.T) {
	server, addr := serve(t, effects.ChannelAlloc)
	for _, c := range []struct {
		server control.Server
		code   effects.Code
		says   []string
	}{
		{server.Servers()[0], effects.Refused,
			[]string{"channel alloc", `host "127.0.0.1"`, fmt.Sprint("port ", addr.Port), "address already in use", "another port"}},
		{control.Server{Channel: effects.ChannelInit, Addr: effects.Addr{Host: "no..such.host"}}, effects.Refused,
			[]string{"channel init", `"no..such.host"`, "IP address"}},
		{control.Server{Channel: effects.ChannelInit, Addr: effects.Addr{Host: "a;b"}}, effects.Invalid,
			[]string{`"a;b"`, "IP address"}},
		{control.Server{Channel: 9, Addr: local}, effects.Invalid, []string{"init, alloc, proxy or done"}},
	} {
		// The first server is fine and must be let go again.
		fine := control.Server{Channel: effects.ChannelProxy, Addr: local}
		_, err := zmq.Listen(zmq.Config{}, []control.Server{fine, c.server}, controltest.NewRecorder())
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

// LMCache's example files bind localhost. ZeroMQ binds addresses; peers are told the name all the same.
func TestHostNamesAreBound(t *testing.T) {
	server := controltest.Start(t, zmq.Config{}.Opener(), control.Server{Channel: effects.ChannelAlloc, Addr: effects.Addr{Host: "localhost"}})
	addr := server.Servers()[0].Addr
	if addr.Host != "localhost" || addr.Port == 0 {
		t.Fatalf("bound %+v", addr)
	}
	client := controltest.Start(t, zmq.Config{}.Opener())
	for _, host := range []string{"localhost", "127.0.0.1"} {
		conn := client.Dial(effects.ChannelAlloc, effects.Addr{Host: host, Port: addr.Port})
		corr := client.Ask(conn, "by "+host)
		server.Answer(server.Asked("by "+host).Request, "heard")
		client.WantReply(corr, "heard")
	}
}

func TestSettingsOutOfRangeAreNamed(t *testing.T) {
	for field, config := range map[string]zmq.Config{
		"MaxConns -1":     {MaxConns: -1},
		"MaxMessage 2":    {MaxMessage: 2 << 30},
		"MaxMessage 100":  {MaxMessage: 100},
		"Linger 1ns":      {Linger: 1},
		"Heartbeat 2h":    {Heartbeat: 2 * time.Hour},
		"QueueBytes 10":   {QueueBytes: 10},
		"IOThreads 100":   {IOThreads: 100},
		"Handshake 2h":    {Handshake: 2 * time.Hour},
		"IncomingBytes 9": {IncomingBytes: 9},
	} {
		_, err := zmq.Listen(config, nil, controltest.NewRecorder())
		var e *control.Error
		if !errors.As(err, &e) || e.Code != effects.Invalid || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
}
