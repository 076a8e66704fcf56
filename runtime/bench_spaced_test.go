//go:build linux

package runtime_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// carriedBytes is how much a put has at the most that goes with its question, as by default.
const carriedBytes = 64 << 10

// spacedGap is the pause between two puts of BenchmarkSpaced. It is long enough for every thread of both processes to
// go to sleep.
const spacedGap = time.Millisecond

// spacedPolls are for how long both nodes look for answers before they sleep: never, and for longer than the pause.
var spacedPolls = []time.Duration{0, 50 * time.Microsecond, 200 * time.Microsecond, 2 * time.Millisecond}

// BenchmarkSpaced puts one chunk of 4 KiB after the other from this process to a receiver in another process, where a
// Get waits for each: with a pause before each put, and without. It reports the median and the 99th percentile of the
// time from Put to its return, and what one put costs in both processes.
func BenchmarkSpaced(b *testing.B) {
	for _, channel := range []string{shm.Name, tcp.Name} {
		for _, gap := range []time.Duration{spacedGap, 0} {
			for _, poll := range spacedPolls {
				name := channel + "/spaced"
				if gap == 0 {
					name = channel + "/together"
				}
				if poll > 0 {
					name += "/poll=" + poll.String()
				}
				b.Run(name, func(b *testing.B) { benchSpaced(b, channel, gap, poll) })
			}
		}
	}
}

func benchSpaced(b *testing.B, channel string, gap, poll time.Duration) {
	const warm = 20
	child := startSpacedReceiver(b, channel, poll)
	var at spacedWord
	child.ReceiveJSON(&at)
	cfg := senderConfig(b, channel, effects.Addr{})
	smallChunks(b, cfg)
	cfg.Poll = poll
	n := open(b, cfg)
	pages := mustReserve(b, n, 1)
	fill(b, pages, keysOf("spaced", 1))
	keys := keysOf("spaced", warm+b.N)
	put := func(i int) time.Duration {
		begin := time.Now()
		if _, err := n.Sender().Put(b.Context(), runtime.Put{Peer: at.Peer, Request: keys[i], Keys: keys[i : i+1],
			Pages: pages, Last: true}); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	child.SendJSON(warm)
	for i := range warm {
		put(i)
	}
	var before, after spacedWord
	child.ReceiveJSON(&before)
	child.SendJSON(b.N)
	mine := usageOf(b)
	times := make([]time.Duration, b.N)
	b.ResetTimer()
	for i := range b.N {
		if gap > 0 {
			time.Sleep(gap)
		}
		times[i] = put(warm + i)
	}
	b.StopTimer()
	used := usageOf(b).less(mine)
	child.ReceiveJSON(&after)
	theirs := after.Usage.less(before.Usage)
	slices.Sort(times)
	each := func(v float64) float64 { return v / float64(b.N) }
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1e3, "p99-µs")
	b.ReportMetric(each(float64((used.CPU+theirs.CPU).Nanoseconds())/1e3), "cpu-µs")
	b.ReportMetric(each(float64(used.Switches+theirs.Switches)), "switches")
	mustRelease(b, pages)
	mustClose(b, n)
	child.CloseInput()
}

// A usage is what a process has used so far.
type usage struct {
	CPU      time.Duration
	Switches int64 // of its threads, of their own accord
}

func (u usage) less(v usage) usage { return usage{u.CPU - v.CPU, u.Switches - v.Switches} }

func usageOf(b *testing.B) usage {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return usage{time.Duration(r.Utime.Nano() + r.Stime.Nano()), r.Nvcsw}
}

func smallChunks(b *testing.B, cfg *config.Config) {
	layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: mustDtype(b, "bfloat16"),
		Shape: protocol.Shape{Dims: [4]uint32{2, 1, 64, 16}, N: 4}}
	cfg.ChunkTokens, cfg.BufferBytes, cfg.Machine.Carries = layout.TokenCount(), 64*4096, carriedBytes
	if err := cfg.SetLayout(layout); err != nil {
		b.Fatal(err)
	}
}

// spacedReceiver in the environment makes the process that startSpacedReceiver runs.
const spacedReceiver = "KVFERRY_SPACED_RECEIVER"

// spacedPoll is for how long that process looks for answers before it sleeps.
const spacedPoll = "KVFERRY_SPACED_POLL"

// spacedWord is a line of the receiving process: where its node listens, or what it has used so far.
type spacedWord struct {
	Peer  runtime.Peer
	Usage usage
}

func startSpacedReceiver(b *testing.B, channel string, poll time.Duration) *proctest.Process {
	cmd := proctest.SelfCommand(spacedReceiver+"="+channel, spacedPoll+"="+poll.String())
	cmd.Args = append(cmd.Args, "-test.bench=^BenchmarkSpacedReceiver$", "-test.benchtime=1x")
	return proctest.Start(b, cmd)
}

// BenchmarkSpacedReceiver is the other process of BenchmarkSpaced. For each number that it reads it takes so many
// chunks, one after the other, with a Get that waits.
func BenchmarkSpacedReceiver(b *testing.B) {
	channel := os.Getenv(spacedReceiver)
	if channel == "" {
		b.Skip("part of BenchmarkSpaced")
	}
	cfg := receiverConfig(b, channel, nil)
	smallChunks(b, cfg)
	poll, err := time.ParseDuration(os.Getenv(spacedPoll))
	if err != nil {
		b.Fatal(err)
	}
	cfg.Poll = poll
	n := open(b, cfg)
	say := func(w spacedWord) {
		line, err := json.Marshal(w)
		if err != nil {
			b.Fatal(err)
		}
		fmt.Printf("\n%s\n", line)
	}
	say(spacedWord{Peer: peerOf(n)})
	ctx, next := b.Context(), 0
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var count int
		if err := json.Unmarshal(in.Bytes(), &count); err != nil {
			b.Fatal(err)
		}
		keys := keysOf("spaced", next+count)
		for ; next < len(keys); next++ {
			got, err := n.Receiver().Get(ctx, runtime.Get{Request: keys[next], Keys: keys[next : next+1],
				Timeout: proctest.Limit})
			if err := errors.Join(err, got.Release(ctx)); err != nil || got.Len() != 1 {
				b.Fatalf("chunk %d: %d, %v", next, got.Len(), err)
			}
		}
		say(spacedWord{Usage: usageOf(b)})
	}
	mustClose(b, n)
}
