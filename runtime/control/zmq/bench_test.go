//go:build cgo && linux

package zmq_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
)

// events is the smallest sink there can be.
type events chan effects.Event

func (c events) Post(ev effects.Event) { c <- ev }

// BenchmarkRoundTrip asks 2 KiB and is answered 2 KiB, over loopback TCP: with this transport at both ends,
// and with bare blocking REQ and REP sockets, which is the floor. A round is some round trips of the one and
// of the other, in random order; both pairs stand all the time. The medians of all rounds are compared, so
// that what else happens on the machine meets both. The bare pair has a process of its own, so that neither
// pair's sleeping threads hold what the other needs of Go's scheduler.
func BenchmarkRoundTrip(b *testing.B) {
	var before, after runtime.MemStats
	ask, bare := askTransport(b, make([]byte, 2048)), startBare(b)
	var ours, floor []time.Duration
	runtime.ReadMemStats(&before)
	for b.Loop() {
		first := rand.IntN(2)
		for turn := range 2 {
			if turn == first {
				ours = append(ours, round(b, ask))
			} else {
				floor = append(floor, bare())
			}
		}
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric(0, "ns/op") // A round means nothing by itself.
	b.ReportMetric(micros(median(ours)), "transport-µs")
	b.ReportMetric(micros(median(floor)), "bare-µs")
	b.ReportMetric(micros(median(ours))/micros(median(floor)), "ratio")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(len(ours)*trips), "allocs/trip")
}

// trips is the number of round trips of one kind in one round.
const trips = 200

// round returns the median of its round trips.
func round(b *testing.B, ask func() error) time.Duration {
	b.Helper()
	times := make([]time.Duration, trips)
	for i := range times {
		start := time.Now()
		if err := ask(); err != nil {
			b.Fatal(err)
		}
		times[i] = time.Since(start)
	}
	return median(times)
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// bareRounds in the environment makes the process that startBare runs.
const bareRounds = "KVFERRY_BARE_ROUNDS"

// startBare starts the bare pair and returns what plays a round of it.
func startBare(b *testing.B) func() time.Duration {
	b.Helper()
	cmd := proctest.Self(bareRounds + "=1")
	cmd.Args = append(cmd.Args, "-test.bench=^BenchmarkBare$", "-test.benchtime=1x")
	child := proctest.Start(b, cmd)
	return func() time.Duration {
		for child.Write(""); ; {
			line, ok := child.Next(nil)
			if !ok {
				b.Fatal("the bare pair ended")
			}
			var ns int64
			if _, err := fmt.Sscanf(string(line), "round %d", &ns); err == nil {
				return time.Duration(ns)
			}
		}
	}
}

// BenchmarkBare is the other process of BenchmarkRoundTrip: it plays a round for each line that it reads.
func BenchmarkBare(b *testing.B) {
	if os.Getenv(bareRounds) == "" {
		b.Skip("part of BenchmarkRoundTrip")
	}
	ask := askBare(b, make([]byte, 2048))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Printf("\nround %d\n", round(b, ask).Nanoseconds())
	}
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
		if err := errors.Join(client.Shutdown(b.Context()), server.Shutdown(b.Context())); err != nil &&
			b.Context().Err() == nil {
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
