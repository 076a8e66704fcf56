package planetest

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// Bench pushes batches of 64 pages of 1 MiB, out of 256 that no cache holds, and reports the plane's
// speed as a ratio to Go's copy of such pages and to one bare TCP stream that carries them. The
// alternatives run once in each round, in random order; the ratios are of medians. Each b.N is one round. Mappings were touched before: faults cost once for each peer.
func Bench(b *testing.B, open plane.Opener) {
	const batch, total, size = 64, 256, 1 << 20
	a, z := Open(b, open, 1, total, size), Open(b, open, 2, total, size)
	link := a.Import(b, z.Inc, z.Plane.Blob())
	from := a.Life(0, total, size)
	into := z.Life(0, total, size)
	for i := range from {
		fill(a.Pool.Host(from[i]), uint64(i))
		fill(z.Pool.Host(into[i]), uint64(i))
	}
	stream := newBareStream(b, a.Pool, z.Pool)
	rng := rand.New(rand.NewPCG(1, 1))
	var push, copied, streamed []float64

	alternatives := []func(src, dst []effects.Page){
		func(src, dst []effects.Page) {
			begin := time.Now()
			for i := range src {
				copy(z.Pool.Host(dst[i]), a.Pool.Host(src[i]))
			}
			copied = append(copied, time.Since(begin).Seconds())
		},
		func(src, dst []effects.Page) {
			begin := time.Now()
			stream.carry(b, src, dst)
			streamed = append(streamed, time.Since(begin).Seconds())
		},
		func(src, dst []effects.Page) {
			begin := time.Now()
			for i := range dst {
				z.lives++
				dst[i].Generation = z.lives
			}
			z.grants++
			z.Pool.Grant(&effects.Grant{ID: z.grants, Peer: a.Inc, Pages: dst})
			done := a.Done(b, a.Start(Push{To: z.Inc, Link: link, Grant: z.grants, From: src, Into: dst, Buffer: z.Pool.Buffer().ID}))
			push = append(push, time.Since(begin).Seconds())
			if done.Code != effects.OK {
				b.Fatalf("push ended as %s", done.Code)
			}
		},
	}
	// The order is drawn: what ran before decides what the caches hold.
	round := func() {
		for _, i := range rng.Perm(len(alternatives)) {
			alternatives[i](draw(rng, from, batch), draw(rng, into, batch))
		}
	}
	for range 16 { // Each page is drawn once at least, but for one in a hundred: faults are over.
		round()
	}
	push, copied, streamed = nil, nil, nil
	b.SetBytes(batch * size)
	b.ResetTimer()
	for range b.N {
		round()
	}
	b.StopTimer()
	p := median(push)
	b.ReportMetric(batch*size/p/1e9, "GB/s")
	b.ReportMetric(median(copied)/p, "x-copy")
	b.ReportMetric(median(streamed)/p, "x-bare-tcp")
	b.ReportMetric(0, "ns/op") // That would be the sum of all alternatives.
	b.SetBytes(0)
}

func draw(rng *rand.Rand, pages []effects.Page, n int) []effects.Page {
	drawn := make([]effects.Page, n)
	for i, at := range rng.Perm(len(pages))[:n] {
		drawn[i] = pages[at]
	}
	return drawn
}

func median(s []float64) float64 {
	slices.Sort(s)
	return s[len(s)/2]
}

// A bareStream is what TCP alone does: one connection, one write for each page, an answer at the end.
type bareStream struct {
	from, into *plane.Pool
	out, in    net.Conn
}

func newBareStream(b *testing.B, from, into *plane.Pool) *bareStream {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	s := &bareStream{from: from, into: into}
	if s.out, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if s.in, err = listener.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = s.out.Close(), s.in.Close() })
	return s
}

func (s *bareStream) carry(b *testing.B, src, dst []effects.Page) {
	stored := make(chan error, 1)
	go func() {
		for _, page := range dst {
			if _, err := io.ReadFull(s.in, s.into.Host(page)); err != nil {
				stored <- err
				return
			}
		}
		stored <- nil
	}()
	for _, page := range src {
		if _, err := s.out.Write(s.from.Host(page)); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-stored; err != nil {
		b.Fatal(err)
	}
}

// BenchSmall pushes one page of 4 KiB at a time: the fixed cost of a push and its confirmation.
func BenchSmall(b *testing.B, open plane.Opener) {
	const size = 4096
	a, z := Open(b, open, 1, 1, size), Open(b, open, 2, 1, size)
	link := a.Import(b, z.Inc, z.Plane.Blob())
	from := a.Life(0, 1, size)
	for b.Loop() {
		grant, into := z.Grant(a.Inc, 0, 1, size)
		done := a.Done(b, a.Start(Push{To: z.Inc, Link: link, Grant: grant, From: from, Into: into, Buffer: z.Pool.Buffer().ID}))
		if done.Code != effects.OK {
			b.Fatalf("push ended as %s", done.Code)
		}
		z.forget()
	}
}

// forget drops all events, so that a long benchmark does not search through them.
func (n *Node) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = n.events[:0]
}
