package protocol

import (
	"testing"

	"pgregory.net/rapid"
)

// TestKeyCheck: whatever keys come one after the other, a KeyCheck says of each what CheckKey says of it alone.
func TestKeyCheck(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"model", "a/b", "", "é", "\xff", "@", "@@", "8", "0", "08", "-1", "1f", "-1f", "-0", "1F", "g", "half", "bfloat16",
		"k%v", "%", "tag",
	})
	rapid.Check(t, func(t *rapid.T) {
		var check KeyCheck
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
	part := func(of ...string) *rapid.Generator[string] { return rapid.SampledFrom(of) }
	rapid.Check(t, func(t *rapid.T) {
		text := part("model", "a/b", "é", "", "\xff").Draw(t, "model") + "@" +
			part("1", "0", "08", "2147483647", "2147483648", "99999999999", "x", "").Draw(t, "world") + "@" +
			part("0", "7", "-1", "-0", "00", "2147483648", "").Draw(t, "worker") + "@" +
			part("1f", "-1f", "00", "-0", "1F", "g", "").Draw(t, "hash") + "@" +
			part("half", "bfloat16", "half@k%v", "half@", "", "none").Draw(t, "dtype")
		b := []byte(text)
		if rapid.Bool().Draw(t, "changed") {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.SampledFrom([]byte("@%-0a8zF\xff")).Draw(t, "byte")
		}
		k, err := ParseKey(b)
		simple := err == nil && len(k.Tags) == 0
		if got := plainKey(b); got && !simple || !got && simple && k.WorkerID >= 0 && k.Hash[0] != '-' && ascii(b) {
			t.Fatalf("key %q: one pass says %v, parts say %v", b, got, err)
		}
	})
}
