//go:build cgo && linux

package zmq_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

// events is the smallest sink there can be.
type events chan effects.Event

func (c events) Post(ev effects.Event) { c <- ev }

// BenchmarkRoundTrip asks 2 KiB and is answered 2 KiB, over loopback TCP: with this transport at both ends,
// and with bare blocking REQ and REP sockets, which is the floor. A round is some round trips of the one and
// of the other, in random order; both pairs stand all the time. The medians of all rounds are compared, so
// that what else happens on the machine meets both.
func BenchmarkRoundTrip(b *testing.B) {
	const trips = 200 // of each in one round
	body := make([]byte, 2048)
	ways := []*way{{name: "transport", ask: askTransport(b, body)}, {name: "bare", ask: askBare(b, body)}}
	for b.Loop() {
		rand.Shuffle(len(ways), func(i, j int) { ways[i], ways[j] = ways[j], ways[i] })
		for _, w := range ways {
			w.round(b, trips)
		}
	}
	b.ReportMetric(0, "ns/op") // A round means nothing by itself.
	median := map[string]float64{}
	for _, w := range ways {
		median[w.name] = w.median()
		b.ReportMetric(w.median(), w.name+"-µs")
		b.ReportMetric(float64(w.allocs)/float64(len(w.times)*trips), w.name+"-allocs")
	}
	b.ReportMetric(median["transport"]/median["bare"], "ratio")
}

// A way is one of the things that are compared.
type way struct {
	name   string
	ask    func() error // one round trip
	times  []time.Duration
	allocs uint64
}

func (w *way) round(b *testing.B, trips int) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	times := make([]time.Duration, trips)
	for i := range times {
		start := time.Now()
		if err := w.ask(); err != nil {
			b.Fatal(err)
		}
		times[i] = time.Since(start)
	}
	runtime.ReadMemStats(&after)
	slices.Sort(times)
	w.times = append(w.times, times[trips/2])
	w.allocs += after.Mallocs - before.Mallocs
}

func (w *way) median() float64 {
	slices.Sort(w.times)
	return float64(w.times[len(w.times)/2].Nanoseconds()) / 1e3
}

// askTransport starts a server and a client of ours and returns how the client asks.
func askTransport(b *testing.B, body []byte) func() error {
	b.Helper()
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
		var reply effects.Reply
		for ev := range serverEvents {
			received := ev.(*effects.Received)
			reply = effects.Reply{Request: received.Request, Body: received.Body}
			server.Reply(&reply)
		}
	}()
	b.Cleanup(func() {
		if err := errors.Join(client.Shutdown(b.Context()), server.Shutdown(b.Context())); err != nil && b.Context().Err() == nil {
			b.Error(err)
		}
		close(serverEvents)
		<-answered
	})
	client.Open(&effects.Open{Corr: 1, Channel: effects.ChannelInit, Addr: server.Servers()[0].Addr})
	send := effects.Send{Corr: 2, Conn: (<-clientEvents).(*effects.Opened).Conn, Body: body}
	return func() error {
		client.Send(&send)
		if ev, ok := (<-clientEvents).(*effects.Replied); !ok || len(ev.Body) != len(body) {
			return fmt.Errorf("not answered: %v", ev)
		}
		return nil
	}
}

// askBare starts bare sockets and returns how the REQ asks.
func askBare(b *testing.B, body []byte) func() error {
	b.Helper()
	rep, addr := plainServer(b, zmq4.REP)
	req := plain(b, zmq4.REQ)
	if err := req.Connect(fmt.Sprintf("tcp://127.0.0.1:%d", addr.Port)); err != nil {
		b.Fatal(err)
	}
	if err := rep.SetRcvtimeo(-1); err != nil { // Its turn may be long in coming.
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
	b.Cleanup(func() {
		// An empty question ends the other side.
		if _, err := req.SendBytes(nil, 0); err != nil {
			b.Error(err)
		}
		<-answered
	})
	return func() error {
		if _, err := req.SendBytes(body, 0); err != nil {
			return fmt.Errorf("ask: %w", err)
		}
		got, err := req.RecvBytes(0)
		if err == nil && len(got) != len(body) {
			err = fmt.Errorf("answered %d bytes", len(got))
		}
		return err
	}
}
