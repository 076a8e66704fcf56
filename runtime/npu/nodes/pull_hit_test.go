//go:build cgo && linux

package nodes

import (
	"syscall"
	"testing"
	"time"
)

// readerPoints are the points of a pull at which a receiver may be hit.
var readerPoints = map[string]point{
	"before it connects":               {strike: strike{At: "Import"}, before: true},
	"before it reads":                  {strike: strike{At: "Transfer"}, before: true},
	"while it reads":                   {inside: true, before: true},
	"before its read moves":            {inside: true, dawdling: true, before: true},
	"behind its read":                  {strike: strike{At: "TransferDone"}},
	"before it answers":                {strike: strike{After: []string{"TransferDone"}, At: "Reply"}},
	"before it says that it has read":  {strike: strike{At: "Post"}},
	"behind its word that it has read": {strike: strike{At: "SendDone"}},
}

// lenderPoints are the points of a pull at which a sender may be hit.
var lenderPoints = map[string]point{
	"before it lends":                          {strike: strike{At: "Grant"}},
	"before its offer leaves":                  {strike: strike{After: []string{"Grant"}, At: "Send"}},
	"while its pages are read":                 {inside: true},
	"before it hears the answer":               {strike: strike{After: []string{"Grant"}, At: "Replied"}},
	"before it hears that its pages were read": {strike: strike{After: []string{"Grant"}, At: "Received"}},
}

// A receiver is frozen during a pull, until the offer is over and the sender's engine has reused the pages. Then the
// receiver continues, and delivers nothing stale.
func TestFrozenReaderDeliversNothingStale(t *testing.T) {
	eachPoint(t, readerPoints, func(t *testing.T, w wire, at point) {
		s := newScene(t, w, "pull", at, "receiver", syscall.SIGSTOP)
		s.settle()
		s.sender.does(order{Op: "reclaim"})
		s.sender.does(order{Op: "await", For: "unlent"})

		t.Log("# it goes on, and has what it read in time or nothing")
		s.thaw()
		s.receiver.does(order{Op: "await", For: "quiet"})
		last := s.keys[len(s.keys)-offerChunks:]
		if w := s.receiver.does(order{Op: "hits", Keys: last}); at.before && w.Hits != 0 {
			t.Error("it has chunks that it began to read, or saw read, when they were not offered any more")
		}
		s.nothingStale()
		s.goesOn(s.sender, s.receiver, s.peer)
		s.sender.closes()
		s.receiver.closes()
	})
}

// A receiver dies during a pull. The sender frees the memory when the lease is over, and the next receiver is served.
func TestKilledReaderLeavesNothingLent(t *testing.T) {
	eachPoint(t, readerPoints, func(t *testing.T, w wire, at point) {
		s := newScene(t, w, "pull", at, "receiver", syscall.SIGKILL)
		s.settle()
		s.sender.does(order{Op: "reclaim"})
		s.sender.does(order{Op: "await", For: "unlent"})
		next := s.room.start("the next receiver")
		one := w.at(7, "receiver", "pull")
		one.Lease = briefly
		s.goesOn(s.sender, next, next.opens(one))
		s.sender.closes()
		next.closes()
	})
}

// A sender is frozen during a pull, for longer than its offer is valid. When the sender continues, its engine gets the
// pages back and reuses them; the receiver never sees the new content.
func TestFrozenLenderLetsNothingStaleBeRead(t *testing.T) {
	eachPoint(t, lenderPoints, func(t *testing.T, w wire, at point) {
		s := newScene(t, w, "pull", at, "sender", syscall.SIGSTOP)
		<-time.After(2 * briefly) // With a shorter wait the offer would still be valid.
		s.thaw()
		s.settle()
		s.sender.does(order{Op: "reclaim"})
		s.receiver.does(order{Op: "await", For: "quiet"})
		s.nothingStale()
		s.goesOn(s.sender, s.receiver, s.peer)
		s.sender.closes()
		s.receiver.closes()
	})
}

// A sender dies during a pull. The chunks that the receiver had read are complete, no page stays in use, and the next
// sender is served.
func TestKilledLenderLeavesNothingHeld(t *testing.T) {
	eachPoint(t, lenderPoints, func(t *testing.T, w wire, at point) {
		s := newScene(t, w, "pull", at, "sender", syscall.SIGKILL)
		if s.inside {
			s.receiver.does(order{Op: "control", For: "release"})
		}
		s.receiver.does(order{Op: "await", For: "quiet"})
		s.nothingStale()
		other, kept := s.reuses()
		s.has(kept)
		other.closes()
		s.receiver.closes()
	})
}
