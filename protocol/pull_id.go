package protocol

import "encoding/hex"

// A PullID names an offer of a sender: the PullReadyNotif that makes the offer and the signal that ends the offer carry
// the same PullID. Peers write it as the 32 digits of a random UUID, in lower case and without dashes. The zero PullID
// names no offer.
type PullID [16]byte

// NewPullID draws a random PullID from r, as NewUUID does.
func NewPullID(r interface{ Read([]byte) (int, error) }) PullID { return PullID(NewUUID(r)) }

const pullIDTextLen = 32

// ParsePullID parses exactly 32 hex digits in lower case. Peers compare the text, so other spellings must not be
// accepted as the same offer. The version and variant of the UUID are not checked.
func ParsePullID(s []byte) (id PullID, ok bool) {
	if len(s) != pullIDTextLen {
		return PullID{}, false
	}
	for i := range id {
		c, d := s[2*i], s[2*i+1]
		hi, lo := hexValue[c], hexValue[d]
		if hi|lo > 0xf || c&d&lowerBit == 0 {
			return PullID{}, false
		}
		id[i] = hi<<4 | lo
	}
	return id, true
}

// lowerBit is set in 0 to 9 and a to f, and not in A to F.
const lowerBit = 0x20

// Append appends the text that ParsePullID reads.
func (id PullID) Append(b []byte) []byte { return hex.AppendEncode(b, id[:]) }

// String returns the text that ParsePullID reads.
func (id PullID) String() string { return string(id.Append(nil)) }

// appendPullID appends the text as a msgpack string.
func appendPullID(b []byte, id PullID) []byte { return id.Append(append(b, 0xd9, pullIDTextLen)) }

func (r *reader) readPullID() PullID {
	at := r.off
	s := r.readText()
	id, ok := ParsePullID(s)
	if r.ok() && !ok {
		r.fail(DecodeBadPullID, at, quoteBytes(s), "32 hex digits in lower case")
	}
	return id
}
