package plane

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

func testPermits(t *testing.T, n int) (*Permits, *PeerPermits) {
	t.Helper()
	own, err := NewPermits(n)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := MapPermits(own.PermitsFile().Fd())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(own.Close(), peer.Unmap()); err != nil {
			t.Error(err)
		}
	})
	return own, peer
}

// testPermit returns a permit that stands.
func testPermit(t *testing.T, number uint64) (*Permits, Permit) {
	t.Helper()
	own, peer := testPermits(t, 1)
	slot, ok := own.Issue(number)
	if !ok {
		t.Fatal("no permit is left of one")
	}
	return own, peer.Permit(slot, number)
}

func TestPermitStandsFromIssueToWithdrawal(t *testing.T) {
	own, peer := testPermits(t, 2)
	one, _ := own.Issue(7)
	two, ok := own.Issue(8)
	if !ok || one == two || !peer.Has(one) || !peer.Has(two) {
		t.Fatalf("slots %d and %d, %v", one, two, ok)
	}
	if _, ok := own.Issue(9); ok {
		t.Fatal("two slots took three transfers")
	}
	seven := peer.Permit(one, 7)
	if !seven.isValid() || !peer.Permit(two, 8).isValid() || peer.Permit(two, 7).isValid() {
		t.Fatal("issued permits stand, each for its number alone")
	}
	own.Withdraw(one)
	if seven.isValid() {
		t.Fatal("a withdrawn permit stands")
	}
	if again, ok := own.Issue(10); !ok || again != one || seven.isValid() {
		t.Fatalf("slot %d, %v; the permit of its former transfer stands: %v", again, ok, seven.isValid())
	}
}

func TestPermitsAreBounded(t *testing.T) {
	for _, n := range []int{-1, 0, maxPermits + 1} {
		if _, err := NewPermits(n); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d permits: %v", n, err)
		}
	}
	_, peer := testPermits(t, 3)
	if peer.Has(3) || peer.Has(1<<32-1) || !peer.Has(2) {
		t.Error("three permits have the slots 0, 1 and 2")
	}
	for _, size := range []uint64{4, 12, permitsBytes(maxPermits) + 8} {
		file, _, err := newSegment(t.Context(), "test", size, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := MapPermits(file.Fd()); err == nil {
			t.Errorf("permits of %d bytes were mapped", size)
		}
		_ = file.Close()
	}
	plain, err := os.CreateTemp(t.TempDir(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := MapPermits(plain.Fd()); err == nil {
		t.Error("mapped a file that its owner can cut off")
	}
}

func TestWithdrawnPermitsLetNothingPass(t *testing.T) {
	var sink events
	p := testPool(t, &sink, 1, 64)
	defer p.Close()
	m, err := MapPool(p.PagesFile().Fd(), p.GenerationsFile().Fd(), 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	p.Publish([]effects.Page{{Length: 64, Generation: 1}})
	own, permit := testPermit(t, 5)
	during := func(dst, src []byte) {
		own.Withdraw(0)
		Move(dst, src)
	}
	if code := m.CopyPage(make([]byte, 64), 0, 1, permit, during); code != effects.Cancelled {
		t.Errorf("withdrawn during the copy: %s", code)
	}
	never := func([]byte, []byte) { t.Error("copied without a permit") }
	if code := m.CopyPage(make([]byte, 64), 0, 1, permit, never); code != effects.Cancelled {
		t.Errorf("withdrawn before the copy: %s", code)
	}
}

// The litmus test of withdrawal: a page keeps its generation, and its owner stores into it between two transfers. A
// copy under the permit of one transfer must contain the bytes of that transfer only. As in generation_test.go, the
// race is intended.
func TestCopiesPassForTheirTransferOnly(t *testing.T) { byEachMover(t, copiesPassForTheirTransferOnly) }

func copiesPassForTheirTransferOnly(t *testing.T, move Mover) {
	const transfers = 2_000
	var sink events
	l := newLitmus(t, &sink)
	l.pool.Publish([]effects.Page{{Length: litmusBytes, Generation: 1}})
	own, peer := testPermits(t, 1)
	var current atomic.Uint64 // the push frame
	l.startReaders(move, func(dst []byte, held Mover) (uint64, effects.Code) {
		n := current.Load()
		if n == 0 {
			return 0, effects.OK
		}
		return n, l.mapping.CopyPage(dst, 0, 1, peer.Permit(0, n), held)
	})
	for n := uint64(1); l.mustContinue(n <= transfers); n++ {
		l.fillPage(n)
		slot, _ := own.Issue(n)
		current.Store(n)
		if n%16 == 0 { // Some transfers run long enough for a whole copy.
			l.awaitWhole()
		}
		own.Withdraw(slot)
	}
	l.stopReaders()
}
