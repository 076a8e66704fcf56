//go:build cgo && linux

package nodes

import (
	"syscall"
	"testing"
)

// pushSenderPoints are the points of a push at which a sender may be hit.
var pushSenderPoints = map[string]point{
	"before it connects":                {hitTrigger: hitTrigger{At: "Import"}},
	"before it puts":                    {hitTrigger: hitTrigger{At: "Transfer"}, grantInForce: true},
	"while it puts":                     {duringBatch: true, grantInForce: true},
	"before its batch moves":            {duringBatch: true, batchesSlow: true, grantInForce: true},
	"behind its put":                    {hitTrigger: hitTrigger{At: "TransferDone"}, grantInForce: true},
	"before it says that it has put":    {hitTrigger: hitTrigger{After: []string{"TransferDone"}, At: "Send"}, grantInForce: true},
	"before it hears that it was taken": {hitTrigger: hitTrigger{After: []string{"TransferDone"}, At: "Replied"}},
}

// pushReceiverPoints are the points of a push at which the receiver may be hit.
var pushReceiverPoints = map[string]point{
	"before it grants":                  {hitTrigger: hitTrigger{At: "Grant"}},
	"before its grant leaves":           {hitTrigger: hitTrigger{After: []string{"Grant"}, At: "Reply"}},
	"while its pages are written":       {duringBatch: true},
	"before it hears that it was put":   {hitTrigger: hitTrigger{After: []string{"Grant"}, At: "Received"}},
	"before it says that it was stored": {hitTrigger: hitTrigger{After: []string{"Grant", "Received"}, At: "Reply"}},
}

// A sender is frozen during a push until its grant is over, and continues when different chunks are in the receiver's
// pages. Over RoCE the receiver has proof at once that the sender's NPU cannot reach the pages any more, and frees
// them. Over HCCS there is no proof, and the receiver frees no page, until the sender continues (M4).
func TestFrozenWriterWritesNothingLate(t *testing.T) {
	runEachPoint(t, pushSenderPoints, func(t *testing.T, w wire, at point) {
		s := newHitScenario(t, w, "push", at, "sender", syscall.SIGSTOP)
		// On a slow machine the grant may have ended before the sender froze; then the pages may be free again.
		under := at.grantInForce && s.receiver.mustDo(order{Op: "stats"}).Stats.PagesGranted > 0
		s.receiver.mustDo(order{Op: "await", Argument: "expired"})
		if w == roce || !at.grantInForce {
			s.receiver.mustDo(order{Op: "await", Argument: "quiet"})
		}
		other, kept := s.reusePages()
		if got := s.receiver.mustDo(order{Op: "stats"}).Stats; w == hccs && under && got.PagesQuarantined != offerChunks {
			t.Errorf("%d pages are in quarantine while their writer is frozen, want %d", got.PagesQuarantined, offerChunks)
		}

		t.Log("# it goes on, and what is there stays as it is")
		s.resume()
		s.awaitLastPut()
		s.sender.mustDo(order{Op: "reclaim"})
		s.receiver.mustDo(order{Op: "await", Argument: "quiet"})
		s.wantNothingStale()
		s.wantChunks(kept)
		other.closeNodes()
		s.sender.closeNodes()
		s.receiver.closeNodes()
	})
}

// A sender dies during a push. The receiver frees the pages, and stores no incomplete chunk.
func TestKilledWriterLeavesNothingGranted(t *testing.T) {
	runEachPoint(t, pushSenderPoints, func(t *testing.T, w wire, at point) {
		s := newHitScenario(t, w, "push", at, "sender", syscall.SIGKILL)
		s.receiver.mustDo(order{Op: "await", Argument: "quiet"})
		other, kept := s.reusePages()
		s.wantChunks(kept)
		s.wantNothingStale()
		other.closeNodes()
		s.receiver.closeNodes()
	})
}

// A receiver is frozen during a push. The sender frees its memory without a reply, and the receiver's chunks are right
// when the receiver continues.
func TestFrozenTargetKeepsNothingStale(t *testing.T) {
	runEachPoint(t, pushReceiverPoints, func(t *testing.T, w wire, at point) {
		s := newHitScenario(t, w, "push", at, "receiver", syscall.SIGSTOP)
		if s.batchHangs {
			s.sender.mustDo(order{Op: "control", Argument: "release"})
		}
		s.awaitLastPut()
		s.sender.mustDo(order{Op: "reclaim"})
		s.hit.Resume()
		s.receiver.mustDo(order{Op: "await", Argument: "quiet"})
		s.wantNothingStale()
		s.sender.closeNodes()
		s.receiver.closeNodes()
	})
}

// A receiver dies during a push. The sender frees its memory, and the next receiver is served.
func TestKilledTargetHoldsNothing(t *testing.T) {
	runEachPoint(t, pushReceiverPoints, func(t *testing.T, w wire, at point) {
		s := newHitScenario(t, w, "push", at, "receiver", syscall.SIGKILL)
		if s.batchHangs {
			s.sender.mustDo(order{Op: "control", Argument: "release"})
		}
		s.awaitLastPut()
		s.sender.mustDo(order{Op: "reclaim"})
		next := s.runDir.startProcess("the next receiver")
		s.wantWorking(s.sender, next, next.openNode(w.nodeAt(7, "receiver", "push")))
		s.sender.closeNodes()
		next.closeNodes()
	})
}
