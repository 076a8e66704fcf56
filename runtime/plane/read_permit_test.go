package plane

import (
	"os"
	"sync/atomic"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

func testReadPermits(t *testing.T, p *Pool, pages uint32) *PeerReadPermits {
	t.Helper()
	peer, err := MapReadPermits(p.ReadPermitsFile().Fd(), pages)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := peer.Unmap(); err != nil {
			t.Error(err)
		}
	})
	return peer
}

func TestReadPermitStandsFromGrantToRevoke(t *testing.T) {
	var sink events
	p := testPool(t, &sink, 2, 100)
	defer p.Close()
	peer := testReadPermits(t, p, 2)
	page := publishLeased(p, 5, alice, 1)
	for _, c := range []struct {
		name          string
		id            effects.GrantID
		reader        effects.Incarnation
		index, length uint32
		want          effects.Code
	}{
		{"as granted", 5, alice, 0, 100, effects.OK},
		{"less", 5, alice, 0, 1, effects.OK},
		{"more", 5, alice, 0, 101, effects.TooLarge},
		{"a page that is not lent", 5, alice, 1, 1, effects.Withdrawn},
		{"another peer", 5, bob, 0, 100, effects.Refused},
		{"half of the peer", 5, effects.Incarnation{0: alice[0], 15: 1}, 0, 100, effects.Refused},
		{"no grant", 0, alice, 0, 100, effects.Withdrawn},
		{"no grant of nobody", 0, effects.Incarnation{}, 0, 100, effects.Withdrawn},
		{"a grant that never was", 6, alice, 0, 100, effects.Withdrawn},
		{"another in the slot", 5 + readSlots, alice, 0, 100, effects.Withdrawn},
	} {
		if _, code := peer.Permit(c.id, c.reader, c.index, c.length); code != c.want {
			t.Errorf("%s: %s, want %s", c.name, code, c.want)
		}
	}
	permit, _ := peer.Permit(5, alice, 0, 100)
	p.Revoke(5)
	if _, code := peer.Permit(5, alice, 0, 100); permit.isValid() || code != effects.Withdrawn {
		t.Errorf("after Revoke the permit stands: %v, %s", permit.isValid(), code)
	}
	p.Grant(&effects.Grant{ID: 5 + readSlots, Peer: alice, Read: true, Pages: page})
	if _, code := peer.Permit(5, alice, 0, 100); permit.isValid() || code != effects.Withdrawn {
		t.Errorf("the next grant in the slot revived it: %v, %s", permit.isValid(), code)
	}
	if next, code := peer.Permit(5+readSlots, alice, 0, 100); !next.isValid() || code != effects.OK {
		t.Errorf("the next grant: %s", code)
	}
}

func TestMapReadPermitsDemandsSealsAndSize(t *testing.T) {
	var sink events
	p := testPool(t, &sink, 2, 100)
	defer p.Close()
	for _, pages := range []uint32{0, 1, 3, 1<<32 - 1} {
		if _, err := MapReadPermits(p.ReadPermitsFile().Fd(), pages); err == nil {
			t.Errorf("mapped permits of 2 pages as those of %d", pages)
		}
	}
	plain, err := os.CreateTemp(t.TempDir(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(int64(readPermitsBytes(2))); err != nil {
		t.Fatal(err)
	}
	if _, err := MapReadPermits(plain.Fd(), 2); err == nil {
		t.Error("mapped a file that its owner can cut off")
	}
}

// The litmus test of Revoke: a page keeps its generation, and its owner stores into it between two read leases. A
// copy under one lease must contain the bytes of that lease only. As in generation_test.go, the race is intended.
func TestCopiesPassForTheirLeaseOnly(t *testing.T) { byEachMover(t, copiesPassForTheirGrantOnly) }

func copiesPassForTheirGrantOnly(t *testing.T, move Mover) {
	const grants = 5_000
	var sink events
	l := newLitmus(t, &sink)
	lives := []effects.Page{{Length: litmusBytes, Generation: 1}}
	l.pool.Publish(lives)
	peer := testReadPermits(t, l.pool, 1)
	var current atomic.Uint64 // the offer
	l.startReaders(move, func(dst []byte, held Mover) (uint64, effects.Code) {
		n := current.Load()
		permit, code := peer.Permit(effects.GrantID(n), alice, 0, litmusBytes)
		if code != effects.OK {
			return 0, code
		}
		return n, l.mapping.CopyPage(dst, 0, 1, permit, held)
	})
	for n := uint64(1); l.mustContinue(n <= grants); n++ {
		l.fillPage(n)
		l.pool.Grant(&effects.Grant{ID: effects.GrantID(n), Peer: alice, Read: true, Pages: lives})
		current.Store(n)
		if n%16 == 0 { // Some leases stand long enough for a whole copy.
			l.awaitWhole()
		}
		l.pool.Revoke(effects.GrantID(n))
		sink = sink[:0]
	}
	l.stopReaders()
}
