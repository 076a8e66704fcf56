// Package framing contains the encoding that all connections between planes share, whatever their protocol: frames,
// and the blob by which a peer finds the plane and proves that the owner has invited the peer.
//
// A frame is little-endian: a length (of everything that follows), a kind, a body. For example, kind 4 with the body
// "ab" is
//
//	03 00 00 00  04  61 62
//
// A frame that violates its protocol is an error that wraps [ErrMalformed]. The connection must then be closed,
// because the beginning of the next frame cannot be trusted.
package framing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// HeaderBytes is the size of a frame's header: the length and the kind.
const HeaderBytes = 4 + 1

// ErrMalformed is wrapped by every error that describes how a peer's bytes violate the protocol. The connection is
// useless afterwards.
var ErrMalformed = errors.New("malformed frame")

// AppendHeader appends the header of a frame with a body of so many bytes.
func AppendHeader(b []byte, kind uint8, body int) []byte {
	b = slices.Grow(b, HeaderBytes+body)
	b = binary.LittleEndian.AppendUint32(b, uint32(1+body))
	return append(b, kind)
}

// ReadFrame reads a frame of at most limit bytes, header included. The body is part of the returned buffer, which is
// buf if that was large enough. The error is io.EOF only if the connection ended between two frames.
func ReadFrame(r io.Reader, buf []byte, limit int) (kind uint8, body, grown []byte, err error) {
	var head [HeaderBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, buf, err
	}
	n := int64(binary.LittleEndian.Uint32(head[:])) - 1
	if n < 0 || n > int64(limit-HeaderBytes) {
		return 0, nil, buf, fmt.Errorf("%w: body of %d bytes; at most %d are allowed", ErrMalformed, n, limit-HeaderBytes)
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

// SizeError returns an error about a body with the wrong length for its kind.
func SizeError(what string, got, want int) error {
	return fmt.Errorf("%w: body of %s has %d bytes; %d are expected", ErrMalformed, what, got, want)
}
