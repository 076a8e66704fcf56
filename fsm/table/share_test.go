package table

import (
	"testing"

	"pgregory.net/rapid"
)

// HasRoom, HasRoomAfter and FreePlaces agree in every state: FreePlaces is how often a class can take one more place
// for as long as HasRoom allows it.
func TestSharesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := new(Share).Recycle(rapid.IntRange(0, 12).Draw(t, "limit"), 3)
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			class := rapid.IntRange(0, 2).Draw(t, "class")
			free, room, taken := s.FreePlaces(class), s.HasRoom(class), 0
			for ; s.HasRoom(class); taken++ {
				s.Acquire(class)
			}
			s.Add(class, -taken)
			if free != taken {
				t.Fatalf("%+v: FreePlaces(%d) = %d, and the class can take %d places", s, class, free, taken)
			}
			if room != s.HasRoomAfter(class, -1) {
				t.Fatalf("%+v: HasRoom(%d) = %t, and HasRoomAfter no release is not", s, class, room)
			}
			giver := rapid.IntRange(0, 2).Draw(t, "giver")
			if s.CountOf(giver) > 0 {
				after := s.HasRoomAfter(class, giver)
				s.Release(giver)
				if after != s.HasRoom(class) {
					t.Fatalf("HasRoomAfter(%d, %d) = %t before the release, and HasRoom is not after it: %+v", class, giver, after, s)
				}
				s.Acquire(giver)
			}
			if room && rapid.IntRange(0, 2).Draw(t, "take") > 0 {
				s.Acquire(class)
			} else if s.CountOf(class) > 0 {
				s.Release(class)
			}
		}
	})
}
