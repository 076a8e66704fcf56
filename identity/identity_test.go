package identity

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"pgregory.net/rapid"
)

// A name or token is of one key, one purpose and one peer: whatever changes, it is another; and all names of a life
// begin alike.
func TestNothingIsTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := KeyFromSeed(rapid.Uint64Min(1).Draw(t, "seed"))
		host := rapid.StringN(1, 20, -1).Draw(t, "host")
		port := rapid.Uint16().Draw(t, "port")
		var peer effects.Incarnation
		copy(peer[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "peer"))
		other := peer
		other[rapid.IntRange(0, 15).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		us := k.InboundName(peer)
		all := [][16]byte{
			k.PublicID(), k.BufferID(), k.DeviceBufferID(),
			k.OutboundName(host, port, 1), k.OutboundName(host+"x", port, 1), k.OutboundName(host, port^1, 1), k.OutboundName(host, port, 2), us,
			k.InboundName(other),
			k.Token("shm", peer, us), k.Token("tcp", peer, us), k.Token("tcp", other, us), k.Token("tcp", us, peer),
			KeyFromSeed(0).Token("tcp", peer, us), k.Token("tcp", peer, us).Prove("hello", peer[:], us[:]),
			k.Token("tcp", peer, us).Prove("hello", append(peer[:15:15], us[:]...)),
			k.Token("tcp", peer, us).Prove("welcome", peer[:], us[:]),
		}
		for i := range all {
			for j := range i {
				if EqualSecrets(all[i], all[j]) {
					t.Fatalf("%d and %d are the same", i, j)
				}
			}
		}
		if !SameIncarnation(us, k.PublicID()) || !SameIncarnation(k.OutboundName(host, port, 1), us) {
			t.Fatal("names of one life begin differently")
		}
		if us != k.InboundName(peer) || !EqualSecrets(k.Token("tcp", peer, us), k.Token("tcp", peer, us)) {
			t.Fatal("a name is drawn anew")
		}
	})
}

// Names and tokens are HMAC-SHA256 as the library makes it, however long what they are of is.
func TestIsHMAC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := KeyFromSeed(rapid.Uint64().Draw(t, "seed"))
		what := rapid.StringN(0, 20, 20).Draw(t, "what")
		parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 400), 0, 4).Draw(t, "parts")
		h := hmac.New(sha256.New, k[:])
		for _, p := range append([][]byte{[]byte(what)}, parts...) {
			h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(p))))
			h.Write(p)
		}
		if got, want := k.deriveMAC(what, parts...), h.Sum(nil)[:16]; !bytes.Equal(got[:], want) {
			t.Fatalf("mac of %q and %q is %x, want %x", what, parts, got, want)
		}
	})
}

// A name is made in a step of a machine.
func TestAllocatesNothing(t *testing.T) {
	k, peer := KeyFromSeed(1), effects.Incarnation{1}
	if n := testing.AllocsPerRun(100, func() { k.InboundName(peer) }); n != 0 {
		t.Errorf("a name allocates %v times, want 0", n)
	}
}
