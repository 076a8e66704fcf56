package protocol

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func shape(dims ...uint32) (s Shape) {
	s.N = uint8(copy(s.Dims[:], dims))
	return s
}

// The example of the format's description: 36 layers, 8 heads of 128, 256 tokens, bfloat16.
func TestPageBytes(t *testing.T) {
	tests := []struct {
		name   string
		layout Layout
		page   uint64
		tokens uint32
		part   uint32 // tokens of a partial chunk
		valid  uint64 // and its bytes
	}{
		{"kv", Layout{FormatKV2LTD, shape(2, 36, 256, 1024), DtypeBFloat16}, 37_748_736, 256, 200, 29_491_200},
		{"kv, two ranks", Layout{FormatKV2LTD, shape(2, 36, 256, 512), DtypeBFloat16}, 18_874_368, 256, 1, 73_728},
		{"mla", Layout{FormatKVMLA, shape(1, 61, 256, 576), DtypeBFloat16}, 17_989_632, 256, 255, 17_919_360},
		{"tokens first", Layout{FormatKVT2D, shape(256, 2, 512), DtypeFP8E4M3FN}, 262_144, 256, 3, 3072},
		{"kv of a layer", Layout{FormatKV2TD, shape(2, 256, 512), DtypeFloat}, 1_048_576, 256, 3, 12_288},
		{"encoder cache", Layout{FormatECTD, shape(256, 512), DtypeDouble}, 1_048_576, 256, 256, 1_048_576},
		{"hidden states", Layout{FormatHSTD, shape(256, 512), DtypeInt8}, 131_072, 256, 2, 1024},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := test.layout
			if err := l.Validate(); err != nil {
				t.Fatal(err)
			}
			if got, err := l.PageBytes(); err != nil || got != test.page {
				t.Errorf("PageBytes: %d, %v, want %d", got, err, test.page)
			}
			if got := l.TokenCount(); got != test.tokens {
				t.Errorf("Tokens: %d, want %d", got, test.tokens)
			}
			if got, err := l.ChunkBytes(test.part); err != nil || got != test.valid {
				t.Errorf("ChunkBytes(%d): %d, %v, want %d", test.part, got, err, test.valid)
			}
			for _, tokens := range []uint32{0, test.tokens + 1} {
				wantLayoutCode(t, second(l.ChunkBytes(tokens)), LayoutTokens)
			}
			small, err := l.WithTokens(test.part)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := small.PageBytes(); got != test.valid || small.TokenCount() != test.part {
				t.Errorf("WithTokens(%d): %d tokens in %d bytes", test.part, small.TokenCount(), got)
			}
			if back, err := small.WithTokens(test.tokens); err != nil || back != l {
				t.Errorf("and back: %v, %v", back, err)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

func wantLayoutCode(t *testing.T, err error, want LayoutCode) {
	t.Helper()
	var refused *LayoutError
	if !errors.As(err, &refused) || refused.Code != want || err.Error() == "" {
		t.Errorf("got %v, want code %d", err, want)
	}
}

func TestLayoutsRefused(t *testing.T) {
	tests := []struct {
		name   string
		layout Layout
		code   LayoutCode
	}{
		{"zero", Layout{}, LayoutFormat},
		{"opaque", Layout{FormatBinary, shape(1), DtypeInt8}, LayoutFormat},
		{"unknown format", Layout{formats, shape(2, 1, 1, 1), DtypeInt8}, LayoutFormat},
		{"three dimensions", Layout{FormatKV2LTD, shape(2, 36, 256), DtypeInt8}, LayoutRank},
		{"four dimensions", Layout{FormatKV2TD, shape(2, 36, 256, 1), DtypeInt8}, LayoutRank},
		{"no tokens", Layout{FormatKV2LTD, shape(2, 36, 0, 512), DtypeInt8}, LayoutDimension},
		{"key without value", Layout{FormatKV2LTD, shape(1, 36, 256, 512), DtypeInt8}, LayoutDimension},
		{"mla with a value", Layout{FormatKVMLA, shape(2, 36, 256, 512), DtypeInt8}, LayoutDimension},
		{"hidden dimension beyond the rank", Layout{FormatECTD, Shape{[4]uint32{256, 512, 0, 7}, 2}, DtypeInt8},
			LayoutDimension},
		{"no dtype", Layout{FormatKV2LTD, shape(2, 36, 256, 512), DtypeNone}, LayoutDtype},
		{"unknown dtype", Layout{FormatKV2LTD, shape(2, 36, 256, 512), dtypes}, LayoutDtype},
		{"2^64 elements", Layout{FormatKV2LTD, shape(2, 1<<31, 1<<31, 2), DtypeInt8}, LayoutOverflow},
		{"2^63 bytes", Layout{FormatKV2LTD, shape(2, 1<<31, 1<<31, 1), DtypeInt8}, LayoutOverflow},
		{"2^66 bytes", Layout{FormatKV2LTD, shape(2, 1<<31, 1<<31, 1), DtypeDouble}, LayoutOverflow},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantLayoutCode(t, test.layout.Validate(), test.code)
		})
	}
	wantLayoutCode(t, second(Layout{}.WithTokens(1)), LayoutFormat)
	wantLayoutCode(t, second(Layout{FormatKV2LTD, shape(2, 1), DtypeInt8}.WithTokens(1)), LayoutRank)
	l := Layout{FormatKV2LTD, shape(2, 1<<20, 1, 1<<20), DtypeDouble}
	wantLayoutCode(t, second(l.WithTokens(1<<31)), LayoutOverflow)
	wantLayoutCode(t, second(l.WithTokens(0)), LayoutTokens)
	wantLayoutCode(t, second(Layout{}.ChunkBytes(1)), LayoutTokens)
	if _, ok := (Shape{N: 5}).ElementCount(); ok {
		t.Error("a shape of five dimensions has elements")
	}
}

// Bytes per token are the same for every token, and nothing else is in a chunk.
func TestChunkBytesAreProportional(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dim := rapid.Uint32Range(1, 300)
		f := rapid.SampledFrom([]Format{FormatKV2LTD, FormatKVMLA, FormatKV2TD, FormatKVT2D, FormatECTD}).Draw(t, "format")
		l := Layout{Format: f, Dtype: genDtype.Draw(t, "dtype"), Shape: Shape{N: formatTable[f].rank}}
		for i := range l.Shape.Dims[:l.Shape.N] {
			l.Shape.Dims[i] = dim.Draw(t, "dim")
		}
		if fixed := formatTable[f].fixed; fixed >= 0 {
			l.Shape.Dims[fixed] = formatTable[f].value
		}
		if err := l.Validate(); err != nil {
			t.Fatal(err)
		}
		page, _ := l.PageBytes()
		tokens := rapid.Uint32Range(1, l.TokenCount()).Draw(t, "tokens")
		part, err := l.ChunkBytes(tokens)
		if err != nil || part*uint64(l.TokenCount()) != page*uint64(tokens) {
			t.Fatalf("%v: %d of %d tokens have %d of %d bytes, %v", l, tokens, l.TokenCount(), part, page, err)
		}
		if got := l.TokenBytes() * uint64(tokens); got != part {
			t.Fatalf("%v: %d tokens of %d bytes are %d, not %d", l, tokens, l.TokenBytes(), got, part)
		}
	})
}

