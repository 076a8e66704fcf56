//go:build cgo && linux

package acl

import (
	"errors"
	"fmt"
	"testing"
)

// sizes are around the boundaries of copy engines, cache lines and pages.
var sizes = []uint64{0, 1, 63, 64, 65, 4095, 4096, 4097, 2<<20 - 1, 2 << 20, 2<<20 + 1}

func TestCopiesOfAllDirectionsAndSizes(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	s, h, back := newStream(t, c, StreamOptions{}), allocHost(t, c, 4<<20), allocHost(t, c, 4<<20)
	a, b := allocDevice(t, c, 4<<20), allocDevice(t, c, 4<<20)
	for _, size := range sizes {
		want := pattern(int(size), byte(size))
		copy(h.Bytes()[5:], want)
		clear(back.Bytes())
		mustDo(t, c, func(t *Thread) error {
			return errors.Join(s.Copy(t, a.Range(3, size), h.Range(5, size)), s.Copy(t, b.Range(7, size), a.Range(3, size)),
				s.Copy(t, back.Range(1, size), b.Range(7, size)))
		})
		if err := awaitSettled(t, c, s); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, back.Bytes()[1:1+size], want, fmt.Sprintf("%d bytes", size))
		if back.Bytes()[0] != 0 || back.Bytes()[1+size] != 0 {
			t.Errorf("%d bytes: more was written", size)
		}
		got := make([]byte, size)
		mustDo(t, c, func(t *Thread) error {
			return errors.Join(t.Upload(a.Range(3, size), want), t.Download(got, a.Range(3, size)))
		})
		wantBytes(t, got, want, fmt.Sprintf("%d bytes up and down", size))
	}
	mustDo(t, c, func(t *Thread) error {
		return errors.Join(s.Fill(t, a.Range(10, 100), 0xa5), s.Fill(t, a.Range(10, 0), 1), s.Synchronize(t, longEnough))
	})
	got := make([]byte, 100)
	mustDo(t, c, func(t *Thread) error { return t.Download(got, a.Range(10, 100)) })
	for i, v := range got {
		if v != 0xa5 {
			t.Fatalf("byte %d of the fill is %#x", i, v)
		}
	}
}

// More copies than a call takes, some of them empty, with the batched call and without.
func TestCopyAll(t *testing.T) {
	for _, hidden := range [][]string{nil, {"aclrtMemcpyBatchAsync"}} {
		t.Run(fmt.Sprint("without ", hidden), func(t *testing.T) {
			r := newRig(t, hidden...)
			c := r.newContext(ContextOptions{})
			const n, page = BatchMax + 10, 256
			s, m, h, back := newStream(t, c, StreamOptions{}), allocDevice(t, c, n*page), allocHost(t, c, n*page), allocHost(t, c, n*page)
			want := pattern(n*page, 2)
			copy(h.Bytes(), want)
			in, out := make([]Copy, n), make([]Copy, n)
			for i := range in {
				// Pages change places, so that a single copy of everything would not give the right result.
				there, size := uint64(n-1-i)*page, uint64(page)
				if i%100 == 3 {
					size = 0
					copy(want[i*page:(i+1)*page], make([]byte, page))
				}
				in[i] = Copy{m.Range(there, size), h.Range(uint64(i)*page, size)}
				out[i] = Copy{back.Range(uint64(i)*page, size), m.Range(there, size)}
			}
			clear(back.Bytes())
			mustDo(t, c, func(t *Thread) error {
				return errors.Join(s.CopyAll(t, nil), s.CopyAll(t, in), s.CopyAll(t, out), s.CopyAll(t, in[3:4]))
			})
			if err := awaitSettled(t, c, s); err != nil {
				t.Fatal(err)
			}
			wantBytes(t, back.Bytes(), want, "what came back")
			if stats := r.readStats(); hidden == nil &&
				(stats["calls.aclrtMemcpyBatchAsync"] != 4 || stats["calls.aclrtMemcpyAsync"] != 0) {
				t.Errorf("%d batched calls and %d single ones, want 4 and 0", stats["calls.aclrtMemcpyBatchAsync"],
					stats["calls.aclrtMemcpyAsync"])
			}
			err := c.Do(func(t *Thread) error { return s.CopyAll(t, []Copy{in[0], out[0]}) })
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("two directions: %v", err)
			}
		})
	}
}

// The function exists but reports that the chip does not support it: the fallback is the same, and the function is
// called only once.
func TestCopyAllOnAChipWithoutBatches(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	s, m, h := newStream(t, c, StreamOptions{}), allocDevice(t, c, 128), allocHost(t, c, 128)
	other := allocDevice(t, c, 128)
	r.addFaults("call:sym=aclrtMemcpyBatchAsync,nth=*,code=207000")
	copies := []Copy{{m.Range(0, 64), h.Range(64, 64)}, {m.Range(64, 64), h.Range(0, 64)}}
	onDevice := []Copy{{other.Range(0, 64), m.Range(0, 64)}, {other.Range(64, 64), m.Range(64, 64)}}
	want := pattern(128, 1)
	copy(h.Bytes(), want)
	mustDo(t, c, func(t *Thread) error {
		return errors.Join(s.CopyAll(t, copies), s.CopyAll(t, copies), s.CopyAll(t, onDevice), s.Synchronize(t, longEnough))
	})
	got := make([]byte, 128)
	mustDo(t, c, func(t *Thread) error { return t.Download(got, other.FullRange()) })
	wantBytes(t, got, append(want[64:128:128], want[:64]...), "the pages")
	if stats := r.readStats(); stats["calls.aclrtMemcpyBatchAsync"] != 1 {
		t.Errorf("asked %d times for what the chip cannot do", stats["calls.aclrtMemcpyBatchAsync"])
	}
}
