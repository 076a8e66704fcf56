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

// bareCopies are the ways to move a batch without a plane: Go's copy of the pages by 1 and by 2 goroutines, the same
// for memory that make returns, and, if the plane has its own mover, that mover by 1 and by 2 goroutines.
func bareCopies(f *Ferry, own plane.Mover) []Alternative {
	heapFrom, heapInto := touched(len(f.from)), touched(len(f.from))
	all := []Alternative{
		{"copy", func(rng *rand.Rand) time.Duration { return f.copy(rng, 1, plane.Move) }},
		{"copy2", func(rng *rand.Rand) time.Duration { return f.copy(rng, 2, plane.Move) }},
		{"heapcopy", func(rng *rand.Rand) time.Duration {
			src, dst := f.draw(rng)
			begin := time.Now()
			for i := range src {
				copy(heapInto[dst[i].Index], heapFrom[src[i].Index])
			}
			return time.Since(begin)
		}},
	}
	if own != nil {
		all = append(all,
			Alternative{"own", func(rng *rand.Rand) time.Duration { return f.copy(rng, 1, own) }},
			Alternative{"own2", func(rng *rand.Rand) time.Duration { return f.copy(rng, 2, own) }})
	}
	return all
}

// touched returns all bytes of a benchmark, in count pages that have been written.
func touched(count int) [][]byte {
	memory, pages := make([]byte, benchTotal*benchBytes), make([][]byte, count)
	for i := range pages {
		each := len(memory) / count
		pages[i] = memory[i*each:][:each]
		fill(pages[i], uint64(i))
	}
	return pages
}

func (f *Ferry) copy(rng *rand.Rand, goroutines int, move plane.Mover) time.Duration {
	src, dst := f.draw(rng)
	begin := time.Now()
	var wg sync.WaitGroup
	for first := range goroutines {
		wg.Go(func() {
			for i := first; i < len(src); i += goroutines {
				move(f.z.Pool.Bytes(dst[i]), f.a.Pool.Bytes(src[i]))
			}
		})
	}
	wg.Wait()
	return time.Since(begin)
}

// bareStreams are the ways to move a batch over TCP alone: with 1, 2 or 4 connections, a write for each page, and a
// reply at the end.
func bareStreams(b *testing.B, f *Ferry) (all []Alternative) {
	for _, n := range []int{1, 2, 4} {
		var streams []bareStream
		for range n {
			streams = append(streams, newBareStream(b))
		}
		all = append(all, Alternative{fmt.Sprintf("tcp%d", n), func(rng *rand.Rand) time.Duration {
			src, dst := f.draw(rng)
			begin := time.Now()
			ended := make(chan error, 2*n)
			for i, s := range streams {
				part := len(src) / n
				go func() { ended <- s.read(f.z.Pool, dst[i*part:][:part]) }()
				go func() { ended <- s.write(f.a.Pool, src[i*part:][:part]) }()
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

func (s bareStream) read(pool *plane.Pool, pages []effects.Page) error {
	for _, page := range pages {
		if _, err := io.ReadFull(s.in, pool.Bytes(page)); err != nil {
			return err
		}
	}
	return nil
}

func (s bareStream) write(pool *plane.Pool, pages []effects.Page) error {
	for _, page := range pages {
		if _, err := s.out.Write(pool.Bytes(page)); err != nil {
			return err
		}
	}
	return nil
}