func TestFormats(t *testing.T) {
	// NB: the reference's token_dim() has 1 and 0 for the second and third.
	want := []int{-1, 2, 0, 1, -1, -1, 2, 0, 0, -1}
	for f := FormatUndefined; f <= formats; f++ {
		if got := f.TokenDim(); got != want[f] {
			t.Errorf("%v: token dimension %d, want %d", f, got, want[f])
		}
		if f.Valid() != (f < formats) || f.String() == "" {
			t.Errorf("%v: valid %v", f, f.Valid())
		}
	}
}

func TestDtypes(t *testing.T) {
	seen := map[string]bool{}
	for d := DtypeNone + 1; d < dtypes; d++ {
		if got, ok := ParseDtype([]byte(d.String())); !ok || got != d || seen[d.String()] {
			t.Errorf("%v is read as %v, %v", d, got, ok)
		}
		seen[d.String()] = true
	}
	for name, want := range map[string]struct {
		dtype Dtype
		size  uint64
	}{
		"half": {DtypeHalf, 2}, "bfloat16": {DtypeBFloat16, 2}, "float": {DtypeFloat, 4}, "double": {DtypeDouble, 8},
		"bool": {DtypeBool, 1}, "int64": {DtypeInt64, 8}, "int32": {DtypeInt32, 4}, "int16": {DtypeInt16, 2},
		"uint8": {DtypeUint8, 1}, "int8": {DtypeInt8, 1}, "fp8_e4m3fn": {DtypeFP8E4M3FN, 1},
		"fp8_e5m2fnuz": {DtypeFP8E5M2FNUZ, 1},
		"fp8":          {DtypeUint8, 1}, "fp8_e4m3": {DtypeFP8E4M3FN, 1}, "fp8_e5m2": {DtypeFP8E5M2, 1}, // The old names.
	} {
		if got, ok := ParseDtype([]byte(name)); !ok || got != want.dtype || got.ElementBytes() != want.size {
			t.Errorf("%s: %v of %d bytes, %v", name, got, got.ElementBytes(), ok)
		}
	}
	for _, name := range []string{"", "float16", "torch.half", "Half"} {
		if got, ok := ParseDtype([]byte(name)); ok {
			t.Errorf("%q is read as %v", name, got)
		}
	}
	if dtypes.Valid() || DtypeNone.Valid() || dtypes.ElementBytes() != 0 || DtypeNone.ElementBytes() != 0 || dtypes.String() == "" {
		t.Error("what is no dtype has properties")
	}
}
