//go:build cgo && linux

package nixl_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/nixl"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

const (
	benchPages = 256
	benchBatch = 64
)

// The overhead of the plane over libnixl: batches of 64 pages, out of 256, are pushed by the plane, from the effect
// to its completion, with its agents in a process of their own (isolated) and in this one (plane), and written by direct
// calls of libnixl between the same memory, in turns in one run. Pages of 1 MiB measure throughput, one page of 4 KiB
// the cost of a push besides its bytes.
func BenchmarkBesideLibnixl(b *testing.B) {
	for _, c := range transports {
		for _, size := range []struct {
			name  string
			bytes int
			batch int
		}{{"64 MiB", 1 << 20, benchBatch}, {"4 KiB", 4096, 1}} {
			b.Run(c.name+", "+size.name, func(b *testing.B) { benchBeside(b, c.transports, size.bytes, size.batch) })
		}
	}
}

func benchBeside(b *testing.B, transports string, bytes, batch int) {
	p := planetest.NewLeasedPair(b, maker(transports), benchPages, uint64(bytes))
	allOfIsolated := p.NewPush(b, 0, benchPages)
	here := planetest.NewLeasedPair(b, maker(transports, func(c *nixl.Config) {
		c.Agents = nixlproc.InProcess(libnixltest.LoadLibrary(b))
	}), benchPages, uint64(bytes))
	allOfHere := here.NewPush(b, 0, benchPages)
	own := newBareAgents(b, transports, p)
	draw := func(rng *rand.Rand, all planetest.Move) planetest.Move {
		m := all
		m.Local, m.Remote = nil, nil
		from, into := rng.Perm(benchPages)[:batch], rng.Perm(benchPages)[:batch]
		slices.Sort(from)
		for i := range batch {
			m.Local, m.Remote = append(m.Local, all.Local[from[i]]), append(m.Remote, all.Remote[into[i]])
		}
		return m
	}
	times := planetest.TimeAlternatives(b, []planetest.Alternative{
		{Name: "isolated", Move: func(rng *rand.Rand) time.Duration { return timePush(b, p, draw(rng, allOfIsolated)) }},
		{Name: "plane", Move: func(rng *rand.Rand) time.Duration { return timePush(b, here, draw(rng, allOfHere)) }},
		{Name: "libnixl", Move: func(rng *rand.Rand) time.Duration {
			m := draw(rng, allOfIsolated)
			begin := time.Now()
			own.write(b, m)
			return time.Since(begin)
		}},
	})
	moved := float64(batch * bytes)
	b.ReportMetric(moved/times.Median("isolated")/1e9, "isolated:GB/s")
	b.ReportMetric(times.Median("isolated")*1e6, "isolated:µs")
	b.ReportMetric(times.Ratio("isolated", "plane"), "isolated:x-plane")
	b.ReportMetric(moved/times.Median("plane")/1e9, "plane:GB/s")
	b.ReportMetric(moved/times.Median("libnixl")/1e9, "libnixl:GB/s")
	b.ReportMetric(times.Median("plane")*1e6, "plane:µs")
	b.ReportMetric(times.Median("libnixl")*1e6, "libnixl:µs")
	b.ReportMetric(times.Ratio("plane", "libnixl"), "plane:x-libnixl")
}

func timePush(b *testing.B, p *planetest.LeasedPair, m planetest.Move) time.Duration {
	begin := time.Now()
	if done := p.A.AwaitDone(b, p.A.StartTransfer(m)); done.Code != effects.OK {
		b.Fatalf("ended as %s", done.Code)
	}
	return time.Since(begin)
}

// bareAgents has two agents of libnixl over the memory of a pair's pools, without a plane.
type bareAgents struct {
	pair  *planetest.LeasedPair
	a     *libnixl.Agent
	peer  string
	asked chan bool // the target's agent must be polled
}

func newBareAgents(b *testing.B, transports string, p *planetest.LeasedPair) *bareAgents {
	o := libnixl.AgentOptions{Params: map[string]string{"engine_config": "KEEPALIVE_INTERVAL=inf"}}
	if transports != "" {
		o.Params["engine_config"] += ",TLS=" + transports
	}
	made := func(name string, served plane.Region) (*libnixl.Agent, *libnixl.Memory) {
		o.Name = name
		agent, err := libnixltest.LoadLibrary(b).NewAgent(o)
		if err != nil {
			b.Fatal(err)
		}
		memory, err := agent.RegisterMemory(libnixl.Host, libnixl.Range{Address: uint64(served.Base), Bytes: served.Bytes})
		if err != nil {
			b.Fatal(err)
		}
		return agent, memory
	}
	a, from := made("bench-a", p.A.Pool.FirstRegion())
	t, into := made("bench-t", p.B.Pool.FirstRegion())
	metadata, err := t.Metadata()
	if err != nil {
		b.Fatal(err)
	}
	w := &bareAgents{pair: p, a: a, asked: make(chan bool)}
	if w.peer, err = a.LoadMetadata(metadata); err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // Polled while somebody waits, as the plane does.
		defer close(ended)
		for wanted := false; ; {
			var look <-chan time.Time
			if wanted {
				look = time.After(50 * time.Microsecond)
			}
			select {
			case more, ok := <-w.asked:
				if !ok {
					return
				}
				wanted = more
			case <-look:
				if _, err := t.PollNotices(); err != nil {
					b.Error(err)
				}
			}
		}
	}()
	b.Cleanup(func() {
		close(w.asked)
		<-ended
		for _, end := range []func() error{from.Close, into.Close, a.Close, t.Close} {
			if err := end(); err != nil {
				b.Error(err)
			}
		}
	})
	return w
}

// write writes what a move describes, and polls until all of it has arrived.
func (o *bareAgents) write(b *testing.B, m planetest.Move) {
	var pairs []libnixl.Pair
	for i, page := range m.Local {
		into := o.pair.B.Pool.PageAddress(m.Remote[i])
		pairs = append(pairs, libnixl.Pair{Local: uint64(o.pair.A.Pool.PageAddress(page)), Remote: uint64(into),
			Bytes: uint64(page.Length)})
	}
	t, err := o.a.NewTransfer(libnixl.TransferOptions{Operation: libnixl.Write, Peer: o.peer, Pairs: pairs})
	if err != nil {
		b.Fatal(err)
	}
	done, err := t.Post()
	waits := !done
	if waits {
		o.asked <- true
	}
	for ; !done && err == nil; done, err = t.Check() {
		runtime.Gosched()
	}
	if waits {
		o.asked <- false
	}
	if err == nil {
		err = t.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
}
