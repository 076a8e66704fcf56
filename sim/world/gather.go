package world

import "github.com/kvferry/kvferry/effects"

// A push may assemble a page from several source pages, each of which holds a layer of a chunk. A layer has the stamps
// of its chunk, with the number of the layer in the lowest digits of the fill (LayerOf). The assembled page has the
// stamps of the chunk. If the layers are not the layers of the same chunk in order, the assembled page has the stamps
// of foreign content.

// layersMax is the number of layers that a fill can distinguish.
const layersMax = 32

// LayerOf returns the fill of a layer of a chunk. The fill of the chunk must be a multiple of layersMax.
func LayerOf(fill uint32, layer int) uint32 { return fill + uint32(layer) }

// Sources returns the local pages of a pair.
func (t *Transfer) Sources(i int) []effects.Page {
	if n := int(t.Gather.Layers); n > 0 {
		return t.Gather.Pages[i*n : (i+1)*n]
	}
	return []effects.Page{t.Pairs[i].Local}
}

// gatherHalf moves the part of a half that the pages' length covers.
func (t *Transfer) gatherHalf(i, half int) {
	p := t.Pairs[i]
	dst := &t.Remote.Pages[p.Remote.Index]
	for part := half * Parts / 2; part < min((half+1)*Parts/2, t.Remote.PartCount(p.Local.Length)); part++ {
		dst.Stamps[part] = t.gatheredStamp(t.Sources(i), part)
	}
}

// gatheredStamp returns the stamp of a part that is assembled from layers.
func (t *Transfer) gatheredStamp(layers []effects.Page, part int) Stamp {
	first := t.Local.Pages[layers[0].Index].Stamps[part]
	fill := first.Fill() - first.Fill()%layersMax
	for layer, p := range layers {
		if s := t.Local.Pages[p.Index].Stamps[part]; s != MakeStamp(first.Key(), LayerOf(fill, layer), part) {
			return MakeStamp(foreignKey, fill, part)
		}
	}
	return MakeStamp(first.Key(), fill, part)
}
