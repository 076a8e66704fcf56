package protocol

import "encoding/binary"

// FrameBytes is the size of the header of a frame on an agent's socket: the length of the message, little-endian.
const FrameBytes = 4

// AppendFrame appends the frame of a message.
func AppendFrame(dst, body []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(body))), body...)
}

// CutFrame splits the first frame off b and returns the message in the frame, which shares the memory of b, and the
// rest. ok is false if b does not begin with a whole frame. The caller must bound the length of a frame.
func CutFrame(b []byte) (body, rest []byte, ok bool) {
	if len(b) < FrameBytes || uint64(len(b)-FrameBytes) < uint64(binary.LittleEndian.Uint32(b)) {
		return nil, b, false
	}
	end := FrameBytes + int(binary.LittleEndian.Uint32(b))
	return b[FrameBytes:end], b[end:], true
}
