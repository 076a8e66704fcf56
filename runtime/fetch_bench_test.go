package runtime_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// BenchmarkFetch shows how much of a delayed fetch's shorter half is hidden behind the longer one, with two engines.
// One copies
// chunks of 1 MiB into 256 MiB of its own, which no cache holds: it is bound by memory, as the reads are, and competes
// with them for it and
// for the cores. The other only waits for as long as a device would that takes 4 GB/s by itself. In each round a
// fetch takes turns with its reads alone (the same fetch, with a scatter that does nothing) and with its scatters alone
// (of as many
// chunks, out of buffers as large as the staging), in an order that is drawn.
//
// x-longer is the fetch's time over the longer of the two, 1 if all is hidden; x-sum that over both, 1 if nothing is.
// x-ideal compares it with what a pipeline of n batches can do at best: the longer one, and an n-th of the shorter one.
func BenchmarkFetch(b *testing.B) {
	for _, channel := range []string{"shm", "tcp"} {
		for _, shape := range []struct{ chunks, depth int }{{64, 4}, {10, 1}} {
			for _, engine := range []struct {
				name string
				code func(*fetching, *rand.Rand) runtime.Scatter
			}{{"copies", (*fetching).copies}, {"waits", (*fetching).waits}} {
				b.Run(fmt.Sprintf("%s/chunks=%d/depth=%d/%s", channel, shape.chunks, shape.depth, engine.name), func(b *testing.B) {
					f := newFetching(b, channel, shape.chunks, shape.depth)
					f.compare(b, float64(shape.depth)/float64(shape.chunks),
						func(rng *rand.Rand) runtime.Scatter { return engine.code(f, rng) })
				})
			}
		}
	}
}

// A fetching is a receiver of delayed pull, a sender that offers it chunks, and an engine's memory.
type fetching struct {
	*whole
	chunks int
	memory []byte
	staged [][]byte // as much memory as the staging has
}

const engineChunks = 256

func newFetching(b *testing.B, channel string, chunks, depth int) *fetching {
	rc := delayedConfig(b, channel, 0)
	rc.Pull.StagingBytes = uint64(2 * depth * wholeChunkBytes)
	f := &fetching{whole: newWhole(b, pullSenderConfig(b, channel, effects.Addr{}), rc), chunks: chunks,
		memory: make([]byte, engineChunks*wholeChunkBytes)}
	for i := range f.memory {
		f.memory[i] = byte(i) // What was never written is no memory yet.
	}
	for i := range 2 * depth {
		f.staged = append(f.staged, append([]byte(nil), f.memory[i*wholeChunkBytes:][:wholeChunkBytes]...))
	}
	return f
}

// copies is the engine's code: it copies each chunk of a request to a place that was drawn.
func (f *fetching) copies(rng *rand.Rand) runtime.Scatter {
	places := rng.Perm(engineChunks)[:f.chunks]
	return func(_ context.Context, first int, chunks [][]byte) error {
		for i, b := range chunks {
			copy(f.memory[places[first+i]*wholeChunkBytes:], b)
		}
		return nil
	}
}

// waits is that of an engine whose device takes chunks by itself. Its thread sleeps in the kernel: Go's timers are too
// coarse.
func (f *fetching) waits(*rand.Rand) runtime.Scatter {
	return func(_ context.Context, _ int, chunks [][]byte) error {
		due := unix.NsecToTimespec(int64(len(chunks)) * wholeChunkBytes / 4) // 4 GB/s.
		// Go's scheduler interrupts its threads.
		for unix.Nanosleep(&due, &due) == unix.EINTR {
		}
		return nil
	}
}

// compare measures fetches, and both of their halves alone; batch is the part of a fetch that one batch is.
func (f *fetching) compare(b *testing.B, batch float64, engine func(*rand.Rand) runtime.Scatter) {
	t := planetest.TimeAlternatives(b, []planetest.Alternative{
		{Name: "fetch", Move: func(rng *rand.Rand) time.Duration { return f.fetch(b, rng, engine(rng)) }},
		{Name: "read", Move: func(rng *rand.Rand) time.Duration { return f.fetch(b, rng, ignore) }},
		{Name: "scatter", Move: func(rng *rand.Rand) time.Duration { return f.scatter(b, engine(rng)) }},
	})
	for _, name := range []string{"fetch", "read", "scatter"} {
		b.ReportMetric(t.Median(name)*1e3, name+":ms")
	}
	fetch, read, scatter := t.Median("fetch"), t.Median("read"), t.Median("scatter")
	b.ReportMetric(float64(f.chunks*wholeChunkBytes)/fetch/1e9, "fetch:GB/s")
	b.ReportMetric(t.Cores("fetch"), "fetch:cores")
	b.ReportMetric(min(t.Ratio("read", "fetch"), t.Ratio("scatter", "fetch")), "x-longer")
	b.ReportMetric(fetch/(read+scatter), "x-sum")
	b.ReportMetric(fetch/(max(read, scatter)+batch*min(read, scatter)), "x-ideal")
}

func ignore(context.Context, int, [][]byte) error { return nil }

// fetch offers chunks, which is not in the time, and fetches them.
func (f *fetching) fetch(b *testing.B, rng *rand.Rand, to runtime.Scatter) time.Duration {
	f.round++
	keys, pages := keysOf(fmt.Sprintf("bench-%d", f.round), f.chunks), f.batches[rng.IntN(len(f.batches))]
	res, err := f.sender.Sender().Put(b.Context(), runtime.Put{Peer: f.peer, Request: keys[0], Keys: keys, Pages: pages})
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	if _, err := f.receiver.Receiver().Fetch(b.Context(), runtime.Fetch{Request: keys[0], Keys: keys,
		Scatter: to}); err != nil {
		b.Fatal(err)
	}
	taken := time.Since(begin)
	wantReturned(b, res)
	return taken
}

// scatter does alone what a fetch's scatters do.
func (f *fetching) scatter(b *testing.B, to runtime.Scatter) time.Duration {
	half := len(f.staged) / 2
	begin := time.Now()
	for at, batch := 0, 0; at < f.chunks; at, batch = at+half, batch+1 {
		from := f.staged[batch%2*half:][:min(half, f.chunks-at)]
		if err := to(b.Context(), at, from); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}
