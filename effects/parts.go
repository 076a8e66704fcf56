package effects

import "encoding/binary"

// A body of a channel whose Framing is Parts is several frames in one: each behind its length.

// partHead is the length of a part: 4 bytes, big-endian.
const partHead = 4

// AppendPart appends a part to a body.
func AppendPart(body, part []byte) []byte {
	return append(binary.BigEndian.AppendUint32(body, uint32(len(part))), part...)
}

// CutPart takes the first part off a body; not ok if none is left, or what is left is no part. The part is the body's
// memory.
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
