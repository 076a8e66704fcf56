//go:build cgo && linux

package zmq_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

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

// Workers of LMCache put what waits into one message. Each frame is heard by itself, and of too many those that fit.
func TestPlainPUSHOfSeveralIsHeard(t *testing.T) {
	server, addr := serve(t, effects.ChannelFeed)
	push := plainClient(t, zmq4.PUSH, addr)
	say(t, push, "one", "", "three")
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprint("many ", i)
	}
	say(t, push, many...)
	say(t, push, "last")
	for _, want := range slices.Concat([]string{"one", "", "three"}, many[:256], []string{"last"}) {
		if got := server.Asked(want); got.Request != 0 || got.Channel != effects.ChannelFeed {
			t.Fatalf("received %+v", got)
		}
	}
	if n := server.Stats().Malformed; n != 1 {
		t.Errorf("%d messages are malformed, want 1", n)
	}
}

// Whoever asks wrongly is answered as whoever asks nothing: what comes before the body goes back in front of the
// answer.
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
		got := controltest.Await(t, server.Recorder,
			func(ev *effects.Received) bool { return ev.Request == effects.Request(i+1) })
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
		if channel.Framing() == effects.Several {
			continue
		}
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
		if err := errors.Join(req.SetIdentity("rank-0"),
			req.Connect(fmt.Sprintf("tcp://127.0.0.1:%d", addr.Port))); err != nil {
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

// libzmq gives back what stands before a body: a REP all up to the empty frame, and who has a ROUTER what he was told.
func TestPlainServersGiveIDsBack(t *testing.T) {
	for kind, answers := range map[zmq4.Type]func(s *zmq4.Socket){
		zmq4.REP: func(s *zmq4.Socket) {
			for _, q := range []string{"one", "two"} {
				hear(t, s, q)
				say(t, s, "to "+q)
			}
		},
		zmq4.ROUTER: func(s *zmq4.Socket) {
			asked := make([][]string, 2)
			for i := range asked {
				got, err := s.RecvMessage(0)
				if err != nil || len(got) != 4 {
					t.Fatalf("asked %q, %v", got, err)
				}
				asked[1-i] = got
			}
			for _, q := range asked {
				say(t, s, append(q[:3:3], "to "+q[3])...)
			}
		},
	} {
		server, addr := plainServer(t, kind)
		client := controltest.Start(t, zmq.Config{}.Opener())
		conn := client.DialMany(effects.ChannelAlloc, 2, addr)
		one, two := client.Ask(conn, "one"), client.Ask(conn, "two")
		answers(server)
		client.WantReply(one, "to one")
		client.WantReply(two, "to two")
	}
}

// A lookup of LMCache-Ascend: its ROUTER takes all frames but the last one for the way back, and its DEALER sends an id
// and no empty frame.
func TestPlainLookups(t *testing.T) {
	router, addr := plainServer(t, zmq4.ROUTER)
	client := controltest.Start(t, zmq.Config{}.Opener())
	corr := client.Ask(client.DialMany(effects.ChannelLookup, 4, addr), "have you")
	got, err := router.RecvMessage(0)
	if err != nil || len(got) != 3 || got[1] != id1 || got[2] != "have you" {
		t.Fatalf("asked %q, %v", got, err)
	}
	say(t, router, got[0], got[1], "yes")
	client.WantReply(corr, "yes")

	server, at := serve(t, effects.ChannelLookup)
	dealer := plainClient(t, zmq4.DEALER, at)
	say(t, dealer, id1, "have you")
	server.Answer(server.Asked("have you").Request, "no")
	hear(t, dealer, id1, "no")
}

// A description in parts, as a ROUTER with send_multipart answers a REQ.
func TestPlainParts(t *testing.T) {
	router, addr := plainServer(t, zmq4.ROUTER)
	client := controltest.Start(t, zmq.Config{}.Opener())
	corr := client.Ask(client.Dial(effects.ChannelMeta, addr), string(effects.AppendPart(nil, []byte("what"))))
	got, err := router.RecvMessage(0)
	if err != nil || len(got) != 3 || got[1] != "" || got[2] != "what" {
		t.Fatalf("asked %q, %v", got, err)
	}
	say(t, router, got[0], "", "this", "that")
	client.WantReply(corr, string(effects.AppendPart(effects.AppendPart(nil, []byte("this")), []byte("that"))))
}
