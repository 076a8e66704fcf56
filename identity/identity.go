// Package identity derives the names and tokens by which ranks authenticate to each other. An incarnation of a rank
// derives names for each peer separately, from a key that only this incarnation has.
//
// No two peers of a rank know the rank by the same name. The rank's name for use with a peer is derived from the rank's
// key and from the identity of that peer, and is sent to that peer only; every message names both ends. A sender that
// names both ends correctly is therefore one of the two ranks: a name that a peer knows, or that appears in a log, is
// useless at every further rank, and is useless at the same rank in the name of another peer (M2). On a data plane, a
// peer proves besides that the handshake gave the peer the plane's token, without revealing the token.
//
// Example: rank A connects to rank B and introduces itself by the name that A derives from B's address. B answers with
// the name that B derives from A's name. From then on each message from A to B has these two names, and B gives A's
// link the token that B derives from the plane and the two names.
//
// The names are not encryption. A process that can read the messages between two ranks has their names, and can speak
// as either rank.
package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
)

// A Key is the secret of an incarnation of a rank: 32 random bytes that never leave the rank.
type Key [32]byte

// KeyFromSeed returns the key that belongs to a seed, for simulators and tests. The seed must be kept as secret as the
// key.
func KeyFromSeed(seed uint64) Key {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	return sha256.Sum256(append([]byte("kvferry key of a seed"), b[:]...))
}

// A Token is the secret by which a peer and a data plane authenticate to each other.
type Token [16]byte

// PublicID returns the public identity of the incarnation, which is the same for all observers. No peer accepts the
// public identity as a name.
func (k Key) PublicID() effects.Incarnation { return k.deriveMAC("life") }

// BufferID returns the wire identity of the incarnation's pool.
func (k Key) BufferID() [16]byte { return k.deriveMAC("buffer") }

// DeviceBufferID returns the wire identity of the incarnation's second pool, if there is a second pool for the chunks
// that peers share.
func (k Key) DeviceBufferID() [16]byte { return k.deriveMAC("device buffer") }

// SecretNumbers returns the i-th pair of secret numbers for a machine.
func (k Key) SecretNumbers(i uint8) (uint64, uint64) {
	b := k.deriveMAC("words", []byte{i})
	return binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])
}

// OutboundName returns the local rank's name for a peer to which the rank connects, derived from the peer's address.
func (k Key) OutboundName(host string, init, alloc uint16) effects.Incarnation {
	var ports [4]byte
	binary.LittleEndian.PutUint16(ports[:], init)
	binary.LittleEndian.PutUint16(ports[2:], alloc)
	return k.withPublicPrefix(k.deriveMAC("to", []byte(host), ports[:]))
}

// InboundName returns the local rank's name for a peer that has connected to the rank, derived from the peer's own
// name.
func (k Key) InboundName(peer effects.Incarnation) effects.Incarnation {
	return k.withPublicPrefix(k.deriveMAC("for", peer[:]))
}

// publicBytes is the number of bytes at the start of a name that are public and identify the incarnation.
const publicBytes = 4

// withPublicPrefix gives a secret the public beginning that all names of the incarnation share, so that people find the
// names in the logs of both ends. The remaining 96 bits are secret.
func (k Key) withPublicPrefix(secret [16]byte) effects.Incarnation {
	life := k.PublicID()
	copy(secret[:publicBytes], life[:])
	return secret
}

// SameIncarnation reports whether two names have the same public beginning, as the names of one incarnation have. The
// comparison proves nothing, because a peer can copy the beginning.
func SameIncarnation(a, b effects.Incarnation) bool {
	return [publicBytes]byte(a[:publicBytes]) == [publicBytes]byte(b[:publicBytes])
}

// Token returns the token with which peer authenticates on the named data plane; us is the local rank's name for use
// with that peer.
func (k Key) Token(plane string, peer, us effects.Incarnation) Token {
	return k.deriveMAC("token", []byte(plane), peer[:], us[:])
}

// Prove returns a value that shows to another holder of the token that the sender has the token and sent these parts.
// The text kind separates the kinds of messages.
func (t Token) Prove(kind string, parts ...[]byte) [16]byte { return computeMAC(t[:], kind, parts) }

// EqualSecrets compares two secrets in constant time, so that the duration reveals nothing about the secrets.
func EqualSecrets(a, b [16]byte) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }

func (k Key) deriveMAC(kind string, parts ...[]byte) [16]byte { return computeMAC(k[:], kind, parts) }

// computeMAC returns HMAC-SHA256, truncated to 16 bytes, over parts that are each preceded by the length of the part,
// so that no two lists of parts have the same encoding. The code is written out because a step computes several values:
// with parts as short as they always are, computing a value allocates nothing.
func computeMAC(key []byte, kind string, parts [][]byte) [16]byte {
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
	b := binary.LittleEndian.AppendUint32(inner[:sha256.BlockSize], uint32(len(kind)))
	b = append(b, kind...)
	for _, part := range parts {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(part))), part...)
	}
	sum := sha256.Sum256(b)
	copy(outer[sha256.BlockSize:], sum[:])
	sum = sha256.Sum256(outer[:])
	return [16]byte(sum[:])
}
