package runtime_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
)

// A receiver is frozen in the middle of a pull, until its sender's offer is over and the sender's engine has
// used the pages for something else. Then it goes on where it was, and delivers nothing stale.
func TestFrozenReaderDeliversNothingStale(t *testing.T) {
	eachStrike(t, testing.Short(), readerStrikes, func(t *testing.T, channel string, at strike) {
		at.Signal = syscall.SIGSTOP
		s := briefSender(t, channel)
		p, peer := startNode(t, order{Role: "receiver", Channel: channel, Strike: at})
		o := offersUntil(t, s, peer, p.FrozenOnce())

		t.Log("# the pages come back although nobody says anything, and are used for something else")
		o.reclaims(t)
		waitFor(t, s, "the end of every loan", func(s rank.Stats) bool { return s.PagesLeased == 0 })
		p.Resume()

		t.Log("# it goes on, and has what it read in time or nothing")
		w := p.perform(order{Op: "get", Keys: o.keys})
		if w.Wrong != 0 {
			t.Errorf("%d of %d chunks are not what was offered", w.Wrong, w.Hits)
		}
		if last := o.keys[len(o.keys)-offerChunks:]; at.Before && p.perform(order{Op: "get", Keys: last}).Hits != 0 {
			t.Error("it has chunks that it began to read when they were not offered any more")
		}

		t.Log("# both ends work on, and nothing is held")
		keys := putUntilAccepted(t, s, peer)
		if w := p.perform(order{Op: "get", Keys: keys}); w.Hits != len(keys) || w.Wrong != 0 {
			t.Errorf("afterwards %d chunks arrive, %d of them wrong", w.Hits, w.Wrong)
		}
		mustClose(t, s)
		p.closeNode()
	})
}

// A sender is frozen in the middle of a pull, for longer than its offer stands. When it goes on, its engine gets the
// pages back and uses them for something else; its receiver never sees that.
func TestFrozenOwnerLetsNothingStaleBeRead(t *testing.T) {
	eachStrike(t, testing.Short(), ownerStrikes, func(t *testing.T, channel string, at strike) {
		at.Signal = syscall.SIGSTOP
		r, p, keys, answers := hitOwner(t, channel, at)
		long := time.NewTimer(2 * briefly) // It makes the situation; if it were too short, the offer would merely stand.
		<-long.C
		p.Resume()
		for range answers {
			p.readReply()
		}
		p.perform(order{Op: "reclaim"})
		waitFor(t, r, "the end of all reads", isQuiet)
		if w := getEach(t, r, keys); w.Wrong != 0 {
			t.Errorf("%d of %d chunks are not what was offered", w.Wrong, w.Hits)
		}

		t.Log("# both ends work on, and nothing is held")
		wantChunksFrom(t, r, p)
		p.closeNode()
		mustClose(t, r)
	})
}

// wantChunksFrom has a process put chunks until they arrive.
func wantChunksFrom(t *testing.T, r *runtime.Node, p *process) {
	t.Helper()
	keys := keysOf("after", offerChunks)
	ctx := within(t)
	for p.perform(order{Op: "put", Peer: peerOf(r), Keys: keys}).Code != effects.OK {
		p.perform(order{Op: "reclaim"})
		if ctx.Err() != nil {
			t.Fatal("no put works any more")
		}
	}
	p.perform(order{Op: "reclaim"})
	if w := getEach(t, r, keys); w.Hits != len(keys) || w.Wrong != 0 {
		t.Errorf("afterwards %d chunks arrive, %d of them wrong", w.Hits, w.Wrong)
	}
}
