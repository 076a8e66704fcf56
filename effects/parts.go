package effects

import "encoding/binary"

// On a channel whose Framing is Parts, a body is the concatenation of several frames, each preceded by its length.

// partHead is the size of the length before a part: 4 bytes, big-endian.
const partHead = 4

// AppendPart appends a part to a body and returns the extended body.
func AppendPart(body, part []byte) []byte {
	return append(binary.BigEndian.AppendUint32(body, uint32(len(part))), part...)
}

// CutPart splits the first part off a body, and reports false if the body is empty or does not begin with a whole part.
// The returned slices share the memory of the body.
func CutPart(body []byte) (part, rest []byte, ok bool) {
	if len(body) < partHead {
		return nil, body, false
	}
	n := uint64(binary.BigEndian.Uint32(body))
	if n > uint64(len(body)-partHead) {
		return nil, body, false
	}
	end := partHead + int(n)
	return body[partHead:end:end], body[end:], true
}
