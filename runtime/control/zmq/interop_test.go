//go:build cgo && linux

package zmq_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/controltest/plaintest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

func TestPlainSockets(t *testing.T) {
	plaintest.Run(t, zmq.Config{}.Opener())
}

// A request that is too large gets a reply like an empty one, instead of none.
func TestOversizedRequestsGetReplies(t *testing.T) {
	server, addr := serve(t, effects.ChannelAlloc)
	dealer := plaintest.NewClient(t, zmq4.DEALER, addr)
	plaintest.SendFrames(t, dealer, "", strings.Repeat("x", 2<<20))
	got := controltest.Await(t, server.Recorder, func(ev *effects.Received) bool { return ev.Request == 1 })
	if len(got.Body) != 0 {
		t.Fatalf("it has a body of %d bytes", len(got.Body))
	}
	server.SendReply(got.Request, "no")
	plaintest.WantFrames(t, dealer, "", "no")
	if n := server.Stats().Malformed; n != 1 {
		t.Errorf("%d malformed messages counted, want 1", n)
	}
}

// A Conn stands for one connection, whatever name the client gave its socket.
func TestSelfNamedClientsKeepTheirConn(t *testing.T) {
	server, addr := serve(t, effects.ChannelInit)
	conns := map[effects.Conn]bool{}
	for range 2 {
		req := plaintest.NewSocket(t, zmq4.REQ)
		if err := errors.Join(req.SetIdentity("rank-0"),
			req.Connect(fmt.Sprintf("tcp://127.0.0.1:%d", addr.Port))); err != nil {
			t.Fatal(err)
		}
		for round := range 2 {
			body := fmt.Sprint(len(conns), round)
			plaintest.SendFrames(t, req, body)
			got := server.AwaitReceived(body)
			conns[got.Conn] = true
			if from := server.Caller(got.Conn); from != netip.MustParseAddr("127.0.0.1") {
				t.Errorf("it comes from %v", from)
			}
			server.SendReply(got.Request, body)
			plaintest.WantFrames(t, req, body)
		}
	}
	if len(conns) != 2 {
		t.Errorf("two connections are %d Conns", len(conns))
	}
}
