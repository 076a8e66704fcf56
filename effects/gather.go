package effects

import "iter"

// A Gather says from which local pages each page of a transfer is assembled: the layers of a chunk, each in a page of
// its own. The zero value means that each page of the transfer is one local page.
//
// Pages[i*Layers+l] is layer l of pair i. The Local of that pair is the page of layer 0 with the Length of all layers
// together. The page of a layer consists of Stripes parts of equal size, such as its keys and its values. In the peer's
// page the first parts of all layers come first, in the order of the layers, and then the second parts.
//
// Example: with 2 layers and 2 stripes, the peer's page holds keys of layer 0, keys of layer 1, values of layer 0,
// values of layer 1.
type Gather struct {
	Pages   []Page
	Layers  uint32
	Stripes uint32
}

// A Piece is a range of bytes of a local page and its position in the peer's page.
type Piece struct {
	Page  Page   // with its own valid bytes
	From  uint32 // offset in Page, in bytes
	At    uint32 // offset in the peer's page, in bytes
	Bytes uint32 // length in bytes
}

// Pieces returns the pieces of a transfer's pair i, in the order of the peer's page. Together they cover each byte of
// the page exactly once.
func (g *Gather) Pieces(i int, pair *Pair) iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		if g.Layers == 0 {
			yield(Piece{Page: pair.Local, Bytes: pair.Local.Length})
			return
		}
		bytes := pair.Local.Length / g.Layers / g.Stripes
		for stripe := range g.Stripes {
			for layer := range g.Layers {
				page := g.Pages[uint32(i)*g.Layers+layer]
				at := (stripe*g.Layers + layer) * bytes
				if !yield(Piece{Page: page, From: stripe * bytes, At: at, Bytes: bytes}) {
					return
				}
			}
		}
	}
}

// Fits reports whether the gather matches the pairs: there are Layers pages for each pair, each page has an equal share
// of the pair's bytes, and the stripes divide that share.
func (g *Gather) Fits(pairs []Pair) bool {
	if g.Layers == 0 {
		return g.Stripes == 0 && len(g.Pages) == 0
	}
	if g.Stripes == 0 || uint64(len(pairs))*uint64(g.Layers) != uint64(len(g.Pages)) {
		return false
	}
	for i := range pairs {
		if uint64(pairs[i].Local.Length)%(uint64(g.Layers)*uint64(g.Stripes)) != 0 {
			return false
		}
		for _, page := range g.Pages[i*int(g.Layers) : (i+1)*int(g.Layers)] {
			if page.Length != pairs[i].Local.Length/g.Layers {
				return false
			}
		}
	}
	return true
}
