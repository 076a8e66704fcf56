//go:build cgo && linux

package plaintest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/controltest"
)

// oneWay are the channels of PUSH and PULL: to the proxy, to a sender whose offers were read, and to a directory.
var oneWay = []effects.Channel{effects.ChannelProxy, effects.ChannelDone, effects.ChannelFeed}

// id1 is that of the first question of a Conn with a window.
const id1 = "\x00\x00\x00\x00\x00\x00\x00\x01"

// suite are tests of the transports that one opener makes.
type suite struct{ open control.Opener }

func (s suite) serve(t testing.TB, channel effects.Channel) (*controltest.End, effects.Addr) {
	t.Helper()
	end := controltest.Start(t, s.open, control.Server{Channel: channel, Addr: local})
	return end, end.Servers()[0].Addr
}

func (s suite) start(t testing.TB) *controltest.End { return controltest.Start(t, s.open) }

// Run plays plain sockets against the transports that open makes.
func Run(t *testing.T, open control.Opener) {
	s := suite{open}
	t.Run("a plain REQ is served", s.plainREQIsServed)
	t.Run("a plain REP is asked", s.plainREPIsAsked)
	t.Run("a plain PULL is told", s.plainPULLIsTold)
	t.Run("plain PUSHes are heard", s.plainPUSHesAreHeard)
	t.Run("a plain PUSH of several is heard", s.plainPUSHOfSeveralIsHeard)
	t.Run("malformed questions are answered", s.malformedQuestionsAreAnswered)
	t.Run("a malformed push is counted and survived", s.malformedPushIsCountedAndSurvived)
	t.Run("a malformed answer ends the send", s.malformedAnswerEndsTheSend)
	t.Run("plain servers give ids back", s.plainServersGiveIDsBack)
	t.Run("plain lookups", s.plainLookups)
	t.Run("plain parts", s.plainParts)
}

func (s suite) plainREQIsServed(t *testing.T) {
	server, addr := s.serve(t, effects.ChannelAlloc)
	req := Client(t, zmq4.REQ, addr)
	for _, body := range []string{"\x81\xa1k\x01", "", strings.Repeat("x", 100_000)} {
		Say(t, req, body)
		server.Answer(server.Asked(body).Request, "re "+body)
		Hear(t, req, "re "+body)
	}
}

func (s suite) plainREPIsAsked(t *testing.T) {
	rep, addr := Server(t, zmq4.REP)
	client := s.start(t)
	conn := client.Dial(effects.ChannelInit, addr)
	for _, body := range []string{"one", "", "three"} {
		corr := client.Ask(conn, body)
		Hear(t, rep, body)
		Say(t, rep, "") // LMCache-Ascend answers what it cannot do with one empty frame
		client.WantReply(corr, "")
	}
}

func (s suite) plainPULLIsTold(t *testing.T) {
	for _, channel := range oneWay {
		pull, addr := Server(t, zmq4.PULL)
		client := s.start(t)
		if code := client.Tell(client.Dial(channel, addr), "req-1"); code != effects.OK {
			t.Fatal(code)
		}
		Hear(t, pull, "req-1")
	}
}

// Words of many receivers reach the one socket on which a sender takes them, each whole and with no way to answer.
func (s suite) plainPUSHesAreHeard(t *testing.T) {
	server, addr := s.serve(t, effects.ChannelDone)
	for i := range 20 {
		Say(t, Client(t, zmq4.PUSH, addr), fmt.Sprint("done ", i))
	}
	for i := range 20 {
		if got := server.Asked(fmt.Sprint("done ", i)); got.Request != 0 || got.Channel != effects.ChannelDone {
			t.Errorf("received %+v", got)
		}
	}
}

// Workers of LMCache put what waits into one message. Each frame is heard by itself, and of too many those that fit.
func (s suite) plainPUSHOfSeveralIsHeard(t *testing.T) {
	server, addr := s.serve(t, effects.ChannelFeed)
	push := Client(t, zmq4.PUSH, addr)
	Say(t, push, "one", "", "three")
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprint("many ", i)
	}
	Say(t, push, many...)
	Say(t, push, "last")
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
func (s suite) malformedQuestionsAreAnswered(t *testing.T) {
	server, addr := s.serve(t, effects.ChannelAlloc)
	dealer := Client(t, zmq4.DEALER, addr)
	for i, c := range []struct{ asked, answered []string }{
		{[]string{"no delimiter"}, []string{"no"}},
		{[]string{""}, []string{"", "no"}},
		{[]string{"not empty", "body"}, []string{"no"}},
		{[]string{"", "body", "and more"}, []string{"", "no"}},
		{[]string{"", "", "two delimiters"}, []string{"", "no"}},
		{[]string{"", "", "", "", "", "", "", "", "", "", ""}, []string{"", "no"}},
	} {
		Say(t, dealer, c.asked...)
		got := controltest.Await(t, server.Recorder,
			func(ev *effects.Received) bool { return ev.Request == effects.Request(i+1) })
		if len(got.Body) != 0 {
			t.Fatalf("message %d has the body %q", i, got.Body)
		}
		server.Answer(got.Request, "no")
		Hear(t, dealer, c.answered...)
	}
	if n := server.Stats().Malformed; n != 6 {
		t.Errorf("%d malformed messages counted, want 6", n)
	}
	// An envelope is no fault: routers make it.
	for _, frames := range [][]string{{"", "well formed"}, {"0123", "", "of a correlating REQ"}} {
		Say(t, dealer, frames...)
		server.Answer(server.Asked(frames[len(frames)-1]).Request, "understood")
		Hear(t, dealer, append(frames[:len(frames)-1:len(frames)-1], "understood")...)
	}
	if n := server.Stats().Malformed; n != 6 {
		t.Errorf("%d malformed messages counted, want 6", n)
	}
}

