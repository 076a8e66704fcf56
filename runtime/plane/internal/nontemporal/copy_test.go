package nontemporal

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Every byte is copied and no neighbouring byte changes, whatever the alignment of both ends.
func TestCopyIsCopy(t *testing.T) {
	const room = 3 * pieceBytes
	memory := make([]byte, 2*room)
	for i := range memory {
		memory[i] = byte(i>>8) ^ byte(i)*7
	}
	from, into := memory[:room], make([]byte, room)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(
			rapid.IntRange(0, 5*blockBytes),
			rapid.IntRange(pieceBytes-2*blockBytes, pieceBytes+2*blockBytes),
			rapid.IntRange(0, 2*pieceBytes),
		).Draw(t, "length")
		s := rapid.IntRange(0, 200).Draw(t, "source at")
		d := rapid.IntRange(0, 200).Draw(t, "destination at")
		for i := range into {
			into[i] = 0xa5
		}
		Copy(into[d:d+n], from[s:s+n])
		if !bytes.Equal(into[d:d+n], from[s:s+n]) {
			t.Fatalf("%d bytes from %d to %d differ", n, s, d)
		}
		for i, b := range into[:d] {
			if b != 0xa5 {
				t.Fatalf("byte %d before the destination changed", i-d)
			}
		}
		for i, b := range into[d+n:] {
			if b != 0xa5 {
				t.Fatalf("byte %d behind the destination changed", i)
			}
		}
	})
}

func TestLengthsMustMatch(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("a copy between different lengths went through")
		}
	}()
	Copy(make([]byte, 8), make([]byte, 9))
}

// BenchmarkHot copies the same bytes again and again. Below the size of the caches Go's copy wins, which is why small
// pushes do not use this package.
func BenchmarkHot(b *testing.B) {
	for _, size := range []int{16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20} {
		src, dst := bytes.Repeat([]byte{1}, size), bytes.Repeat([]byte{2}, size)
		for _, way := range []struct {
			name string
			copy func(dst, src []byte)
		}{{"go", func(dst, src []byte) {
			const page = 64 << 10 // The size of a small page: Go's copy goes around the caches itself from 1 MiB on.
			for at := 0; at < len(dst); at += page {
				copy(dst[at:min(at+page, len(dst))], src[at:])
			}
		}}, {"nontemporal", Copy}} {
			b.Run(fmt.Sprintf("%s-%dKiB", way.name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					way.copy(dst, src)
				}
			})
		}
	}
}
