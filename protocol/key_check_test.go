package protocol

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestKeyCheck: whatever keys come one after the other, a KeyChecker says of each what CheckKey says of it alone.
func TestKeyCheck(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"model", "a/b", "", "é", "\xff", "@", "@@", "8", "0", "08", "-1", "1f", "-1f", "-0", "1F", "g", "half", "bfloat16",
		"k%v", "%", "tag",
	})
	rapid.Check(t, func(t *rapid.T) {
		var check KeyChecker
		last := "model@8@-1@1f@half"
		for range rapid.IntRange(1, 20).Draw(t, "keys") {
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0: // Another hash, of another length perhaps.
				hash := rapid.SampledFrom([]string{"1f", "2", "-2", "abcdef0123", "", "G", "1@2"}).Draw(t, "hash")
				last = "model@8@-1@" + hash + "@half"
			case 1: // One byte is another.
				b := []byte(last)
				b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.SampledFrom([]byte("@%-0a8z\xff")).Draw(t, "byte")
				last = string(b)
			case 2:
				last += rapid.SampledFrom([]string{"@k%v", "@", "@tag", "x"}).Draw(t, "tail")
			default:
				last = "x"
				for range rapid.IntRange(0, 7).Draw(t, "pieces") {
					last += "@" + piece.Draw(t, "piece")
				}
			}
			most := rapid.IntRange(1, 60).Draw(t, "most")
			want, got := CheckKey([]byte(last), most), check.Check([]byte(last), most)
			if (want == nil) != (got == nil) || want != nil && want.Error() != got.Error() {
				t.Fatalf("key %q, at most %d: alone %v, after others %v", last, most, want, got)
			}
		}
	})
}

// TestPlainKey: what one pass takes for a key is one, and has no tags; of keys without tags and a sign it takes all.
func TestPlainKey(t *testing.T) {
	right := [5]string{"model", "8", "7", "1f", "half"}
	others := [5][]string{
		{"a/b", "\xff", "é", ""}, {"1", "0", "08", "2147483647", "2147483648", "99999999999", "x", ""},
		{"0", "-1", "-0", "00", "2147483648", ""}, {"00", "-1f", "-0", "1F", "g", ""},
		{"bfloat16", "half@k%v", "half@", "none", ""},
	}
	check := func(b []byte) {
		t.Helper()
		k, err := ParseKey(b)
		simple := err == nil && len(k.Tags) == 0
		if got := isPlainKey(b); got && !simple || !got && simple && k.WorkerID >= 0 && k.Hash[0] != '-' && isASCII(b) {
			t.Errorf("key %q: one pass says %v, parts say %v", b, got, err)
		}
	}
	for i := range right {
		for _, other := range append(others[i], right[i]) {
			parts := right
			parts[i] = other
			key := strings.Join(parts[:], "@")
			check([]byte(key))
			for at := range key {
				for _, c := range []byte("@%-0a8zF\xff") {
					b := []byte(key)
					b[at] = c
					check(b)
				}
			}
		}
	}
}

// The chunk hash of a key is that of its text; what is no key has none, nor one whose hash no controller can be told.
func TestChunkHashOfKey(t *testing.T) {
	for digits, want := range map[string]ChunkHash{
		"0": {}, "abc": {Bits: 0xabc}, "ffffffffffffffff": {Bits: 1<<64 - 1}, "-1": {Bits: 1<<64 - 1, Negative: true},
	} {
		for _, tags := range []string{"", "@a%b"} {
			got, ok := ChunkHashOfKey([]byte("model@2@1@" + digits + "@bfloat16" + tags))
			if !ok || got != want {
				t.Errorf("%s: %v %v, want %v", digits, got, ok, want)
			}
		}
	}
	for _, key := range []string{"", "m", "m@1@0", "m@1@0@abc", "m@1@0@@bfloat16", "m@1@0@xyz@bfloat16",
		"m@1@0@10000000000000000@bfloat16"} {
		if got, ok := ChunkHashOfKey([]byte(key)); ok {
			t.Errorf("%q has the hash %v", key, got)
		}
	}
}
