package plane

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// A pool with grant numbers near the end of the turns continues to the last turn, and then stops the process rather
// than admit the writer of one grant under another grant (M2).
func TestTurnsNearTheEnd(t *testing.T) {
	var sink events
	p := testPool(t, &sink, 1, 100)
	defer p.Close()
	p.lastTurn = turnMask - 2
	give := func(id effects.GrantID) {
		p.Grant(&effects.Grant{ID: id, Peer: alice, Pages: []effects.Page{{Length: 100, Generation: effects.Generation(id)}}})
	}
	var old *WriteClaim
	for id := effects.GrantID(1<<64 - 3); id <= 1<<64-2; id++ { // Ids have all 64 bits.
		give(id)
		claim, code := p.ClaimWrite(alice, id, []effects.Page{{Length: 100, Generation: effects.Generation(id)}})
		if code != effects.OK || claim.Hold(0) == nil {
			t.Fatalf("grant %#x: %v", uint64(id), code)
		}
		if old != nil && old.Hold(0) != nil {
			t.Fatal("the claim of a revoked grant holds a page in another's turn")
		}
		claim.Release(0)
		p.Revoke(id)
		if old = claim; sink.countRevoked(id) != 1 {
			t.Fatalf("grant %#x is not revoked", uint64(id))
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a turn was given twice")
		}
	}()
	give(1)
}

// A read fence counts the holders, admits no holder after the close, and reports the last holder that leaves.
func TestReadFence(t *testing.T) {
	var g readFence
	first, second, over, third := g.hold(), g.hold(), g.release(), g.hold()
	if !first || !second || over || !third {
		t.Fatal("an open gate keeps somebody out, or closes")
	}
	if n := g.close(); n != 2 {
		t.Fatalf("%d inside; there are 2", n)
	}
	if g.hold() || g.release() || !g.release() {
		t.Fatal("a closed gate lets somebody in, or does not know the last one")
	}
	if n := g.close(); n != 0 {
		t.Fatalf("%d inside of a gate that all left", n)
	}
}
