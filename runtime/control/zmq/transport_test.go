package zmq_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

var local = effects.Addr{Host: "127.0.0.1"}

func serve(t testing.TB, channel effects.Channel) (*controltest.Endpoint, effects.Addr) {
	t.Helper()
	end := controltest.Start(t, zmq.Config{MaxMessage: 1 << 20}.Opener(), control.Server{Channel: channel, Addr: local})
	return end, end.Servers()[0].Addr
}

// oneWay lists channels of PUSH and PULL: to the proxy, to a sender whose offers were read, and to a directory.
var oneWay = []effects.Channel{effects.ChannelProxy, effects.ChannelDone, effects.ChannelFeed}

func TestReplyToGonePeerIsCounted(t *testing.T) {
	server, addr := serve(t, effects.ChannelInit)
	client := controltest.Start(t, zmq.Config{}.Opener())
	conn := client.Dial(effects.ChannelInit, addr)
	client.SendRequest(conn, "question")
	request := server.AwaitReceived("question").Request
	client.Stop()

	// The end is learnt in its own time. Until then replies are taken; each request can be
	// replied to once, so a second client keeps asking until the first is known to be gone.
	other := controltest.Start(t, zmq.Config{}.Opener())
	conn = other.Dial(effects.ChannelInit, addr)
	server.SendReply(request, "to nobody")
	corr := other.SendRequest(conn, "still there?")
	server.SendReply(server.AwaitReceived("still there?").Request, "yes")
	other.WantReply(corr, "yes")
	// The unknown request is dropped for certain, whatever became of the first.
	server.SendReply(request, "again")
	corr = other.SendRequest(conn, "and now?")
	server.SendReply(server.AwaitReceived("and now?").Request, "yes")
	other.WantReply(corr, "yes")
	if n := server.Stats().RepliesDropped; n < 1 || n > 2 {
		t.Errorf("%d replies dropped, want 1 or 2", n)
	}
}

func TestOldestRequestIsEvicted(t *testing.T) {
	server := controltest.Start(t, zmq.Config{MaxRequests: 2}.Opener(),
		control.Server{Channel: effects.ChannelInit, Addr: local})
	client := controltest.Start(t, zmq.Config{}.Opener())
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

func TestBoundsHaveTheirCodes(t *testing.T) {
	server, addr := serve(t, effects.ChannelInit)
	client := controltest.Start(t, zmq.Config{MaxConns: 1, MaxMessage: 4096, QueueBytes: 4096}.Opener())
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

// LMCache's example files bind localhost. ZeroMQ binds addresses; peers still get the name.
func TestHostNamesAreBound(t *testing.T) {
	named := control.Server{Channel: effects.ChannelAlloc, Addr: effects.Addr{Host: "localhost"}}
	server := controltest.Start(t, zmq.Config{}.Opener(), named)
	addr := server.Servers()[0].Addr
	if addr.Host != "localhost" || addr.Port == 0 {
		t.Fatalf("bound %+v", addr)
	}
	client := controltest.Start(t, zmq.Config{}.Opener())
	for _, host := range []string{"localhost", "127.0.0.1"} {
		conn := client.Dial(effects.ChannelAlloc, effects.Addr{Host: host, Port: addr.Port})
		corr := client.SendRequest(conn, "by "+host)
		server.SendReply(server.AwaitReceived("by "+host).Request, "heard")
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
