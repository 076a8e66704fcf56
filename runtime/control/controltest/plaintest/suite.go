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

// oneWay lists channels of PUSH and PULL: to the proxy, to a sender about offers that were read, and to a directory.
var oneWay = []effects.Channel{effects.ChannelProxy, effects.ChannelDone, effects.ChannelFeed}

// id1 is the id of the first request of a Conn with a window.
const id1 = "\x00\x00\x00\x00\x00\x00\x00\x01"

// suite holds the tests of the transports that an opener makes.
type suite struct{ open control.Opener }

func (s suite) startServer(t testing.TB, channel effects.Channel) (*controltest.Endpoint, effects.Addr) {
	t.Helper()
	end := controltest.Start(t, s.open, control.Server{Channel: channel, Addr: localhost})
	return end, end.Servers()[0].Addr
}

func (s suite) startClient(t testing.TB) *controltest.Endpoint { return controltest.Start(t, s.open) }

// Run plays plain sockets against the transports that open makes.
func Run(t *testing.T, open control.Opener) {
	s := suite{open}
	t.Run("a plain REQ is served", s.plainREQIsServed)
	t.Run("a plain REP is asked", s.plainREPServes)
	t.Run("a plain PULL is told", s.plainPULLReceives)
	t.Run("plain PUSHes are heard", s.plainPUSHesAreReceived)
	t.Run("a plain PUSH of several is heard", s.combinedPUSHIsReceived)
	t.Run("malformed questions are answered", s.malformedRequestsGetReplies)
	t.Run("a malformed push is counted and survived", s.malformedPushIsCounted)
	t.Run("a malformed answer ends the send", s.malformedReplyEndsTheSend)
	t.Run("plain servers give ids back", s.plainServersReturnIDs)
	t.Run("plain lookups", s.plainLookups)
	t.Run("plain parts", s.plainParts)
}

func (s suite) plainREQIsServed(t *testing.T) {
	server, addr := s.startServer(t, effects.ChannelAlloc)
	req := NewClient(t, zmq4.REQ, addr)
	for _, body := range []string{"\x81\xa1k\x01", "", strings.Repeat("x", 100_000)} {
		SendFrames(t, req, body)
		server.SendReply(server.AwaitReceived(body).Request, "re "+body)
		WantFrames(t, req, "re "+body)
	}
}

func (s suite) plainREPServes(t *testing.T) {
	rep, addr := NewServer(t, zmq4.REP)
	client := s.startClient(t)
	conn := client.Dial(effects.ChannelInit, addr)
	for _, body := range []string{"one", "", "three"} {
		corr := client.SendRequest(conn, body)
		WantFrames(t, rep, body)
		SendFrames(t, rep, "") // LMCache-Ascend replies with one empty frame to a request that it cannot carry out
		client.WantReply(corr, "")
	}
}

func (s suite) plainPULLReceives(t *testing.T) {
	for _, channel := range oneWay {
		pull, addr := NewServer(t, zmq4.PULL)
		client := s.startClient(t)
		if code := client.PostMessage(client.Dial(channel, addr), "req-1"); code != effects.OK {
			t.Fatal(code)
		}
		WantFrames(t, pull, "req-1")
	}
}

// Messages of many receivers reach the socket of a sender, each whole and without a way to reply.
func (s suite) plainPUSHesAreReceived(t *testing.T) {
	server, addr := s.startServer(t, effects.ChannelDone)
	for i := range 20 {
		SendFrames(t, NewClient(t, zmq4.PUSH, addr), fmt.Sprint("done ", i))
	}
	for i := range 20 {
		if got := server.AwaitReceived(fmt.Sprint("done ", i)); got.Request != 0 || got.Channel != effects.ChannelDone {
			t.Errorf("received %+v", got)
		}
	}
}

// Workers of LMCache combine waiting messages. Each frame is posted by itself; of too many frames the first frames
// that fit are posted.
func (s suite) combinedPUSHIsReceived(t *testing.T) {
	server, addr := s.startServer(t, effects.ChannelFeed)
	push := NewClient(t, zmq4.PUSH, addr)
	SendFrames(t, push, "one", "", "three")
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprint("many ", i)
	}
	SendFrames(t, push, many...)
	SendFrames(t, push, "last")
	for _, want := range slices.Concat([]string{"one", "", "three"}, many[:256], []string{"last"}) {
		if got := server.AwaitReceived(want); got.Request != 0 || got.Channel != effects.ChannelFeed {
			t.Fatalf("received %+v", got)
		}
	}
	if n := server.Stats().Malformed; n != 1 {
		t.Errorf("%d messages are malformed, want 1", n)
	}
}

