package protocol

import (
	"bytes"
	"math"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// Every width of every form, against another writer.
func TestWritersMatchTheLibrary(t *testing.T) {
	var out bytes.Buffer
	enc := msgpack.NewEncoder(&out)
	enc.UseCompactInts(true)
	want := func(what string, got []byte, err error) {
		t.Helper()
		if err != nil || !bytes.Equal(got, out.Bytes()) {
			t.Errorf("%s: got %x, want %x, %v", what, got[:min(12, len(got))], out.Bytes()[:min(12, out.Len())], err)
		}
		out.Reset()
	}
	for _, n := range []int{0, 1, 15, 16, 31, 32, 255, 256, 1<<16 - 1, 1 << 16, 1 << 17} {
		s := bytes.Repeat([]byte{'s'}, n)
		want("bin", appendBin(nil, s), enc.EncodeBytes(s))
		want("str", appendStr(nil, s), enc.EncodeString(string(s)))
		want("array", appendArrayHeader(nil, n), enc.EncodeArrayLen(n))
		want("map", appendMapHeader(nil, n), enc.EncodeMapLen(n))
	}
	for shift := range 64 {
		for _, v := range []uint64{1 << shift, 1<<shift - 1, 1<<shift + 1} {
			want("uint", appendUint(nil, v), enc.EncodeUint(v))
			if v <= math.MaxInt64 {
				want("int", appendInt(nil, int64(v)), enc.EncodeInt(int64(v)))
				want("negative", appendInt(nil, -int64(v)), enc.EncodeInt(-int64(v)))
			}
		}
	}
	want("least", appendInt(nil, math.MinInt64), enc.EncodeInt(math.MinInt64))
	want("true", appendBool(nil, true), enc.EncodeBool(true))
	want("false", appendBool(nil, false), enc.EncodeBool(false))
}
