// Package identity is who a peer is: names and tokens that one incarnation of a rank makes for each of its peers alone,
// out of a key that nobody else has.
//
// No two peers of a rank know it by the same name. The name that it has for a peer is drawn from its key and from who
// that peer is, and is told to that peer only; every message names both ends. So whoever names both is one of the two:
// a name that a peer knows, or that stands in a log, is of no use at any other rank, and not at the same one in
// another's name either. On a data plane a peer proves besides that the handshake gave it the plane's token, without
// showing it.
//
// This is no encryption. Whoever can read the messages between two ranks has their names, and can speak as either.
package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
)

// A Key is the secret of one life of one rank: 32 random bytes, never told to anybody.
type Key [32]byte

// KeyOf is the key of a seed, for simulators and tests: who knows the seed knows the key.
func KeyOf(seed uint64) Key {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	return sha256.Sum256(append([]byte("kvferry key of a seed"), b[:]...))
}

// A Token is the secret by which one peer proves itself to one data plane, and the plane to it.
type Token [16]byte

// Life is the public identity of the life: the same for everybody who may see it, and no name that any peer takes.
func (k Key) Life() effects.Incarnation { return k.mac("life") }

// Buffer is the wire identity of the life's pool.
func (k Key) Buffer() [16]byte { return k.mac("buffer") }

// Device is the wire identity of the life's second pool, where it has one for what peers share.
func (k Key) Device() [16]byte { return k.mac("device buffer") }

// Words are secrets for a machine: the i-th pair of them.
func (k Key) Words(i uint8) (uint64, uint64) {
	b := k.mac("words", []byte{i})
	return binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])
}

// To is our name for a peer that we call, by its address.
func (k Key) To(host string, init, alloc uint16) effects.Incarnation {
	var ports [4]byte
	binary.LittleEndian.PutUint16(ports[:], init)
	binary.LittleEndian.PutUint16(ports[2:], alloc)
	return k.name(k.mac("to", []byte(host), ports[:]))
}

// For is our name for a peer that called us, by the name that it has for us.
func (k Key) For(peer effects.Incarnation) effects.Incarnation { return k.name(k.mac("for", peer[:])) }

// shown is how much of a name tells whose it is, to everybody.
const shown = 4

// name begins a name as all names of the life do, so that people find them in the logs of both ends. The other 96 bits
// are the secret.
func (k Key) name(secret [16]byte) effects.Incarnation {
	life := k.Life()
	copy(secret[:shown], life[:])
	return secret
}

// OneLife says whether two names begin alike: of one life, as they say. It proves nothing.
func OneLife(a, b effects.Incarnation) bool { return [shown]byte(a[:shown]) == [shown]byte(b[:shown]) }

// Token is what peer, to whom we are us, proves itself with on the data plane of a name.
func (k Key) Token(plane string, peer, us effects.Incarnation) Token {
	return k.mac("token", []byte(plane), peer[:], us[:])
}

// Prove shows to a holder of the token that its sender has it, too, and says these parts. what tells one kind of
// message from another.
func (t Token) Prove(what string, parts ...[]byte) [16]byte { return mac(t[:], what, parts) }

// Same compares two secrets in a time that tells nothing of them.
func Same(a, b [16]byte) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }

func (k Key) mac(what string, parts ...[]byte) [16]byte { return mac(k[:], what, parts) }

// mac is HMAC-SHA256, cut to 16 bytes, over parts each of which follows its length: no two lists of parts read the
// same. It is written out because a step makes some: where the parts are as short as they always are, nothing of it is
// allocated.
func mac(key []byte, what string, parts [][]byte) [16]byte {
	if len(key) > sha256.BlockSize {
		panic("BUG: a key longer than a block")
	}
	var inner [sha256.BlockSize + 256]byte
	var outer [sha256.BlockSize + sha256.Size]byte
	for i := range sha256.BlockSize {
		inner[i], outer[i] = 0x36, 0x5c
	}
	subtle.XORBytes(inner[:], inner[:], key)
	subtle.XORBytes(outer[:], outer[:], key)
	b := binary.LittleEndian.AppendUint32(inner[:sha256.BlockSize], uint32(len(what)))
	b = append(b, what...)
	for _, part := range parts {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(part))), part...)
	}
	sum := sha256.Sum256(b)
	copy(outer[sha256.BlockSize:], sum[:])
	sum = sha256.Sum256(outer[:])
	return [16]byte(sum[:])
}
