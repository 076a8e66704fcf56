package planetest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// copyAlternatives are the ways to move a batch without a plane: Go's copy of the pages by 1 and by 2 goroutines, the
// same for memory that make returns, and, if the plane has its own mover, that mover by 1 and by 2 goroutines.
func copyAlternatives(f *BatchMover, own plane.Mover) []Alternative {
	heapFrom, heapInto := newTouchedPages(len(f.from)), newTouchedPages(len(f.from))
	all := []Alternative{
		{"copy", func(rng *rand.Rand) time.Duration { return f.copyBatch(rng, 1, plane.Move) }},
		{"copy2", func(rng *rand.Rand) time.Duration { return f.copyBatch(rng, 2, plane.Move) }},
		{"heapcopy", func(rng *rand.Rand) time.Duration {
			src, dst := f.drawPages(rng)
			begin := time.Now()
			for i := range src {
				copy(heapInto[dst[i].Index], heapFrom[src[i].Index])
			}
			return time.Since(begin)
		}},
	}
	if own != nil {
		all = append(all,
			Alternative{"own", func(rng *rand.Rand) time.Duration { return f.copyBatch(rng, 1, own) }},
			Alternative{"own2", func(rng *rand.Rand) time.Duration { return f.copyBatch(rng, 2, own) }})
	}
	return all
}

// newTouchedPages returns all bytes of a benchmark, in count pages that have been written.
func newTouchedPages(count int) [][]byte {
	memory, pages := make([]byte, benchTotal*benchBytes), make([][]byte, count)
	for i := range pages {
		each := len(memory) / count
		pages[i] = memory[i*each:][:each]
		fillPattern(pages[i], uint64(i))
	}
	return pages
}

func (f *BatchMover) copyBatch(rng *rand.Rand, goroutines int, move plane.Mover) time.Duration {
	src, dst := f.drawPages(rng)
	begin := time.Now()
	var wg sync.WaitGroup
	for first := range goroutines {
		wg.Go(func() {
			for i := first; i < len(src); i += goroutines {
				move(f.b.Pool.Bytes(dst[i]), f.a.Pool.Bytes(src[i]))
			}
		})
	}
	wg.Wait()
	return time.Since(begin)
}

// streamAlternatives are the ways to move a batch over TCP alone: with 1, 2 or 4 connections, a write for each page,
// and a reply at the end.
func streamAlternatives(b *testing.B, f *BatchMover) (all []Alternative) {
	for _, n := range []int{1, 2, 4} {
		var streams []bareStream
		for range n {
			streams = append(streams, newBareStream(b))
		}
		all = append(all, Alternative{fmt.Sprintf("tcp%d", n), func(rng *rand.Rand) time.Duration {
			src, dst := f.drawPages(rng)
			begin := time.Now()
			ended := make(chan error, 2*n)
			for i, s := range streams {
				part := len(src) / n
				go func() { ended <- s.readPages(f.b.Pool, dst[i*part:][:part]) }()
				go func() { ended <- s.writePages(f.a.Pool, src[i*part:][:part]) }()
			}
			for range 2 * n {
				if err := <-ended; err != nil {
					b.Fatal(err)
				}
			}
			return time.Since(begin)
		}})
	}
	return all
}

type bareStream struct{ out, in net.Conn }

func newBareStream(b *testing.B) (s bareStream) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	if s.out, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if s.in, err = listener.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = s.out.Close(), s.in.Close() })
	return s
}

func (s bareStream) readPages(pool *plane.Pool, pages []effects.Page) error {
	for _, page := range pages {
		if _, err := io.ReadFull(s.in, pool.Bytes(page)); err != nil {
			return err
		}
	}
	return nil
}

func (s bareStream) writePages(pool *plane.Pool, pages []effects.Page) error {
	for _, page := range pages {
		if _, err := s.out.Write(pool.Bytes(page)); err != nil {
			return err
		}
	}
	return nil
}
