package register

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/table"
)

func nameOf(transfer, request string) *requestName {
	return &requestName{transfer: []byte(transfer), request: []byte(request)}
}

// Which names are of one request, and how surely.
func TestNamesMatch(t *testing.T) {
	for _, c := range []struct {
		a, b *requestName
		is   likeness
	}{
		{nameOf("", "r-00000001"), nameOf("", "r-00000001"), nameExact},
		{nameOf("", "r-00000001"), nameOf("", "r-00000002"), nameSimilar},
		{nameOf("", "r-00000001"), nameOf("", "r"), nameSimilar},
		{nameOf("", "r-00000001"), nameOf("", "q-00000001"), nameDiffers},
		{nameOf("", "r-0000000g"), nameOf("", "r"), nameDiffers},
		{nameOf("t", "r-00000001"), nameOf("t", "q"), nameExact},
		{nameOf("t", "r-00000001"), nameOf("u", "r-00000001"), nameDiffers},
		{nameOf("t", "r-00000001"), nameOf("", "r-00000001"), nameDiffers},
	} {
		if got := c.a.likenessTo(c.b); got != c.is || c.b.likenessTo(c.a) != c.is {
			t.Errorf("%q and %q are %v, want %v, in either order", *c.a, *c.b, got, c.is)
		}
	}
}

// A drawn name is one of few, so that many are alike.
func drawName(t *rapid.T) *requestName {
	n := nameOf(rapid.SampledFrom([]string{"", "", "t", "u"}).Draw(t, "transfer"),
		rapid.SampledFrom([]string{"r", "q", "r-0000000"}).Draw(t, "request"))
	if end := rapid.IntRange(-1, 3).Draw(t, "end"); end >= 0 {
		n.request = fmt.Appendf(n.request, "-%08x", end)
	}
	return n
}

// What is found by a name is what is like it, whatever came and went, and what is remembered of a request is the same
// for all names of it.
func TestNamesAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &flow.Env{Rooms: &flow.Rooms{}}
		var x nameIndex
		rows := table.NewSlab[requestName](64)
		of := func(h table.Handle) *requestName { return rows.Get(h) }
		var all []table.Handle
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if len(all) > 0 && rapid.IntRange(0, 3).Draw(t, "removes") == 0 {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				x.removeRow(e, of(all[i]), all[i])
				rows.Remove(all[i])
				all = slices.Delete(all, i, i+1)
			} else {
				n := drawName(t)
				h, row := rows.Add()
				row.copyFrom(n.transfer, n.request)
				x.addRow(e, row, h)
				all = append(all, h)
			}
			n := drawName(t)
			found := x.findRows(e, n, of, nil)
			for _, h := range all {
				m := of(h)
				if like := m.likenessTo(n) != nameDiffers; like != slices.Contains(found, h) {
					t.Fatalf("%q is found by %q: %v, want %v", *m, *n, !like, like)
				}
				if same := m.recordHash(e) == n.recordHash(e); n.likenessTo(m) != nameDiffers && !same {
					t.Fatalf("%q and %q are of one request, and remembered as two", *m, *n)
				}
			}
			if len(slices.Compact(slices.Clone(found))) != len(found) || len(found) > len(all) {
				t.Fatalf("%q finds %v", *n, found)
			}
		}
	})
}

// The memory of a name and of lists is theirs: who lends it may write to it afterwards.
func TestNamesAreKept(t *testing.T) {
	request, kept := []byte("request"), requestName{}
	kept.copyFrom(nil, request)
	request[0] = 'X'
	if !bytes.Equal(kept.request, []byte("request")) {
		t.Errorf("%q was kept", kept.request)
	}
}
