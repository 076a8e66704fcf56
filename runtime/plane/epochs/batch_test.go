package epochs

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
)

const (
	testPage  = 1000
	localBase = 0x1000000
	farBase   = 0x9000000
)

func localAt(p effects.Page) uintptr     { return localBase + uintptr(p.Index)*testPage }
func farAt(p effects.RemotePage) uintptr { return farBase + uintptr(p.Index)*testPage }
func page(index, length uint32) (p effects.Pair) {
	p.Local.Index, p.Local.Length, p.Remote.Index = index, length, index
	return p
}

// For any pages: every byte is moved once to where it belongs, in the order of the pages, within the limits; and two
// pieces that could be one are two only where a batch ends.
func TestBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pairs []effects.Pair
		far := map[uintptr]uintptr{}
		at := uint32(0)
		for range rapid.IntRange(0, 40).Draw(t, "pages") {
			at += rapid.SampledFrom([]uint32{1, 1, 1, 2}).Draw(t, "step")
			p := page(at, rapid.SampledFrom([]uint32{testPage, testPage, testPage, 1, 0}).Draw(t, "bytes"))
			p.Remote.Index += rapid.SampledFrom([]uint32{0, 0, 0, 100}).Draw(t, "apart")
			pairs = append(pairs, p)
			for i := range uintptr(p.Local.Length) {
				far[localAt(p.Local)+i] = farAt(p.Remote) + i
			}
		}
		most := BatchLimit{rapid.IntRange(1, 6).Draw(t, "pieces"), rapid.Uint64Range(testPage, 8*testPage).Draw(t, "most bytes")}
		var before uintptr
		for _, batch := range SplitIntoBatches(pairs, &effects.Gather{}, localAt, farAt, most) {
			var bytes uint64
			if len(batch) == 0 || len(batch) > most.Pieces {
				t.Fatalf("a batch of %d pieces", len(batch))
			}
			for i, p := range batch {
				if i > 0 && batch[i-1].adjoins(p) {
					t.Fatalf("%+v and %+v are one", batch[i-1], p)
				}
				if p.Local <= before {
					t.Fatalf("%+v is out of order", p)
				}
				before = p.Local + uintptr(p.Bytes) - 1
				bytes += p.Bytes
				for o := range uintptr(p.Bytes) {
					if far[p.Local+o] != p.Remote+o {
						t.Fatalf("%#x goes to %#x", p.Local+o, p.Remote+o)
					}
					delete(far, p.Local+o)
				}
			}
			if bytes > most.Bytes {
				t.Fatalf("a batch of %d bytes", bytes)
			}
		}
		if len(far) > 0 {
			t.Fatalf("%d bytes are not moved", len(far))
		}
	})
}

// Consecutive pages are one descriptor; a short page ends it.
func TestAdjacentPagesAreOneDescriptor(t *testing.T) {
	var pairs []effects.Pair
	for i := range uint32(300) {
		pairs = append(pairs, page(i, testPage))
	}
	if got := SplitIntoBatches(pairs, &effects.Gather{}, localAt, farAt, BatchLimit{256, 1 << 30}); len(got) != 1 || len(got[0]) != 1 {
		t.Fatalf("%d batches", len(got))
	}
	pairs[10].Local.Length--
	if got := SplitIntoBatches(pairs, &effects.Gather{}, localAt, farAt, BatchLimit{256, 1 << 30}); len(got) != 1 || len(got[0]) != 2 {
		t.Fatalf("%d batches", len(got))
	}
	for i := range pairs {
		pairs[i].Remote.Index = uint32(2 * i)
	}
	got := SplitIntoBatches(pairs, &effects.Gather{}, localAt, farAt, BatchLimit{256, 1 << 30})
	if len(got) != 2 || len(got[0]) != 256 ||
		len(got[1]) != 44 {
		t.Fatalf("%d batches", len(got))
	}
}

// Gathered layers go where they belong: the first stripes of all layers, then the second ones.
func TestPiecesOfLayers(t *testing.T) {
	a, b := page(4, testPage/4).Local, page(2, testPage/4).Local
	pair := page(4, testPage/2)
	gather := effects.Gather{Pages: []effects.Page{a, b}, Layers: 2, Stripes: 2}
	got := SplitIntoBatches([]effects.Pair{pair}, &gather, localAt, farAt, BatchLimit{256, 1 << 30})
	const stripe = testPage / 8
	far := farAt(pair.Remote)
	want := []Piece{
		{localAt(a), far, stripe}, {localAt(b), far + stripe, stripe},
		{localAt(a) + stripe, far + 2*stripe, stripe}, {localAt(b) + stripe, far + 3*stripe, stripe},
	}
	if len(got) != 1 || !slices.Equal(got[0], want) {
		t.Fatalf("pieces %+v; want %+v", got, want)
	}
}
