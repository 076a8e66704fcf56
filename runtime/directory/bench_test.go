//go:build cgo && linux

package directory_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
)

const (
	benchHashes = 100     // of one lookup: a prompt of 25,600 tokens in LMCache's chunks
	benchChunks = 100_000 // that the directory knows
)

// BenchmarkLookups makes clients look up a prefix at a directory, each as soon as its last reply arrived, and, in the
// same run, send requests to a bare ROUTER of libzmq that echoes them. Turns of both alternate; the medians of all
// turns are compared.
func BenchmarkLookups(b *testing.B) {
	for _, clients := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			d := openFilled(b)
			ours := newAskers(b, clients, effects.Addr{Host: "127.0.0.1", Port: d.Ports()[0].Reply})
			bare := newAskers(b, clients, startEcho(b))
			var a, c turn
			for b.Loop() {
				a.add(ours.turn(2000))
				c.add(bare.turn(2000))
			}
			b.ReportMetric(0, "ns/op") // A round means nothing by itself.
			b.ReportMetric(a.rate(), "lookups/s")
			b.ReportMetric(a.latency(), "lookup-µs")
			b.ReportMetric(c.rate(), "echoes/s")
			b.ReportMetric(c.latency(), "echo-µs")
			b.ReportMetric(a.rate()/c.rate(), "ratio")
		})
	}
}

// A turn holds the measurements of several turns.
type turn struct{ rates, latencies []float64 }

func (t *turn) add(took time.Duration, latencies []time.Duration) {
	slices.Sort(latencies)
	t.rates = append(t.rates, float64(len(latencies))/took.Seconds())
	t.latencies = append(t.latencies, float64(latencies[len(latencies)/2].Nanoseconds())/1e3)
}

func middle(x []float64) float64 { slices.Sort(x); return x[len(x)/2] }

func (t *turn) rate() float64    { return middle(t.rates) }
func (t *turn) latency() float64 { return middle(t.latencies) }

// openFilled opens a directory that knows some chunks of two instances.
func openFilled(b *testing.B) *directory.Directory {
	b.Helper()
	cfg, err := config.ParseDirectory("f", []byte(freePorts(b, 1)), nil)
	if err != nil {
		b.Fatal(err)
	}
	d, err := directory.Open(cfg, zmq.Config{}.Opener(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.Close(context.Background()) })
	for i := range 2 {
		w := newWorker(b, d.Ports()[0], fmt.Sprint("instance-", i), 0)
		w.register()
		for from := 0; from < benchChunks/2; from += 1000 {
			keys := make([]uint64, 1000)
			for k := range keys {
				keys[k] = uint64(from + k + 1)
			}
			w.tell(w.operations("admit", from, keys...))
		}
	}
	for {
		if f, ok := d.Figures(); !ok || f.Chunks == benchChunks {
			return d
		}
		time.Sleep(time.Millisecond)
	}
}

// startEcho starts a bare ROUTER that echoes requests.
func startEcho(b *testing.B) effects.Addr {
	b.Helper()
	c, err := zmq4.NewContext()
	if err != nil {
		b.Fatal(err)
	}
	s, err := c.NewSocket(zmq4.ROUTER)
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(s.SetLinger(0), s.SetRcvtimeo(100*time.Millisecond), s.Bind("tcp://127.0.0.1:*")); err != nil {
		b.Fatal(err)
	}
	at, err := s.GetLastEndpoint()
	addr := effects.Addr{Host: "127.0.0.1"}
	if _, e := fmt.Sscanf(at, "tcp://127.0.0.1:%d", &addr.Port); err != nil || e != nil {
		b.Fatal(at, err, e)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			frames, err := s.RecvMessageBytes(0)
			if err == nil {
				_, err = s.SendMessage(frames)
			}
			select {
			case <-stop:
				_ = errors.Join(s.Close(), c.Term())
				return
			default:
			}
			_ = err // Nobody asked for a while.
		}
	}()
	b.Cleanup(func() { close(stop); <-stopped })
	return addr
}

// Askers send one request each at a time.
type askers struct {
	transport interface {
		Send(*effects.Send)
		Open(*effects.Open)
		Shutdown(context.Context) error
	}
	opened chan *effects.Opened
	conns  []effects.Conn
	body   []byte

	mu    sync.Mutex
	left  int // questions that are still to be asked in this turn
	due   int // answers
	asked []time.Time
	times []time.Duration
	over  chan struct{}
	again chan int // who is to ask again: a sink must not call the transport that calls it
}

func newAskers(b *testing.B, n int, to effects.Addr) *askers {
	b.Helper()
	a := &askers{opened: make(chan *effects.Opened, 1), over: make(chan struct{}, 1), again: make(chan int, n),
		asked: make([]time.Time, n)}
	x := protocol.BatchedP2PLookupMsg{Worker: protocol.Worker{InstanceID: []byte("asker")}}
	for i := range benchHashes {
		x.Hashes = append(x.Hashes, protocol.ChunkHash{Bits: uint64(i + 1)})
	}
	a.body = x.Append(nil)
	t, err := zmq.Listen(zmq.Config{}, nil, a)
	if err != nil {
		b.Fatal(err)
	}
	a.transport = t
	go func() {
		for i := range a.again {
			t.Send(&effects.Send{Corr: effects.Corr(i), Conn: a.conns[i], Body: a.body})
		}
	}()
	b.Cleanup(func() { close(a.again); _ = a.transport.Shutdown(context.Background()) })
	for range n {
		t.Open(&effects.Open{Channel: effects.ChannelDirectory, Addr: to})
		o := <-a.opened
		if o.Code != effects.OK {
			b.Fatal(o.Code)
		}
		a.conns = append(a.conns, o.Conn)
	}
	return a
}

// Post implements control.Sink: a reply makes its asker send the next request.
func (a *askers) Post(ev effects.Event) {
	switch e := ev.(type) {
	case *effects.Opened:
		a.opened <- e
	case *effects.Replied:
		a.answered(int(e.Corr))
	case *effects.Unanswered:
		panic(e.Code.String())
	}
}

func (a *askers) answered(i int) {
	a.mu.Lock()
	a.times = append(a.times, time.Since(a.asked[i]))
	a.due--
	again, over := a.left > 0, a.due == 0
	if again {
		a.left--
		a.asked[i] = time.Now()
	}
	a.mu.Unlock()
	if again {
		a.again <- i
	}
	if over {
		a.over <- struct{}{}
	}
}

// turn sends a number of requests and returns how long they took in all, and each.
func (a *askers) turn(questions int) (took time.Duration, times []time.Duration) {
	a.left, a.due, a.times = questions-len(a.conns), questions, make([]time.Duration, 0, questions)
	start := time.Now()
	for i := range a.conns {
		a.mu.Lock()
		a.asked[i] = time.Now()
		a.mu.Unlock()
		a.transport.Send(&effects.Send{Corr: effects.Corr(i), Conn: a.conns[i], Body: a.body})
	}
	<-a.over
	return time.Since(start), a.times
}
