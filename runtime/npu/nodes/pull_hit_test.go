//go:build cgo && linux

package nodes

import (
	"syscall"
	"testing"
	"time"
)

// pullReceiverPoints are the points of a pull at which a receiver may be hit.
var pullReceiverPoints = map[string]point{
	"before it connects":               {hitTrigger: hitTrigger{At: "Import"}, nothingRead: true},
	"before it reads":                  {hitTrigger: hitTrigger{At: "Transfer"}, nothingRead: true},
	"while it reads":                   {duringBatch: true, nothingRead: true},
	"before its read moves":            {duringBatch: true, batchesSlow: true, nothingRead: true},
	"behind its read":                  {hitTrigger: hitTrigger{At: "TransferDone"}},
	"before it answers":                {hitTrigger: hitTrigger{After: []string{"TransferDone"}, At: "Reply"}},
	"before it says that it has read":  {hitTrigger: hitTrigger{At: "Post"}},
	"behind its word that it has read": {hitTrigger: hitTrigger{At: "SendDone"}},
}

// pullSenderPoints are the points of a pull at which a sender may be hit.
var pullSenderPoints = map[string]point{
	"before it lends":                          {hitTrigger: hitTrigger{At: "Grant"}},
	"before its offer leaves":                  {hitTrigger: hitTrigger{After: []string{"Grant"}, At: "Send"}},
	"while its pages are read":                 {duringBatch: true},
	"before it hears the answer":               {hitTrigger: hitTrigger{After: []string{"Grant"}, At: "Replied"}},
	"before it hears that its pages were read": {hitTrigger: hitTrigger{After: []string{"Grant"}, At: "Received"}},
}

// A receiver is frozen during a pull, until the offer is over and the sender's engine has reused the pages. Then the
// receiver continues, and delivers nothing stale.
func TestFrozenReaderDeliversNothingStale(t *testing.T) {
	runEachPoint(t, pullReceiverPoints, func(t *testing.T, w wire, at point) {
		s := newHitScenario(t, w, "pull", at, "receiver", syscall.SIGSTOP)
		s.awaitLastPut()
		s.sender.mustDo(order{Op: "reclaim"})
		s.sender.mustDo(order{Op: "await", Argument: "unlent"})

		t.Log("# it goes on, and has what it read in time or nothing")
		s.resume()
		s.receiver.mustDo(order{Op: "await", Argument: "quiet"})
		last := s.keys[len(s.keys)-offerChunks:]
		if w := s.receiver.mustDo(order{Op: "hits", Keys: last}); at.nothingRead && w.Hits != 0 {
			t.Error("it has chunks that it began to read, or saw read, when they were not offered any more")
		}
		s.wantNothingStale()
		s.wantWorking(s.sender, s.receiver, s.peer)
		s.sender.closeNodes()
		s.receiver.closeNodes()
	})
}

// A receiver dies during a pull. The sender frees the memory when the lease is over, and the next receiver is served.
func TestKilledReaderLeavesNothingLent(t *testing.T) {
	runEachPoint(t, pullReceiverPoints, func(t *testing.T, w wire, at point) {
		s := newHitScenario(t, w, "pull", at, "receiver", syscall.SIGKILL)
		s.awaitLastPut()
		s.sender.mustDo(order{Op: "reclaim"})
		s.sender.mustDo(order{Op: "await", Argument: "unlent"})
		next := s.runDir.startProcess("the next receiver")
		one := w.nodeAt(7, "receiver", "pull")
		one.Lease = shortLease
		s.wantWorking(s.sender, next, next.openNode(one))
		s.sender.closeNodes()
		next.closeNodes()
	})
}

// A sender is frozen during a pull, for longer than its offer is valid. When the sender continues, its engine gets the
// pages back and reuses them; the receiver never sees the new content.
func TestFrozenLenderLetsNothingStaleBeRead(t *testing.T) {
	runEachPoint(t, pullSenderPoints, func(t *testing.T, w wire, at point) {
		s := newHitScenario(t, w, "pull", at, "sender", syscall.SIGSTOP)
		<-time.After(2 * shortLease) // With a shorter wait the offer would still be valid.
		s.resume()
		s.awaitLastPut()
		s.sender.mustDo(order{Op: "reclaim"})
		s.receiver.mustDo(order{Op: "await", Argument: "quiet"})
		s.wantNothingStale()
		s.wantWorking(s.sender, s.receiver, s.peer)
		s.sender.closeNodes()
		s.receiver.closeNodes()
	})
}

// A sender dies during a pull. The chunks that the receiver had read are complete, no page stays in use, and the next
// sender is served.
func TestKilledLenderLeavesNothingHeld(t *testing.T) {
	runEachPoint(t, pullSenderPoints, func(t *testing.T, w wire, at point) {
		s := newHitScenario(t, w, "pull", at, "sender", syscall.SIGKILL)
		if s.batchHangs {
			s.receiver.mustDo(order{Op: "control", Argument: "release"})
		}
		s.receiver.mustDo(order{Op: "await", Argument: "quiet"})
		s.wantNothingStale()
		other, kept := s.reusePages()
		s.wantChunks(kept)
		other.closeNodes()
		s.receiver.closeNodes()
	})
}
