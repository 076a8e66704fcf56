package planetest

import (
	"bytes"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// NewWholePush prepares a push of pages of a that hold their generations, under a grant of b for whole pages.
func NewWholePush(a, b *Node, link effects.Link, first, count int, size uint32) Push {
	p := Push{To: b.Inc, Link: link, From: a.PublishPages(first, count, size), Buffer: b.Pool.Buffer().ID}
	for _, page := range p.From {
		copy(a.Pool.Bytes(page), bytes.Repeat([]byte{byte(page.Generation)}, int(size)))
	}
	p.Grant, p.Into = b.GrantWrite(a.Inc, first, count, size)
	return p
}

// NewPull prepares a read by a of pages that b has leased to it and that hold their generations.
func NewPull(a, b *Node, link effects.Link, first, count int, size uint32) Pull {
	from := b.PublishPages(first, count, size)
	for _, page := range from {
		copy(b.Pool.Bytes(page), bytes.Repeat([]byte{byte(page.Generation)}, int(size)))
	}
	return Pull{Of: b.Inc, Link: link, Grant: b.GrantRead(a.Inc, from), From: from, Into: a.PublishPages(first, count, size),
		Buffer: b.Pool.Buffer().ID}
}

// WantLeasedContent fails unless the pages that were read hold what was leased.
func WantLeasedContent(t testing.TB, a *Node, pull Pull) {
	t.Helper()
	for i, page := range pull.Into {
		if want := byte(pull.From[i].Generation); bytes.Count(a.Pool.Bytes(page), []byte{want}) != int(page.Length) {
			t.Fatalf("page %d differs from what was lent", page.Index)
		}
	}
}
