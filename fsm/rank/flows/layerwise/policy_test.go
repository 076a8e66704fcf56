package layerwise

import (
	"testing"

	"pgregory.net/rapid"
)

// What is decided is what leaves less to be sent when the last layer is ready, by a model that moves one layer at a
// time and knows no shortcut.
func TestLayersGoWhereThatLeavesLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := costModel{
			Figures: Figures{
				Chunks:    rapid.Uint32Range(1, 300).Draw(t, "chunks"),
				ComputeNS: rapid.Uint64Range(1, 1<<24).Draw(t, "compute"),
				LinkBytes: rapid.Uint64Range(1<<20, 1<<36).Draw(t, "link"),
				BatchNS:   rapid.Uint64Range(0, 1<<22).Draw(t, "batch"),
			},
			layers: rapid.Uint64Range(1, 80).Draw(t, "layers"), pageBytes: rapid.Uint64Range(1, 1<<21).Draw(t, "page"),
			mergeBytes: rapid.Uint64Range(1, 1<<26).Draw(t, "merge"),
			batch:      rapid.Uint64Range(1, 1<<12).Draw(t, "batch pages"),
		}
		layer := uint64(f.Chunks) * f.pageBytes
		cost := func(bytes, most uint64) float64 {
			batches := uint64(0)
			for pages := bytes / f.pageBytes; pages > 0; pages -= min(pages, max(1, most)) {
				batches++
			}
			return float64(bytes)*1e9/float64(f.LinkBytes) + float64(batches*f.BatchNS)
		}
		end := float64(f.layers * f.ComputeNS)
		free, sent := 0.0, uint64(0)
		for sent < f.layers {
			free = max(free, float64((sent+1)*f.ComputeNS))
			n := uint64(1)
			for sent+n < f.layers && (n+1)*layer <= f.mergeBytes && float64((sent+n+1)*f.ComputeNS) <= free {
				n++
			}
			free, sent = free+cost(n*layer, f.mergeBytes/f.pageBytes), sent+n
		}
		near := func(got uint64, want float64) bool {
			return float64(got)-want < float64(f.layers)+2 && want-float64(got) < float64(f.layers)+2
		}
		byLayer, asWhole := max(0, free-end), cost(f.layers*layer, f.batch)
		if got := f.exposedByLayer(); !near(got, byLayer) {
			t.Fatalf("layer by layer %d ns are left, want %f", got, byLayer)
		}
		if got := f.exposedAsWhole(); !near(got, asWhole) {
			t.Fatalf("as a whole %d ns are left, want %f", got, asWhole)
		}
		if way := f.chooseMode(); way == ByLayer != (f.exposedByLayer() < f.exposedAsWhole()) {
			t.Fatalf("%d ns are left layer by layer, %d as a whole: goes %d", f.exposedByLayer(), f.exposedAsWhole(), way)
		}
	})
}

// Where a figure is not known it goes as its engine saves it, and nothing overflows.
func TestUnknownAndLargeFigures(t *testing.T) {
	for _, f := range []Figures{{}, {Chunks: 1, ComputeNS: 1}, {ComputeNS: 1, LinkBytes: 1}} {
		if x := (costModel{f, 2, 1 << 20, 1 << 20, 2}); x.chooseMode() != ByLayer {
			t.Errorf("%+v goes as a whole", f)
		}
	}
	x := costModel{Figures{Chunks: 1<<32 - 1, ComputeNS: 1<<64 - 1, LinkBytes: 1, BatchNS: 1<<64 - 1}, 1024, 1 << 40, 1, 1}
	if x.exposedAsWhole() == 0 || x.exposedByLayer() > x.exposedAsWhole() {
		t.Errorf("%d ns layer by layer, %d as a whole", x.exposedByLayer(), x.exposedAsWhole())
	}
}
