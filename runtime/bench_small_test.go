//go:build cgo && linux

package runtime_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// smallTrips is how many pushes, or round trips, one turn has.
const smallTrips = 50

// BenchmarkSmall takes turns between whole pushes of one chunk of 4 KiB, from the engine's Put to the chunk in the
// hands of the receiver's engine as in BenchmarkPush, and three round trips of bare blocking REQ and REP sockets of
// libzmq, one after the other: allocation, commit and a word to the proxy are three where each is asked by itself. The
// median of each turn counts. The bare pair has a process of its own, so that neither keeps the other's threads awake.
func BenchmarkSmall(b *testing.B) {
	bare := startBarePair(b)
	for _, p := range []struct {
		name string
		open plane.Opener
	}{{shm.Name, shm.Open}, {tcp.Name, tcp.Open}} {
		b.Run(p.name, func(b *testing.B) {
			layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: mustDtype(b, "bfloat16"),
				Shape: protocol.Shape{Dims: [4]uint32{2, 1, 64, 16}, N: 4}}
			sc, rc := senderConfig(b, p.name, effects.Addr{}), receiverConfig(b, p.name, nil)
			sc.ChunkTokens, sc.BufferBytes = layout.TokenCount(), 64*4096
			rc.ChunkTokens, rc.BufferBytes = layout.TokenCount(), 64*4096
			if err := errors.Join(sc.SetLayout(layout), rc.SetLayout(layout)); err != nil {
				b.Fatal(err)
			}
			m := &many{sender: open(b, sc), receiver: open(b, rc)}
			m.pages = mustReserve(b, m.sender, 1)
			fill(b, m.pages, keysOf("small", 1))
			t := planetest.TimeAlternatives(b, []planetest.Alternative{
				{Name: "push", Move: func(rng *rand.Rand) time.Duration {
					return medianOf(func() time.Duration { return m.move(b, rng, 1) })
				}},
				{Name: "3-trips", Move: func(*rand.Rand) time.Duration { return bare() }},
			})
			b.ReportMetric(t.Median("push")*1e6, "push-µs")
			b.ReportMetric(t.CPU("push")*1e6/smallTrips, "push-cpu-µs")
			b.ReportMetric(t.Median("3-trips")*1e6, "3-trips-µs")
			b.ReportMetric(t.Ratio("3-trips", "push"), "ratio")
			mustRelease(b, m.pages)
			mustClose(b, m.sender)
			mustClose(b, m.receiver)
		})
	}
}

// medianOf is the median of a turn.
func medianOf(one func() time.Duration) time.Duration {
	times := make([]time.Duration, smallTrips)
	for i := range times {
		times[i] = one()
	}
	slices.Sort(times)
	return times[smallTrips/2]
}

// barePair in the environment makes the process that startBarePair runs.
const barePair = "KVFERRY_BARE_PAIR"

// startBarePair starts the bare pair, and returns what plays a turn of it.
func startBarePair(b *testing.B) func() time.Duration {
	b.Helper()
	cmd := proctest.SelfCommand(barePair + "=1")
	cmd.Args = append(cmd.Args, "-test.bench=^BenchmarkBarePair$", "-test.benchtime=1x")
	child := proctest.Start(b, cmd)
	return func() time.Duration {
		for child.WriteLine(""); ; {
			line, ok := child.NextLine(nil)
			if !ok {
				b.Fatal("the bare pair ended")
			}
			var ns int64
			if _, err := fmt.Sscanf(string(line), "turn %d", &ns); err == nil {
				return time.Duration(ns)
			}
		}
	}
}

// BenchmarkBarePair is the other process of BenchmarkSmall: it plays a turn for each line that it reads.
func BenchmarkBarePair(b *testing.B) {
	if os.Getenv(barePair) == "" {
		b.Skip("part of BenchmarkSmall")
	}
	zctx, err := zmq4.NewContext()
	if err != nil {
		b.Fatal(err)
	}
	rep, err1 := zctx.NewSocket(zmq4.REP)
	req, err2 := zctx.NewSocket(zmq4.REQ)
	if err := errors.Join(err1, err2, rep.Bind("tcp://127.0.0.1:*")); err != nil {
		b.Fatal(err)
	}
	at, err := rep.GetLastEndpoint()
	if err := errors.Join(err, req.Connect(at)); err != nil {
		b.Fatal(err)
	}
	answered := make(chan error)
	go func() { // An empty question ends it.
		for {
			got, err := rep.RecvBytes(0)
			if err != nil || len(got) == 0 {
				answered <- err
				return
			}
			if _, err := rep.SendBytes(got, 0); err != nil {
				answered <- err
				return
			}
		}
	}()
	body := make([]byte, 512) // About what a request for one chunk has.
	trips := func() time.Duration {
		begin := time.Now()
		for range 3 {
			if _, err := req.SendBytes(body, 0); err != nil {
				b.Fatal(err)
			}
			if got, err := req.RecvBytes(0); err != nil || len(got) != len(body) {
				b.Fatalf("%d bytes, %v", len(got), err)
			}
		}
		return time.Since(begin)
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Printf("\nturn %d\n", medianOf(trips).Nanoseconds())
	}
	_, err = req.SendBytes(nil, 0)
	err = errors.Join(err, <-answered, req.SetLinger(0), rep.SetLinger(0), req.Close(), rep.Close(), zctx.Term())
	if err != nil {
		b.Fatal(err)
	}
}