// A malformed request gets a reply as well: the frames before the body are sent back in front of the reply.
func (s suite) malformedRequestsGetReplies(t *testing.T) {
	server, addr := s.startServer(t, effects.ChannelAlloc)
	dealer := NewClient(t, zmq4.DEALER, addr)
	for i, c := range []struct{ asked, answered []string }{
		{[]string{"no delimiter"}, []string{"no"}},
		{[]string{""}, []string{"", "no"}},
		{[]string{"not empty", "body"}, []string{"no"}},
		{[]string{"", "body", "and more"}, []string{"", "no"}},
		{[]string{"", "", "two delimiters"}, []string{"", "no"}},
		{[]string{"", "", "", "", "", "", "", "", "", "", ""}, []string{"", "no"}},
	} {
		SendFrames(t, dealer, c.asked...)
		got := controltest.Await(t, server.Recorder,
			func(ev *effects.Received) bool { return ev.Request == effects.Request(i+1) })
		if len(got.Body) != 0 {
			t.Fatalf("message %d has the body %q", i, got.Body)
		}
		server.SendReply(got.Request, "no")
		WantFrames(t, dealer, c.answered...)
	}
	if n := server.Stats().Malformed; n != 6 {
		t.Errorf("%d malformed messages counted, want 6", n)
	}
	// an envelope is not malformed: routers add an envelope
	for _, frames := range [][]string{{"", "well formed"}, {"0123", "", "of a correlating REQ"}} {
		SendFrames(t, dealer, frames...)
		server.SendReply(server.AwaitReceived(frames[len(frames)-1]).Request, "understood")
		WantFrames(t, dealer, append(frames[:len(frames)-1:len(frames)-1], "understood")...)
	}
	if n := server.Stats().Malformed; n != 6 {
		t.Errorf("%d malformed messages counted, want 6", n)
	}
}

func (s suite) malformedPushIsCounted(t *testing.T) {
	for _, channel := range oneWay {
		if channel.Framing() == effects.Several {
			continue
		}
		server, addr := s.startServer(t, channel)
		push := NewClient(t, zmq4.PUSH, addr)
		SendFrames(t, push, "two", "frames")
		SendFrames(t, push, "one frame")
		server.AwaitReceived("one frame")
		if n := server.Stats().Malformed; n != 1 {
			t.Errorf("%s: %d malformed messages counted, want 1", channel, n)
		}
	}
}

func (s suite) malformedReplyEndsTheSend(t *testing.T) {
	router, addr := NewServer(t, zmq4.ROUTER)
	client := s.startClient(t)
	conn := client.Dial(effects.ChannelInit, addr)
	corr := client.SendRequest(conn, "question")
	asked, err := router.RecvMessage(0)
	if err != nil || len(asked) != 3 || asked[1] != "" || asked[2] != "question" {
		t.Fatalf("asked %q, %v", asked, err)
	}
	SendFrames(t, router, asked[0], "no delimiter", "answer")
	client.WantUnanswered(corr, effects.Malformed)
	if n := client.Stats().Malformed; n != 1 {
		t.Errorf("%d malformed messages counted, want 1", n)
	}
}

// libzmq sends the frames before a body back: a REP all up to the empty frame, a ROUTER whatever the program sends.
func (s suite) plainServersReturnIDs(t *testing.T) {
	for kind, answers := range map[zmq4.Type]func(s *zmq4.Socket){
		zmq4.REP: func(s *zmq4.Socket) {
			for _, q := range []string{"one", "two"} {
				WantFrames(t, s, q)
				SendFrames(t, s, "to "+q)
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
				SendFrames(t, s, append(q[:3:3], "to "+q[3])...)
			}
		},
	} {
		server, addr := NewServer(t, kind)
		client := s.startClient(t)
		conn := client.DialMany(effects.ChannelAlloc, 2, addr)
		one, two := client.SendRequest(conn, "one"), client.SendRequest(conn, "two")
		answers(server)
		client.WantReply(one, "to one")
		client.WantReply(two, "to two")
	}
}

// A lookup of LMCache-Ascend: the ROUTER takes all frames but the last as the envelope, and the DEALER sends an id and
// no empty frame.
func (s suite) plainLookups(t *testing.T) {
	router, addr := NewServer(t, zmq4.ROUTER)
	client := s.startClient(t)
	corr := client.SendRequest(client.DialMany(effects.ChannelLookup, 4, addr), "have you")
	got, err := router.RecvMessage(0)
	if err != nil || len(got) != 3 || got[1] != id1 || got[2] != "have you" {
		t.Fatalf("asked %q, %v", got, err)
	}
	SendFrames(t, router, got[0], got[1], "yes")
	client.WantReply(corr, "yes")

	server, at := s.startServer(t, effects.ChannelLookup)
	dealer := NewClient(t, zmq4.DEALER, at)
	SendFrames(t, dealer, id1, "have you")
	server.SendReply(server.AwaitReceived("have you").Request, "no")
	WantFrames(t, dealer, id1, "no")
}

// A description in parts, as a ROUTER with send_multipart replies to a REQ.
func (s suite) plainParts(t *testing.T) {
	router, addr := NewServer(t, zmq4.ROUTER)
	client := s.startClient(t)
	corr := client.SendRequest(client.Dial(effects.ChannelMeta, addr), string(effects.AppendPart(nil, []byte("what"))))
	got, err := router.RecvMessage(0)
	if err != nil || len(got) != 3 || got[1] != "" || got[2] != "what" {
		t.Fatalf("asked %q, %v", got, err)
	}
	SendFrames(t, router, got[0], "", "this", "that")
	client.WantReply(corr, string(effects.AppendPart(effects.AppendPart(nil, []byte("this")), []byte("that"))))
}
