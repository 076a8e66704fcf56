package zmtp

import (
	"encoding/binary"
	"io"
)

// The bits of a frame's first byte. The remaining bits are reserved and must be zero.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// frame is the head of a frame.
type frame struct {
	size          uint64
	more, command bool
}

// AppendFrame appends a frame of a message.
func AppendFrame(b, body []byte, more bool) []byte {
	flags := byte(0)
	if more {
		flags = flagMore
	}
	return append(appendHead(b, flags, len(body)), body...)
}

func appendHead(b []byte, flags byte, size int) []byte {
	if size < 256 {
		return append(b, flags, byte(size))
	}
	return binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(size))
}

// readFrame reads the head of a frame. The error is io.EOF only if the peer ended the connection before the first
// byte.
func readFrame(r io.Reader, buf *[9]byte) (frame, error) {
	if _, err := io.ReadFull(r, buf[:1]); err != nil {
		return frame{}, err
	}
	flags, size := buf[0], buf[1:2]
	if flags&flagLong != 0 {
		size = buf[1:9]
	}
	switch {
	case flags&^(flagMore|flagLong|flagCommand) != 0:
		return frame{}, protocolError("a frame begins with %#x", flags)
	case flags&flagCommand != 0 && flags&flagMore != 0:
		return frame{}, protocolError("a command goes on in another frame")
	}
	if _, err := io.ReadFull(r, size); err != nil {
		return frame{}, unexpectedEnd(err, "in the head of a frame")
	}
	f := frame{size: uint64(size[0]), more: flags&flagMore != 0, command: flags&flagCommand != 0}
	if flags&flagLong != 0 {
		f.size = binary.BigEndian.Uint64(size)
	}
	if f.size > 1<<63-1 {
		return frame{}, protocolError("a frame of %d bytes", f.size)
	}
	return f, nil
}
