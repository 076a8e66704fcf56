package protocol

import "encoding/binary"

// FrameBytes are those that begin a frame of an agent's socket: how long its message is, little-endian.
const FrameBytes = 4

// AppendFrame appends the frame of a message.
func AppendFrame(dst, body []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(body))), body...)
}

// CutFrame takes the first frame off some bytes: its message, which shares their memory, and what follows. ok is false
// where no frame is whole yet. How long one may be, its reader decides.
func CutFrame(b []byte) (body, rest []byte, ok bool) {
	if len(b) < FrameBytes || uint64(len(b)-FrameBytes) < uint64(binary.LittleEndian.Uint32(b)) {
		return nil, b, false
	}
	end := FrameBytes + int(binary.LittleEndian.Uint32(b))
	return b[FrameBytes:end], b[end:], true
}
