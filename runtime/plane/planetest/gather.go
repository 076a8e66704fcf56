package planetest

import (
	"bytes"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A push may gather each page of the peer from several pages of ours: one for each layer, in some number of stripes.

const gatherLayers = 3

// newChunked returns two nodes; the pages of b are as large as gatherLayers pages of a.
func newChunked(t *testing.T, open plane.Opener) pair {
	p := pair{a: OpenNode(t, open, 1, pages, pageBytes/gatherLayers), b: OpenNode(t, open, 2, pages, pageBytes)}
	p.link = p.a.Import(t, p.b.Inc, p.b.Plane.Blob())
	return p
}

// newGather prepares a push of count pages of length bytes, gathered from layers that do not lie in order.
func (p pair) newGather(count int, length, stripes uint32) Push {
	layers := p.a.PublishPages(0, count*gatherLayers, length/gatherLayers)
	for i := range layers { // The layers of each chunk are adjacent to layers of further chunks.
		j := (i * 7) % len(layers)
		layers[i], layers[j] = layers[j], layers[i]
	}
	for _, page := range layers {
		fillPattern(p.a.Pool.Bytes(page), uint64(page.Index)<<32|uint64(page.Generation))
	}
	var from []effects.Page
	for i := range count {
		first := layers[i*gatherLayers]
		first.Length = length
		from = append(from, first)
	}
	grant, into := p.b.GrantWrite(p.a.Inc, 0, count, length)
	push := p.pushTo(grant, from, into)
	push.Gather = effects.Gather{Pages: layers, Layers: gatherLayers, Stripes: stripes}
	return push
}

// gatheredContent returns the expected content of page i: the first stripes of all layers, then the second ones, and so
// on.
func (p pair) gatheredContent(push Push, i int) (want []byte) {
	for stripe := range int(push.Gather.Stripes) {
		for _, page := range push.Gather.Pages[i*gatherLayers : (i+1)*gatherLayers] {
			all := p.a.Pool.Bytes(page)
			n := len(all) / int(push.Gather.Stripes)
			want = append(want, all[stripe*n:(stripe+1)*n]...)
		}
	}
	return want
}

func gathersArrive(t *testing.T, open plane.Opener) {
	p := newChunked(t, open)
	for _, c := range []struct {
		count           int
		length, stripes uint32
	}{
		{5, pageBytes, 2}, {5, pageBytes, 1}, {1, gatherLayers * 2 * 100, 2}, {pages / gatherLayers, pageBytes, 2},
	} {
		push := p.newGather(c.count, c.length, c.stripes)
		p.wantEnd(t, push, effects.OK)
		landed := AwaitEvent(t, p.b, func(e *effects.Landed) bool { return e.Grant == push.Grant })
		if !landed.Complete || len(landed.Pages) != c.count {
			t.Fatalf("landed: complete %v, %d pages of %d", landed.Complete, len(landed.Pages), c.count)
		}
		for i, page := range push.Into {
			if !bytes.Equal(p.b.Pool.Bytes(page), p.gatheredContent(push, i)) {
				t.Fatalf("page %d of %d bytes in %d stripes is not what was put together", i, c.length, c.stripes)
			}
		}
	}
}

func gathersAreChecked(t *testing.T, open plane.Opener) {
	p := newChunked(t, open)
	good := p.newGather(2, pageBytes, 2)
	change := func(f func(*effects.Gather)) Push {
		q := good
		q.Gather.Pages = append([]effects.Page(nil), good.Gather.Pages...)
		f(&q.Gather)
		return q
	}
	for name, f := range map[string]func(*effects.Gather){
		"a page that is not there":     func(g *effects.Gather) { g.Pages[4].Index = pages },
		"a page too few":               func(g *effects.Gather) { g.Pages = g.Pages[:5] },
		"a page of another length":     func(g *effects.Gather) { g.Pages[5].Length-- },
		"stripes that do not divide":   func(g *effects.Gather) { g.Stripes = 16 },
		"no stripes":                   func(g *effects.Gather) { g.Stripes = 0 },
		"pages without a word of them": func(g *effects.Gather) { g.Layers = 0 },
	} {
		t.Log(name)
		p.wantEnd(t, change(f), effects.Invalid)
	}
	p.wantEnd(t, good, effects.OK)
}