func (s suite) malformedPushIsCountedAndSurvived(t *testing.T) {
	for _, channel := range oneWay {
		if channel.Framing() == effects.Several {
			continue
		}
		server, addr := s.serve(t, channel)
		push := Client(t, zmq4.PUSH, addr)
		Say(t, push, "two", "frames")
		Say(t, push, "one frame")
		server.Asked("one frame")
		if n := server.Stats().Malformed; n != 1 {
			t.Errorf("%s: %d malformed messages counted, want 1", channel, n)
		}
	}
}

func (s suite) malformedAnswerEndsTheSend(t *testing.T) {
	router, addr := Server(t, zmq4.ROUTER)
	client := s.start(t)
	conn := client.Dial(effects.ChannelInit, addr)
	corr := client.Ask(conn, "question")
	asked, err := router.RecvMessage(0)
	if err != nil || len(asked) != 3 || asked[1] != "" || asked[2] != "question" {
		t.Fatalf("asked %q, %v", asked, err)
	}
	Say(t, router, asked[0], "no delimiter", "answer")
	client.WantUnanswered(corr, effects.Malformed)
	if n := client.Stats().Malformed; n != 1 {
		t.Errorf("%d malformed messages counted, want 1", n)
	}
}

// libzmq gives back what stands before a body: a REP all up to the empty frame, and who has a ROUTER what he was told.
func (s suite) plainServersGiveIDsBack(t *testing.T) {
	for kind, answers := range map[zmq4.Type]func(s *zmq4.Socket){
		zmq4.REP: func(s *zmq4.Socket) {
			for _, q := range []string{"one", "two"} {
				Hear(t, s, q)
				Say(t, s, "to "+q)
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
				Say(t, s, append(q[:3:3], "to "+q[3])...)
			}
		},
	} {
		server, addr := Server(t, kind)
		client := s.start(t)
		conn := client.DialMany(effects.ChannelAlloc, 2, addr)
		one, two := client.Ask(conn, "one"), client.Ask(conn, "two")
		answers(server)
		client.WantReply(one, "to one")
		client.WantReply(two, "to two")
	}
}

// A lookup of LMCache-Ascend: its ROUTER takes all frames but the last one for the way back, and its DEALER sends an id
// and no empty frame.
func (s suite) plainLookups(t *testing.T) {
	router, addr := Server(t, zmq4.ROUTER)
	client := s.start(t)
	corr := client.Ask(client.DialMany(effects.ChannelLookup, 4, addr), "have you")
	got, err := router.RecvMessage(0)
	if err != nil || len(got) != 3 || got[1] != id1 || got[2] != "have you" {
		t.Fatalf("asked %q, %v", got, err)
	}
	Say(t, router, got[0], got[1], "yes")
	client.WantReply(corr, "yes")

	server, at := s.serve(t, effects.ChannelLookup)
	dealer := Client(t, zmq4.DEALER, at)
	Say(t, dealer, id1, "have you")
	server.Answer(server.Asked("have you").Request, "no")
	Hear(t, dealer, id1, "no")
}

// A description in parts, as a ROUTER with send_multipart answers a REQ.
func (s suite) plainParts(t *testing.T) {
	router, addr := Server(t, zmq4.ROUTER)
	client := s.start(t)
	corr := client.Ask(client.Dial(effects.ChannelMeta, addr), string(effects.AppendPart(nil, []byte("what"))))
	got, err := router.RecvMessage(0)
	if err != nil || len(got) != 3 || got[1] != "" || got[2] != "what" {
		t.Fatalf("asked %q, %v", got, err)
	}
	Say(t, router, got[0], "", "this", "that")
	client.WantReply(corr, string(effects.AppendPart(effects.AppendPart(nil, []byte("this")), []byte("that"))))
}
