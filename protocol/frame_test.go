package protocol

import (
	"bytes"
	"testing"
)

// Frames come out as they went in, one by one, and none before it is whole.
func TestFrames(t *testing.T) {
	if got := AppendFrame([]byte{9}, []byte("ab")); !bytes.Equal(got, []byte{9, 2, 0, 0, 0, 'a', 'b'}) {
		t.Errorf("a frame is %v", got)
	}
	bodies := [][]byte{[]byte("one"), {}, bytes.Repeat([]byte{7}, 300)}
	var all []byte
	for _, body := range bodies {
		all = AppendFrame(all, body)
	}
	for end := range len(all) + 1 {
		rest, n := all[:end], 0
		for {
			body, after, ok := CutFrame(rest)
			if !ok {
				if body != nil || !bytes.Equal(after, rest) {
					t.Fatalf("of %d bytes: %v and %v are cut, and no frame", end, body, after)
				}
				break
			}
			if !bytes.Equal(body, bodies[n]) {
				t.Fatalf("of %d bytes: frame %d is %v", end, n, body)
			}
			rest, n = after, n+1
		}
		if want := len(AppendFrame(nil, bodies[min(n, len(bodies)-1)])); n < len(bodies) && len(rest) >= want {
			t.Fatalf("of %d bytes: frame %d is whole, and not cut", end, n)
		}
	}
	if _, _, ok := CutFrame([]byte{0xFF, 0xFF, 0xFF, 0xFF, 1}); ok {
		t.Error("a frame of 4 GiB is whole")
	}
}
