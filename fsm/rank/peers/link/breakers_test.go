package link

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

const addresses = 4 // of the breakers of these tests

// An address is left alone for a time, and then asked again. The table is bounded: who said so longest ago is
// forgotten.
func TestBreakers(t *testing.T) {
	b := NewBreakers(10, addresses, 7)
	at := func(port int) PeerAddr { return PeerAddr{Host: "r", InitPort: uint16(port), AllocPort: 1} }
	for i := range addresses + 1 {
		if !b.Trip(effects.Time(i), at(i), effects.NoMemory, "full", false, 0) {
			t.Fatal("it does not open")
		}
	}
	for i := range addresses + 1 {
		if alone := b.IsOpen(5, at(i), 1); alone != (i > 0) {
			t.Errorf("address %d is left alone: %v", i, alone)
		}
	}
	if b.Trip(6, at(1), effects.NoMemory, "still", false, 0); !b.IsOpen(15, at(1), 1) || b.OpenReason(at(1)).Said != "still" {
		t.Error("it does not count from what was said last")
	}
	if b.IsOpen(12, at(2), 1) || b.IsOpen(11, at(2), 1) {
		t.Error("an address is left alone after its time, or again")
	}
	if none := NewBreakers(0, addresses, 7); none.Trip(1, at(1), effects.NoMemory, "", false, 0) || none.IsOpen(1, at(1), 1) {
		t.Error("one is left alone where nobody is")
	}
}

// Where a lane carries several requests, a breaker whose time is over lets one go at a time until that is answered.
func TestBreakerIsFollowedByATrial(t *testing.T) {
	b, w := NewBreakers(10, addresses, 7), PeerAddr{Host: "r", InitPort: 1, AllocPort: 1}
	b.Trip(0, w, effects.NoMemory, "", true, 0)
	if b.CloseTrial(5, w); !b.IsOpen(9, w, 1) {
		t.Fatal("the answer to what was sent before ends it")
	}
	if b.IsOpen(10, w, 1) || !b.HasTrial(w) {
		t.Fatal("its time is over, and no trial follows")
	}
	if b.CloseTrial(11, w); b.HasTrial(w) || b.IsOpen(11, w, 1) {
		t.Fatal("an answer does not end the trial")
	}
}

// A peer that fails at each trial is left alone for longer each time, one question at a time is its trial, and whatever
// it answers ends that. What was asked before it was left alone makes no difference.
func TestBreakersGrow(t *testing.T) {
	fresh := NewBreakers(2, 4, 1)
	b := fresh.WithDoubling(7)
	w, now := PeerAddr{Host: "h", InitPort: 1}, effects.Time(100)
	try := func(at effects.Time, want bool) {
		t.Helper()
		if now = at; b.AllowRequest(now, w, 10) != want {
			t.Errorf("at %d it may be asked: %v", at, !want)
		}
	}
	try(100, true)
	try(100, true)
	b.Trip(now, w, effects.Expired, "", true, 0)
	b.Trip(now, w, effects.Expired, "", true, 0) // The second of these questions.
	try(101, false)
	try(102, true) // For as long as it may take nobody else asks.
	try(111, false)
	for now = 112; b.Len() > 0; { // 4, then 7 and never more.
		for _, open := range []effects.Duration{4, 7, 7} {
			b.Trip(now, w, effects.Expired, "", true, 0)
			try(now.Add(open-1), false)
			try(now+1, true)
			now = now.Add(10)
		}
		b.Close(w)
	}
	try(now, true)
	try(now, true)
}
