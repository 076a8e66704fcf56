//go:build cgo && linux

package zmq_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/controltest/plaintest"
	"github.com/kvferry/kvferry/runtime/control/libzmq"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
	"github.com/kvferry/kvferry/runtime/secure"
)

// events is the smallest possible sink.
type events chan effects.Event

func (c events) Post(ev effects.Event) { c <- ev }

// BenchmarkRoundTrip sends requests of 2 KiB and gets replies of 2 KiB over loopback TCP: with this transport at both
// ends, with that of package libzmq, and with bare blocking REQ and REP sockets. A round is a number of round trips of
// each, in random order; all pairs stay connected throughout. The medians of all rounds are compared, so that other
// load on the machine affects all pairs alike. The bare pair has a process of its own, so that neither its sleeping
// threads nor those of the others occupy what another pair needs of Go's scheduler.
func BenchmarkRoundTrip(b *testing.B) {
	body := make([]byte, 2048)
	var before, after runtime.MemStats
	pairs := map[string]func() time.Duration{"bare-µs": startBare(b)}
	allocs := map[string]uint64{}
	for name, open := range map[string]control.Opener{
		"transport-µs": zmq.Config{}.Opener(), "libzmq-µs": libzmq.Config{Log: slog.New(slog.DiscardHandler)}.Opener(),
	} {
		ask := askTransport(b, open, body)
		pairs[name] = func() time.Duration {
			runtime.ReadMemStats(&before)
			defer func() {
				runtime.ReadMemStats(&after)
				allocs[name] += after.Mallocs - before.Mallocs
			}()
			return round(b, ask)
		}
	}
	names := slices.Collect(maps.Keys(pairs))
	times := map[string][]time.Duration{}
	for b.Loop() {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			times[name] = append(times[name], pairs[name]())
		}
	}
	b.ReportMetric(0, "ns/op") // A round means nothing by itself.
	for _, name := range names {
		b.ReportMetric(micros(median(times[name])), name)
	}
	rounds := float64(len(times["bare-µs"]) * trips)
	b.ReportMetric(float64(allocs["transport-µs"])/rounds, "allocs/trip")
	b.ReportMetric(float64(allocs["libzmq-µs"])/rounds, "libzmq-allocs/trip")
}

// BenchmarkTLS compares round trips with and without TLS as BenchmarkRoundTrip does, and first requests: from the open of
// a connection to the reply.
func BenchmarkTLS(b *testing.B) {
	body := make([]byte, 2048)
	guard := newFleet(b).guard("spiffe://fleet/all/1", secure.Strict)
	times := map[string][]time.Duration{}
	kinds := map[string]func() time.Duration{}
	for name, open := range map[string]control.Opener{"plain": zmq.Config{}.Opener(), "tls": zmq.Config{Guard: guard}.Opener()} {
		ask := askTransport(b, open, body)
		kinds[name+"-trip-µs"] = func() time.Duration { return round(b, ask) }
		server, client := make(events, 64), make(events, 64)
		at := startEcho(b, open, server)
		t, err := open(control.Env{Sink: client})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = t.Shutdown(context.Background()) })
		kinds[name+"-first-µs"] = func() time.Duration {
			firsts := make([]time.Duration, trips/10)
			for i := range firsts {
				begin := time.Now()
				t.Open(&effects.Open{Corr: 1, Channel: effects.ChannelInit, Addr: at})
				conn := (<-client).(*effects.Opened).Conn
				t.Send(&effects.Send{Corr: 2, Conn: conn, Body: body})
				if _, ok := (<-client).(*effects.Replied); !ok {
					b.Fatal("not answered")
				}
				firsts[i] = time.Since(begin)
				t.Close(conn)
			}
			return median(firsts)
		}
	}
	names := slices.Collect(maps.Keys(kinds))
	for b.Loop() {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			times[name] = append(times[name], kinds[name]())
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, name := range names {
		b.ReportMetric(micros(median(times[name])), name)
	}
}

// startEcho starts a server that answers each request with the request, and returns its address.
func startEcho(b *testing.B, open control.Opener, received events) effects.Addr {
	b.Helper()
	server, err := open(control.Env{Sink: received, Servers: []control.Server{{Channel: effects.ChannelInit, Addr: local}}})
	if err != nil {
		b.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for ev := range received {
			r := ev.(*effects.Received)
			server.Reply(&effects.Reply{Request: r.Request, Body: r.Body})
		}
	}()
	b.Cleanup(func() {
		if err := server.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
		close(received)
		<-answered
	})
	return server.Servers()[0].Addr
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
	cmd := proctest.SelfCommand(bareRounds + "=1")
	cmd.Args = append(cmd.Args, "-test.bench=^BenchmarkBare$", "-test.benchtime=1x")
	child := proctest.Start(b, cmd)
	return func() time.Duration {
		for child.WriteLine(""); ; {
			line, ok := child.NextLine(nil)
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

// BenchmarkBare is the other process of BenchmarkRoundTrip: it plays one round for each line that it reads.
func BenchmarkBare(b *testing.B) {
	if os.Getenv(bareRounds) == "" {
		b.Skip("part of BenchmarkRoundTrip")
	}
	ask := askBare(b, make([]byte, 2048))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Printf("\nround %d\n", round(b, ask).Nanoseconds())
	}
}

// askTransport starts a server and a client and returns a function that makes one round trip.
func askTransport(b *testing.B, open control.Opener, body []byte) func() error {
	b.Helper()
	serverEvents, clientEvents := make(events, 64), make(events, 64)
	server, err := open(control.Env{Sink: serverEvents,
		Servers: []control.Server{{Channel: effects.ChannelInit, Addr: local}}})
	if err != nil {
		b.Fatal(err)
	}
	client, err := open(control.Env{Sink: clientEvents})
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

// askBare starts bare sockets and returns a function that makes one round trip.
func askBare(b *testing.B, body []byte) func() error {
	b.Helper()
	rep, addr := plaintest.NewServer(b, zmq4.REP)
	req := plaintest.NewSocket(b, zmq4.REQ)
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
