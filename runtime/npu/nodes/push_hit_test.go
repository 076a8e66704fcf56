//go:build cgo && linux

package nodes

import (
	"syscall"
	"testing"
)

// writerPoints are the points of a push at which a sender may be hit.
var writerPoints = map[string]point{
	"before it connects":                {strike: strike{At: "Import"}},
	"before it puts":                    {strike: strike{At: "Transfer"}, under: true},
	"while it puts":                     {inside: true, under: true},
	"before its batch moves":            {inside: true, dawdling: true, under: true},
	"behind its put":                    {strike: strike{At: "TransferDone"}, under: true},
	"before it says that it has put":    {strike: strike{After: []string{"TransferDone"}, At: "Send"}, under: true},
	"before it hears that it was taken": {strike: strike{After: []string{"TransferDone"}, At: "Replied"}},
}

// targetPoints are the points of a push at which the receiver may be hit.
var targetPoints = map[string]point{
	"before it grants":                  {strike: strike{At: "Grant"}},
	"before its grant leaves":           {strike: strike{After: []string{"Grant"}, At: "Reply"}},
	"while its pages are written":       {inside: true},
	"before it hears that it was put":   {strike: strike{After: []string{"Grant"}, At: "Received"}},
	"before it says that it was stored": {strike: strike{After: []string{"Grant", "Received"}, At: "Reply"}},
}

// A sender is frozen during a push until its grant is over, and continues when different chunks are in the receiver's
// pages. Over RoCE the receiver has proof at once that the sender's NPU cannot reach the pages any more, and frees
// them. Over HCCS there is no proof, and the receiver frees no page, until the sender continues (M4).
func TestFrozenWriterWritesNothingLate(t *testing.T) {
	eachPoint(t, writerPoints, func(t *testing.T, w wire, at point) {
		s := newScene(t, w, "push", at, "sender", syscall.SIGSTOP)
		// On a slow machine the grant may have ended before the sender froze; then the pages may be free again.
		under := at.under && s.receiver.does(order{Op: "stats"}).Stats.PagesGranted > 0
		s.receiver.does(order{Op: "await", For: "expired"})
		if w == roce || !at.under {
			s.receiver.does(order{Op: "await", For: "quiet"})
		}
		other, kept := s.reuses()
		if got := s.receiver.does(order{Op: "stats"}).Stats; w == hccs && under && got.PagesQuarantined != offerChunks {
			t.Errorf("%d pages are in quarantine while their writer is frozen, want %d", got.PagesQuarantined, offerChunks)
		}

		t.Log("# it goes on, and what is there stays as it is")
		s.thaw()
		s.settle()
		s.sender.does(order{Op: "reclaim"})
		s.receiver.does(order{Op: "await", For: "quiet"})
		s.nothingStale()
		s.has(kept)
		other.closes()
		s.sender.closes()
		s.receiver.closes()
	})
}

// A sender dies during a push. The receiver frees the pages, and stores no incomplete chunk.
func TestKilledWriterLeavesNothingGranted(t *testing.T) {
	eachPoint(t, writerPoints, func(t *testing.T, w wire, at point) {
		s := newScene(t, w, "push", at, "sender", syscall.SIGKILL)
		s.receiver.does(order{Op: "await", For: "quiet"})
		other, kept := s.reuses()
		s.has(kept)
		s.nothingStale()
		other.closes()
		s.receiver.closes()
	})
}

// A receiver is frozen during a push. The sender frees its memory without a reply, and the receiver's chunks are right
// when the receiver continues.
func TestFrozenTargetKeepsNothingStale(t *testing.T) {
	eachPoint(t, targetPoints, func(t *testing.T, w wire, at point) {
		s := newScene(t, w, "push", at, "receiver", syscall.SIGSTOP)
		if s.inside {
			s.sender.does(order{Op: "control", For: "release"})
		}
		s.settle()
		s.sender.does(order{Op: "reclaim"})
		s.hit.Resume()
		s.receiver.does(order{Op: "await", For: "quiet"})
		s.nothingStale()
		s.sender.closes()
		s.receiver.closes()
	})
}

// A receiver dies during a push. The sender frees its memory, and the next receiver is served.
func TestKilledTargetHoldsNothing(t *testing.T) {
	eachPoint(t, targetPoints, func(t *testing.T, w wire, at point) {
		s := newScene(t, w, "push", at, "receiver", syscall.SIGKILL)
		if s.inside {
			s.sender.does(order{Op: "control", For: "release"})
		}
		s.settle()
		s.sender.does(order{Op: "reclaim"})
		next := s.room.start("the next receiver")
		s.goesOn(s.sender, next, next.opens(w.at(7, "receiver", "push")))
		s.sender.closes()
		next.closes()
	})
}
