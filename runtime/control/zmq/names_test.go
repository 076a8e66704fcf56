package zmq_test

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

// A name server that does not answer delays only connections to its names.
func TestSilentNameServer(t *testing.T) {
	server, addr := serve(t, effects.ChannelInit)
	asked := make(chan struct{}, 100)
	var lines logged
	config := zmq.Config{Log: lines.Logger(), ConnectTimeout: time.Minute, NameTimeout: time.Minute,
		Lookup: func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			asked <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
	client := controltest.Start(t, config.Opener())
	for i := range 20 {
		client.Open(&effects.Open{Corr: effects.Corr(1000 + i), Channel: effects.ChannelInit,
			Addr: effects.Addr{Host: "silent.example", Port: 7}})
	}
	<-asked
	conn := client.Dial(effects.ChannelInit, addr)
	for range 10 {
		corr := client.SendRequest(conn, "ping")
		request := controltest.Await(t, server.Recorder,
			func(ev *effects.Received) bool { return int(ev.Request) == int(corr)-1 }).Request
		server.SendReply(request, "pong")
		client.WantReply(corr, "pong")
	}
	if len(asked) != 0 {
		t.Error("one name was looked up more than once at a time")
	}
	client.Stop() // Ends what waits.
	closed := controltest.Count(client.Recorder, func(ev *effects.Opened) bool { return ev.Code == effects.Closed })
	if closed != 20 {
		t.Errorf("%d opens ended as closed, want 20", closed)
	}
}

func TestNameWithoutAddressIsUnreachable(t *testing.T) {
	var lines logged
	client := controltest.Start(t, zmq.Config{Log: lines.Logger(), NameTimeout: time.Millisecond,
		Lookup: func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil,
				ctx.Err()
		}}.Opener())
	if got := client.TryDial(effects.ChannelInit,
		effects.Addr{Host: "silent.example", Port: 7}); got.Code != effects.Unreachable {
		t.Errorf("opened: %s", got.Code)
	}
	if said := lines.LinesWith("cannot be reached"); len(said) != 1 || !strings.Contains(said[0], "silent.example:7") ||
		!strings.Contains(said[0], "the host name has no address") {
		t.Errorf("logged %q", said)
	}
}

// A name whose address changes leads new connections to the new address, at once if nothing listens at the old one.
func TestNamesThatChange(t *testing.T) {
	old, addr := serve(t, effects.ChannelInit)
	var moved atomic.Bool
	client := controltest.Start(t, zmq.Config{NameTTL: time.Hour,
		Lookup: func(context.Context, string, string) ([]netip.Addr, error) {
			if moved.Load() {
				return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}}.Opener())
	addr.Host = "decode.example"
	ask := func(server *controltest.Endpoint, question string) {
		corr := client.SendRequest(client.Dial(effects.ChannelInit, addr), question)
		server.SendReply(server.AwaitReceived(question).Request, "here")
		client.WantReply(corr, "here")
	}
	ask(old, "before")
	moved.Store(true)
	ask(old, "still believed")
	next := controltest.Start(t, zmq.Config{}.Opener(),
		control.Server{Channel: effects.ChannelInit, Addr: effects.Addr{Host: "127.0.0.2", Port: addr.Port}})
	old.Stop()
	if got := client.TryDial(effects.ChannelInit, addr); got.Code != effects.Unreachable {
		t.Fatalf("the old address: %s", got.Code)
	}
	ask(next, "after")
}
