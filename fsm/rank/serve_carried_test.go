package rank

import (
	"bytes"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// chunkBytes is how large a page of layout is.
const chunkBytes = 32

func withCarries(c *Config) { c.Carries = 3 * chunkBytes }

// carryingBytes has a request carry bytes, which count up from first.
func carryingBytes(first, n int) func(*protocol.AllocRequest) {
	return func(m *protocol.AllocRequest) {
		for i := range n {
			m.Ext.Carried = append(m.Ext.Carried, byte(first+i))
		}
	}
}

func (r *serving) wantCarried(q effects.Request, taken, there int) {
	r.t.Helper()
	m := r.replies[q]
	if m.AllocFailed || m.Ext.Code != 0 || m.Ext.Grant != 0 || len(m.RemoteIndexes) > 0 || int(m.Ext.Taken) != taken ||
		len(m.AlreadySent) != there {
		r.t.Fatalf("request %d is answered %+v; want %d chunks taken and %d that were there", q, m, taken, there)
	}
}

// What is carried is stored where it belongs: a chunk that is there, or stands twice, has no page of its own, and its
// bytes are passed over.
func TestCarriedChunksAreStoredByTheirPlace(t *testing.T) {
	r := newServing(t, withCarries)
	who := r.connectPeer(1)
	r.wantCarried(r.requestPages(who, keysOf("a"), carryingBytes(0, chunkBytes)), 1, 0)
	r.wantCarried(r.requestPages(who, keysOf("b", "a", "c"), carryingBytes(100, 3*chunkBytes)), 2, 1)
	r.wantCarried(r.requestPages(who, keysOf("d", "d"), func(m *protocol.AllocRequest) {
		m.LastChunkTokens = 1
		carryingBytes(50, chunkBytes+chunkBytes/4)(m)
	}), 2, 0)
	want := [][2]int{{0, chunkBytes}, {100, chunkBytes}, {100 + 2*chunkBytes, chunkBytes}, {50, chunkBytes}}
	if len(r.stored) != len(want) {
		t.Fatalf("%d pages are stored, want %d", len(r.stored), len(want))
	}
	for i, w := range want {
		var m protocol.AllocRequest
		carryingBytes(w[0], w[1])(&m)
		if !bytes.Equal(r.stored[i], m.Ext.Carried) {
			t.Errorf("page %d has %v, want %d bytes from %d on", i, r.stored[i], w[1], w[0])
		}
	}
	if len(r.grants) > 0 || r.rank.Stats().Grants > 0 {
		t.Errorf("%d grants were made for what nobody else stores", len(r.grants))
	}
}

// Chunks that do not have the checksums beside them are refused as corrupt, and none of the request is stored. A checksum
// of 0 says nothing.
func TestCarriedChecksums(t *testing.T) {
	r := newServing(t, withCarries)
	who := r.connectPeer(1)
	carrying := func(sums ...uint64) func(*protocol.AllocRequest) {
		return func(m *protocol.AllocRequest) {
			carryingBytes(0, chunkBytes+chunkBytes/4)(m)
			m.LastChunkTokens, m.Ext.Sums = 1, sums
		}
	}
	var m protocol.AllocRequest
	carrying()(&m)
	first, last := uint64(effects.SumOf(m.Ext.Carried[:chunkBytes])), uint64(effects.SumOf(m.Ext.Carried[chunkBytes:]))
	for _, wrong := range [][]uint64{{first + 1, last}, {first, last + 1}, {0, first}} {
		r.wantRefused(r.requestPages(who, keysOf("a", "b"), carrying(wrong...)), effects.Corrupt)
	}
	if len(r.stored) > 0 || r.rank.Stats().Entries > 0 {
		t.Fatalf("%d pages are stored of requests that were refused", len(r.stored))
	}
	r.wantCarried(r.requestPages(who, keysOf("a", "b"), carrying(first, last)), 2, 0)
	r.wantCarried(r.requestPages(who, keysOf("c", "d"), carrying(first, 0)), 2, 0)
}

// The grant for a chunk has the checksum that the sender states, a page that is used again has none of its former chunk,
// and neither has a page for a key that the request names with two lengths.
func TestGrantsStateChecksums(t *testing.T) {
	r := newServing(t, nil)
	who := r.connectPeer(1)
	stated := func(tokens uint32, sums ...uint64) func(*protocol.AllocRequest) {
		return func(m *protocol.AllocRequest) { m.LastChunkTokens, m.Ext.Sums = tokens, sums }
	}
	wantSums := func(q effects.Request, want ...effects.Sum) {
		t.Helper()
		if m := r.replies[q]; m.Ext.Grant != uint64(r.grants[len(r.grants)-1].ID) {
			t.Fatalf("it is answered %+v", m)
		}
		g := r.grants[len(r.grants)-1]
		if len(g.Pages) != len(want) {
			t.Fatalf("%d pages are granted, want %d", len(g.Pages), len(want))
		}
		for i, page := range g.Pages {
			if page.Sum != want[i] {
				t.Errorf("page %d is granted with checksum %d, want %d", i, page.Sum, want[i])
			}
		}
		r.landPages(g, nil) // The push ends without a page, and the pages become free.
		r.confirmRevokes()
	}
	wantSums(r.requestPages(who, keysOf("a", "b"), stated(4, 7, 8)), 7, 8)
	wantSums(r.requestPages(who, keysOf("c", "d"), stated(4)), 0, 0)
	wantSums(r.requestPages(who, keysOf("e", "f", "e"), stated(1, 7, 8, 9)), 0, 8)
	wantSums(r.requestPages(who, keysOf("a", "b", "a"), stated(4, 7, 8, 9)), 7, 8)
}

// Bytes that are no chunks of the keys beside them are refused, and so is more than was said to be taken: nothing of
// them is stored, and no page is held.
func TestCarriedBytesThatDoNotFit(t *testing.T) {
	r := newServing(t, withCarries)
	who := r.connectPeer(1)
	for name, change := range map[string]func(*protocol.AllocRequest){
		"too few":       carryingBytes(0, chunkBytes-1),
		"too many":      carryingBytes(0, chunkBytes+1),
		"of two chunks": carryingBytes(0, 2*chunkBytes),
		"of a short one": func(m *protocol.AllocRequest) {
			m.LastChunkTokens = 3
			carryingBytes(0, chunkBytes)(m)
		},
		"of layers": func(m *protocol.AllocRequest) {
			m.Ext.Layers = 2
			carryingBytes(0, chunkBytes)(m)
		},
	} {
		r.wantRefused(r.requestPages(who, keysOf("a"), change), effects.Malformed)
		if len(r.stored) > 0 {
			t.Fatalf("%s: stored", name)
		}
	}
	r.wantRefused(r.requestPages(who, keysOf("a", "b", "c", "d"), carryingBytes(0, 4*chunkBytes)), effects.Malformed)
	plain := newServing(t, nil)
	plain.wantRefused(plain.requestPages(plain.connectPeer(1), keysOf("a"), carryingBytes(0, chunkBytes)), effects.Malformed)
	if s := r.rank.Stats(); s.PagesFree != s.PagesTotal || len(r.stored) > 0 {
		t.Errorf("%d of %d pages are free, and %d stored", s.PagesFree, s.PagesTotal, len(r.stored))
	}
}

// A retry of what was taken is told the same, whatever other peers asked for in between, and takes nothing. Of another
// peer the same number is another operation.
func TestCarriedReplyIsRepeated(t *testing.T) {
	r := newServing(t, withCarries)
	one, two := r.connectPeer(1), r.connectPeer(2)
	again := func(m *protocol.AllocRequest) {
		m.Ext.Operation = 7
		carryingBytes(0, chunkBytes)(m)
	}
	r.wantCarried(r.requestPages(one, keysOf("a"), again), 1, 0)
	r.release(r.get(0, keysOf("a")))
	for i := range 100 {
		r.wantCarried(r.requestPages(two, numberedKeys(16+i, 1), carryingBytes(i, chunkBytes)), 1, 0)
		r.release(r.get(0, numberedKeys(16+i, 1)))
	}
	stored := len(r.stored)
	r.wantCarried(r.requestPages(one, keysOf("a"), again), 1, 0)
	if len(r.stored) != stored {
		t.Error("a retry is taken a second time")
	}
	r.wantRefused(r.requestPages(one, keysOf("c"), again), effects.Mismatch) // In its name somebody else spoke before.
	r.wantCarried(r.requestPages(two, keysOf("b"), again), 1, 0)
	if len(r.stored) != stored+1 {
		t.Error("an operation of another peer is taken for a retry")
	}
}
