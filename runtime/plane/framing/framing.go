// Package framing is what the connections between planes have in common, whatever is said on them: frames, and the
// blob by which a peer finds the plane and proves that it was invited.
//
// A frame is little-endian: a length (of all that follows it), a kind, a body.
package framing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// HeadBytes is what stands before the body of a frame: its length and its kind.
const HeadBytes = 4 + 1

// ErrMalformed is wrapped by every error that says what a peer's bytes violate. After one the connection is of no use:
// where the next frame begins cannot be trusted.
var ErrMalformed = errors.New("malformed frame")

// Begin appends the head of a frame whose body will have so many bytes.
func Begin(b []byte, kind uint8, body int) []byte {
	b = slices.Grow(b, HeadBytes+body)
	b = binary.LittleEndian.AppendUint32(b, uint32(1+body))
	return append(b, kind)
}

// Read reads one frame of at most limit bytes, head included. The body is a part of the buffer that it returns, which
// is buf where that was large enough. The error is io.EOF only for an end between two frames.
func Read(r io.Reader, buf []byte, limit int) (kind uint8, body, grown []byte, err error) {
	var head [HeadBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, buf, err
	}
	n := int64(binary.LittleEndian.Uint32(head[:])) - 1
	if n < 0 || n > int64(limit-HeadBytes) {
		return 0, nil, buf, fmt.Errorf("%w: body of %d bytes; at most %d are allowed", ErrMalformed, n, limit-HeadBytes)
	}
	if int64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	body = buf[:n]
	if _, err := io.ReadFull(r, body); err != nil {
		if n > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, buf, err
	}
	return head[4], body, buf, nil
}

// WrongSize says that a body has not as many bytes as its kind.
func WrongSize(what string, got, want int) error {
	return fmt.Errorf("%w: %s has %d bytes; it needs %d", ErrMalformed, what, got, want)
}
