package agent

import (
	"bytes"
	"testing"
)

func TestContentFollowsFromTheKey(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 4096, 4099} {
		a, b := make([]byte, n), make([]byte, n)
		FillContent(a, "m@1@0@a1@half")
		FillContent(b, "m@1@0@a1@half")
		if !bytes.Equal(a, b) {
			t.Errorf("%d bytes: the same key gave two contents", n)
		}
		if got := CountWrong(a, "m@1@0@a1@half"); got != 0 {
			t.Errorf("%d bytes: %d are wrong in what Fill wrote", n, got)
		}
		for i := range a {
			a[i] ^= 0x10
			if got := CountWrong(a, "m@1@0@a1@half"); got != 1 {
				t.Fatalf("%d bytes: with byte %d changed %d are wrong, want 1", n, i, got)
			}
			a[i] ^= 0x10
		}
		if n >= 8 && CountWrong(a, "m@1@0@a2@half") < n/2 {
			t.Errorf("%d bytes: another key's content is nearly the same", n)
		}
	}
}

func TestMisplacedContentIsWrong(t *testing.T) {
	a := make([]byte, 4096)
	FillContent(a, "m@1@0@a1@half")
	copy(a[8:], bytes.Clone(a[:4088]))
	if got := CountWrong(a, "m@1@0@a1@half"); got < 3000 {
		t.Errorf("content moved by one word: only %d of 4096 bytes are wrong", got)
	}
}
