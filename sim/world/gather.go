package world

import "github.com/kvferry/kvferry/effects"

// A push may put a page together of several, each a layer of a chunk. Such a layer has stamps of its chunk whose fill
// tells the layer in its lowest digits (LayerOf); a page that is put together has those of the chunk alone, or if the
// layers are not its own, in order, those of something else.

// layersMost is how many layers a fill tells apart.
const layersMost = 32

// LayerOf is the fill of a layer of a chunk, of which that of the chunk is a multiple of all that there may be.
func LayerOf(fill uint32, layer int) uint32 { return fill + uint32(layer) }

// Sources are the local pages of a pair.
func (t *Transfer) Sources(i int) []effects.Page {
	if n := int(t.Gather.Layers); n > 0 {
		return t.Gather.Pages[i*n : (i+1)*n]
	}
	return []effects.Page{t.Pairs[i].Local}
}

// gatherHalf moves what the pages' length covers of one half.
func (t *Transfer) gatherHalf(i, half int) {
	p := t.Pairs[i]
	dst := &t.Remote.Pages[p.Remote.Index]
	for part := half * Parts / 2; part < min((half+1)*Parts/2, t.Remote.PartsOf(p.Local.Length)); part++ {
		dst.Stamps[part] = t.together(t.Sources(i), part)
	}
}

func (t *Transfer) together(layers []effects.Page, part int) Stamp {
	first := t.Local.Pages[layers[0].Index].Stamps[part]
	fill := first.Fill() - first.Fill()%layersMost
	for layer, p := range layers {
		if s := t.Local.Pages[p.Index].Stamps[part]; s != MakeStamp(first.Key(), LayerOf(fill, layer), part) {
			return MakeStamp(strayKey, fill, part)
		}
	}
	return MakeStamp(first.Key(), fill, part)
}
