//go:build cgo && linux

package zmq_test

import (
	"errors"
	"fmt"
	"testing"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

// events is the smallest sink there can be.
type events chan effects.Event

func (c events) Post(ev effects.Event) { c <- ev }

// BenchmarkRoundTrip asks 2 KiB and is answered 2 KiB, over loopback TCP: with this transport at both ends,
// and with bare blocking REQ and REP sockets, which is the floor.
func BenchmarkRoundTrip(b *testing.B) {
	body := make([]byte, 2048)
	b.Run("transport", func(b *testing.B) { benchmarkTransport(b, body) })
	b.Run("bare", func(b *testing.B) { benchmarkBare(b, body) })
}

func benchmarkTransport(b *testing.B, body []byte) {
	serverEvents, clientEvents := make(events, 64), make(events, 64)
	server, err := zmq.Listen(zmq.Config{}, []control.Server{{Channel: effects.ChannelInit, Addr: local}}, serverEvents)
	if err != nil {
		b.Fatal(err)
	}
	client, err := zmq.Listen(zmq.Config{}, nil, clientEvents)
	if err != nil {
		b.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for ev := range serverEvents {
			received := ev.(*effects.Received)
			server.Reply(&effects.Reply{Request: received.Request, Body: received.Body})
		}
	}()
	client.Open(&effects.Open{Corr: 1, Channel: effects.ChannelInit, Addr: server.Servers()[0].Addr})
	conn := (<-clientEvents).(*effects.Opened).Conn

	b.ReportAllocs()
	for b.Loop() {
		client.Send(&effects.Send{Corr: 2, Conn: conn, Body: body})
		if _, ok := (<-clientEvents).(*effects.Replied); !ok {
			b.Fatal("not answered")
		}
	}
	if err := errors.Join(client.Shutdown(b.Context()), server.Shutdown(b.Context())); err != nil {
		b.Fatal(err)
	}
	close(serverEvents)
	<-answered
}

func benchmarkBare(b *testing.B, body []byte) {
	rep, addr := plainServer(b, zmq4.REP)
	req := plain(b, zmq4.REQ)
	if err := req.Connect(fmt.Sprintf("tcp://127.0.0.1:%d", addr.Port)); err != nil {
		b.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for {
			got, err := rep.RecvBytes(0)
			if err != nil || len(got) == 0 {
				return
			}
			if _, err := rep.SendBytes(got, 0); err != nil {
				return
			}
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := req.SendBytes(body, 0); err != nil {
			b.Fatal(err)
		}
		if _, err := req.RecvBytes(0); err != nil {
			b.Fatal(err)
		}
	}
	// An empty question ends the other side.
	if _, err := req.SendBytes(nil, 0); err != nil {
		b.Fatal(err)
	}
	<-answered
}
