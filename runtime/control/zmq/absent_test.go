package zmq_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/reserve"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

// absentPeer returns an address on which nothing listens until a test binds it.
func absentPeer(t testing.TB) effects.Addr {
	t.Helper()
	port, err := reserve.Open(local.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	return port.Addr()
}

// mute returns the address of a listener that accepts connections and never sends a byte.
func mute(t testing.TB) effects.Addr {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return effects.Addr{Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)}
}

// An address without a listener is reported at once; a server that starts later is found by a later Open.
func TestAbsentPeerIsUnreachable(t *testing.T) {
	for _, channel := range append([]effects.Channel{effects.ChannelInit, effects.ChannelAlloc}, oneWay...) {
		var lines logged
		addr := absentPeer(t)
		client := controltest.Start(t, zmq.Config{Log: lines.Logger()}.Opener())
		for range 3 {
			if got := client.TryDial(channel, addr); got.Code != effects.Unreachable {
				t.Fatalf("%s: %s", channel, got.Code)
			}
		}
		if said := lines.LinesWith("a peer cannot be reached"); len(said) != 1 ||
			!strings.Contains(said[0], fmt.Sprintf("127.0.0.1:%d", addr.Port)) ||
			!strings.Contains(said[0], "connection refused") || !strings.Contains(said[0], "remedy") {
			t.Errorf("logged %q", said)
		}
		server := controltest.Start(t, zmq.Config{}.Opener(), control.Server{Channel: channel, Addr: addr})
		conn := client.Dial(channel, addr)
		if !channel.HasReplies() {
			client.PostMessage(conn, "anybody?")
			server.AwaitReceived("anybody?")
			continue
		}
		corr := client.SendRequest(conn, "anybody?")
		server.SendReply(server.AwaitReceived("anybody?").Request, "me")
		client.WantReply(corr, "me")
	}
}

// A Conn reconnects when its peer returns.
func TestPeerThatReturnsGetsRequests(t *testing.T) {
	addr := absentPeer(t)
	start := func() *controltest.Endpoint {
		return controltest.Start(t, zmq.Config{}.Opener(), control.Server{Channel: effects.ChannelInit, Addr: addr})
	}
	first := start()
	client := controltest.Start(t, zmq.Config{Reconnect: 10 * time.Millisecond}.Opener())
	patient := client.Dial(effects.ChannelInit, addr)
	corr := client.SendRequest(patient, "there?")
	first.SendReply(first.AwaitReceived("there?").Request, "yes")
	client.WantReply(corr, "yes")
	first.Stop()
	second := start()
	corr = client.SendRequest(client.Dial(effects.ChannelInit, addr), "and now?")
	second.SendReply(second.AwaitReceived("and now?").Request, "me")
	client.WantReply(corr, "me")
}

// A message that no connection has taken is not handed over, even if a queue would have room for it.
func TestPostToMutePeerIsRefused(t *testing.T) {
	for _, channel := range oneWay {
		client := controltest.Start(t, zmq.Config{Linger: time.Millisecond, ConnectTimeout: 100 * time.Millisecond}.Opener())
		conn := client.Dial(channel, mute(t))
		for i := range 2 {
			if got := client.PostMessage(conn, "note"); got != effects.Refused {
				t.Errorf("%s: post %d: %s, want %s", channel, i, got, effects.Refused)
			}
		}
	}
}

// An unknown host name is not reported as a wrong port: the log says that the name has no address.
func TestUnknownHostNameIsLogged(t *testing.T) {
	var lines logged
	client := controltest.Start(t, zmq.Config{Log: lines.Logger(),
		Lookup: func(_ context.Context, _, name string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
		}}.Opener())
	if got := client.TryDial(effects.ChannelInit, effects.Addr{Host: "decode.exmaple", Port: 7300}); got.Code !=
		effects.Unreachable {
		t.Fatalf("got %s", got.Code)
	}
	if said := lines.LinesWith("a peer cannot be reached"); len(said) != 1 ||
		!strings.Contains(said[0], "the host name has no address here") || strings.Contains(said[0], "port are correct") {
		t.Errorf("logged %q", said)
	}
}
