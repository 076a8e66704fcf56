package effects

import "iter"

// A Gather says of which pages of ours each page of a transfer is put together: a chunk of layers that lie in pages of
// their own. Zero: each is one page. Pages[i*Layers+l] is layer l of pair i, whose Local is layer 0 with the Length of
// all. A layer's page consists of Stripes parts of one size, such as its keys and its values; in the peer's page the
// first ones of all layers come first, in the layers' order, then the second ones.
type Gather struct {
	Pages   []Page
	Layers  uint32
	Stripes uint32
}

// A Piece is bytes of a page of ours, and where in the peer's page they belong.
type Piece struct {
	Page  Page // with its own valid bytes
	From  uint32
	At    uint32
	Bytes uint32
}

// Pieces are those of a transfer's pair i, in the order of the peer's page, each byte of which is of one.
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

// Fits says whether a gather is one of these pairs: of so many pages, each of a share of its pair's bytes that its
// stripes divide.
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
