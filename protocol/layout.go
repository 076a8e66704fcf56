package protocol

import (
	"math/bits"
	"strconv"
)

// ShapeRank is the largest number of dimensions of a shape.
const ShapeRank = 4

// A Shape is the extent of a tensor in each dimension: the first N of Dims. The remaining Dims are zero, so that shapes
// compare with ==.
type Shape struct {
	Dims [ShapeRank]uint32
	N    uint8
}

// ElementCount returns the product of the dimensions; ok is false if the product does not fit 64 bits. A shape without
// dimensions has no elements.
func (s Shape) ElementCount() (n uint64, ok bool) {
	if s.N == 0 || s.N > ShapeRank {
		return 0, s.N == 0
	}
	n = 1
	for _, d := range s.Dims[:s.N] {
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 {
			return 0, false
		}
		n = lo
	}
	return n, true
}

// String returns for example [2, 36, 256, 512].
func (s Shape) String() string {
	b := []byte{'['}
	for i, d := range s.Dims[:min(s.N, ShapeRank)] {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendUint(b, uint64(d), 10)
	}
	return string(append(b, ']'))
}

// A Layout describes a full chunk, and thereby the size of a page. Both ends of a transfer must have the same layout.
// Layouts compare with ==.
type Layout struct {
	Format Format
	Shape  Shape // of a full chunk
	Dtype  Dtype
}

// A LayoutCode is the kind of a LayoutError.
type LayoutCode uint8

// The kinds of unusable layouts.
const (
	_               LayoutCode = iota
	LayoutFormat               // the format has no tokens, and therefore no chunks
	LayoutRank                 // the number of dimensions is not that of the format
	LayoutDimension            // a dimension is zero, or not the value that the format prescribes
	LayoutDtype                // no dtype
	LayoutOverflow             // the number of bytes of a chunk does not fit 63 bits
	LayoutTokens               // no chunk of this layout has this number of tokens
)

// A LayoutError says what is wrong with a layout or with a number of tokens.
type LayoutError struct {
	Code   LayoutCode
	Field  string // "format", "shape", "dtype" or "tokens"
	Value  string
	Remedy string
}

func (e *LayoutError) Error() string {
	return "layout: " + e.Field + " " + e.Value + ": " + e.Remedy
}

// Validate checks that l describes chunks: a format with tokens, the number of dimensions of that format, no dimension
// that is zero, a dtype, and a size that can be computed. The error is a *LayoutError.
func (l Layout) Validate() error {
	if l.Format.TokenDim() < 0 {
		return &LayoutError{LayoutFormat, "format", l.Format.String(), "use one with a token dimension, such as KV_2LTD"}
	}
	f := &formatTable[l.Format]
	if l.Shape.N != f.rank {
		return &LayoutError{LayoutRank, "shape", l.Shape.String(),
			"give the " + strconv.Itoa(int(f.rank)) + " dimensions of " + f.name}
	}
	for i, d := range l.Shape.Dims {
		if i >= int(f.rank) {
			if d != 0 { // Equal shapes would differ.
				return &LayoutError{LayoutDimension, "shape", l.Shape.String(),
					"make the unused dimension " + strconv.Itoa(i) + " zero"}
			}
			continue
		}
		if d == 0 {
			return &LayoutError{LayoutDimension, "shape", l.Shape.String(), "make dimension " + strconv.Itoa(i) + " positive"}
		}
		if i == int(f.fixed) && d != f.value {
			return &LayoutError{LayoutDimension, "shape", l.Shape.String(),
				"make dimension " + strconv.Itoa(i) + " " + strconv.Itoa(int(f.value)) + ", as " + f.name + " demands"}
		}
	}
	_, err := l.tensorBytes(l.Shape)
	return err
}

// PageBytes returns the size of a page, which holds one full chunk of all layers.
func (l Layout) PageBytes() (uint64, error) { return l.tensorBytes(l.Shape) }

// TokenCount returns the number of tokens of a full chunk, or 0 if l is not valid.
func (l Layout) TokenCount() uint32 {
	d := l.Format.TokenDim()
	if d < 0 || d >= int(l.Shape.N) {
		return 0
	}
	return l.Shape.Dims[d]
}

// TokenBytes returns the number of bytes of a page that belong to each token, or 0 if l is not valid: ChunkBytes of n
// tokens is n times TokenBytes.
func (l Layout) TokenBytes() uint64 {
	page, err := l.PageBytes()
	if err != nil || l.TokenCount() == 0 {
		return 0
	}
	return page / uint64(l.TokenCount())
}

// WithTokens returns l for chunks of n tokens instead of Tokens.
func (l Layout) WithTokens(n uint32) (Layout, error) {
	d := l.Format.TokenDim()
	if d < 0 || d >= int(l.Shape.N) {
		return Layout{}, l.Validate()
	}
	if n == 0 {
		return Layout{}, &LayoutError{LayoutTokens, "tokens", "0", "a chunk has at least one token"}
	}
	l.Shape.Dims[d] = n
	if _, err := l.tensorBytes(l.Shape); err != nil {
		return Layout{}, err
	}
	return l, nil
}

// layerDim is the index of the dimension of layers in formats that have layers.
const layerDim = 1

// OneLayer returns the layout of one layer of chunks with layout l, and the number of layers. It reports false for
// formats without layers.
func (l Layout) OneLayer() (one Layout, layers uint32, ok bool) {
	if l.Format != FormatKV2LTD && l.Format != FormatKVMLA {
		return Layout{}, 0, false
	}
	layers, l.Shape.Dims[layerDim] = l.Shape.Dims[layerDim], 1
	return l, layers, true
}

// AllLayers is the inverse of OneLayer: it returns the layout of chunks with the given number of layers, where l is the
// layout of one layer, and the number of stripes of a layer in a chunk. A KV_2LTD has two stripes, because the keys of
// all layers precede the values of all layers.
func (l Layout) AllLayers(layers uint32) (whole Layout, stripes uint32, ok bool) {
	if _, layerCount, hasLayers := l.OneLayer(); !hasLayers || layerCount != 1 {
		return Layout{}, 0, false
	}
	l.Shape.Dims[layerDim] = layers
	return l, l.Shape.Dims[0], l.Validate() == nil
}

// ChunkBytes returns the number of valid bytes of a page whose chunk holds the given number of tokens, from 1 to
// Tokens. A partial chunk is stored in its own compact shape, not as a part of the full chunk, so the valid bytes are
// the first bytes of the page, and the rest of the page is unused.
func (l Layout) ChunkBytes(tokens uint32) (uint64, error) {
	if full := l.TokenCount(); tokens == 0 || tokens > full {
		return 0, &LayoutError{LayoutTokens, "tokens", strconv.FormatUint(uint64(tokens), 10),
			"give 1 to " + strconv.FormatUint(uint64(full), 10) + ", as a chunk can hold"}
	}
	s := l.Shape
	s.Dims[l.Format.TokenDim()] = tokens
	return l.tensorBytes(s)
}

// tensorBytes returns the size of a tensor of shape s, which fits an int64.
func (l Layout) tensorBytes(s Shape) (uint64, error) {
	if !l.Dtype.Valid() {
		return 0, &LayoutError{LayoutDtype, "dtype", strconv.Quote(l.Dtype.String()), "name one, such as bfloat16"}
	}
	n, ok := s.ElementCount()
	hi, lo := bits.Mul64(n, l.Dtype.ElementBytes())
	if !ok || hi != 0 || lo >= 1<<63 {
		return 0, &LayoutError{LayoutOverflow, "shape", s.String(), "make it smaller, its bytes do not fit 63 bits"}
	}
	return lo, nil
}
