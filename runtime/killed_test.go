package runtime_test

import (
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/fsm/rank"
)

// A receiver dies in the middle of a pull, also between its read and its word that it has read. The memory comes back
// by
// time, and the next receiver is served.
func TestKilledReaderLeavesNothingLent(t *testing.T) {
	eachStrike(t, testing.Short(), readerStrikes, func(t *testing.T, channel string, at strike) {
		at.Signal = syscall.SIGKILL
		s := briefSender(t, channel)
		p, peer := startNode(t, order{Role: "receiver", Channel: channel, Strike: at})
		o := offersUntil(t, s, peer, p.Exited())
		o.reclaims(t)
		waitFor(t, s, "the end of every loan", func(s rank.Stats) bool { return s.PagesLeased+s.PagesQuarantined == 0 })

		next, peer := startNode(t, order{Role: "receiver", Channel: channel})
		keys := putUntilAccepted(t, s, peer)
		if w := next.perform(order{Op: "get", Keys: keys}); w.Hits != len(keys) || w.Wrong != 0 {
			t.Errorf("at the next receiver %d chunks arrive, %d of them wrong", w.Hits, w.Wrong)
		}
		mustClose(t, s)
		next.closeNode()
	})
}

// A sender dies in the middle of a pull. What its receiver has read before is whole, nothing of it stays held, and the
// next
// sender is served.
func TestKilledOwnerLeavesNothingHeld(t *testing.T) {
	eachStrike(t, testing.Short(), ownerStrikes, func(t *testing.T, channel string, at strike) {
		at.Signal = syscall.SIGKILL
		r, _, keys, _ := hitOwner(t, channel, at)
		waitFor(t, r, "the end of all reads", isQuiet)
		if w := getEach(t, r, keys); w.Wrong != 0 {
			t.Errorf("%d of %d chunks are not what was offered", w.Wrong, w.Hits)
		}
		next, _ := startNode(t, order{Role: "sender", Channel: channel, TTL: limit})
		wantChunksFrom(t, r, next)
		next.closeNode()
		mustClose(t, r)
	})
}
