package zmtp

import (
	"errors"
	"fmt"
	"io"
)

// Limits bound the memory and work that a connection can cause the reader.
type Limits struct {
	// Frames and Bytes bound a message. Empty frames count as frames.
	Frames int
	Bytes  int
	// Skip bounds the bytes of a message, frame heads included, that are read only to find the end. A message that
	// goes on beyond that fails with ErrUnbounded.
	Skip int
}

// Fault says why a Message lacks a part of what the sender put there.
type Fault uint8

// Faults of a message.
const (
	Whole         Fault = iota
	TooLarge            // more than Limits.Bytes
	TooManyFrames       // more than Limits.Frames
	NoRoom              // the Reader's Take refused
)

// A Message is a message of a peer. The caller may keep Frames. If Fault is not Whole, Frames holds only the first
// frames, which fit the limits.
type Message struct {
	Frames [][]byte
	Fault  Fault
	Size   uint64 // bytes of all frames, including skipped frames
}

// ErrUnbounded says that a message had no end within the limits.
var ErrUnbounded = errors.New("a message that does not end within the limits")

// freeBytes limits the bytes of a message that are allocated at once without asking ReserveBytes. Memory beyond that
// is allocated as bytes arrive, so that a length that is only claimed costs nothing.
const freeBytes = 16 << 10

// A Reader reads the messages of a connection after the handshake.
type Reader struct {
	R      io.Reader // buffered
	Limits Limits
	// ReserveBytes, if set, is asked before memory is allocated for a message that is not small; on false the message
	// has the fault NoRoom. ReleaseBytes is called when the message is over: when Next is called again, or Release.
	ReserveBytes func(bytes int) bool
	ReleaseBytes func(bytes int)
	// OnStart and OnEnd, if set, are called when the first byte of a message was read, and after the last byte.
	OnStart func()
	OnEnd   func()
	// SendPong, if set, is called with the bytes that answer a PING.
	SendPong func(wire []byte)

	head     [9]byte
	freeLeft int // bytes of the message that need no reservation
	reserved int
}

// Next returns the next message. The error is io.EOF if the peer ended the connection between two messages.
func (r *Reader) Next() (Message, error) {
	var m Message
	skipped, started := 0, false
	r.Release()
	r.freeLeft = freeBytes
	for {
		f, err := readFrame(r.R, &r.head)
		if err != nil {
			if started {
				err = unexpectedEnd(err, "in a message")
			}
			return m, err
		}
		if f.command {
			if err := r.handleCommand(f.size); err != nil {
				return m, err
			}
			continue
		}
		if !started {
			started = true
			callIfSet(r.OnStart)
		}
		left := f.size
		// No peer sends that many bytes; a size that is only claimed must not overflow the counter.
		m.Size += min(f.size, 1<<63-m.Size)
		if m.Fault == Whole {
			m.Fault = r.checkLimits(&m)
		}
		if m.Fault == Whole {
			if left, err = r.readBody(&m, f.size); err != nil {
				return m, err
			}
		}
		if m.Fault != Whole {
			skipped += len(r.head)
			if skipped > r.Limits.Skip || left > uint64(r.Limits.Skip-skipped) {
				return m, fmt.Errorf("%w: %d frames kept, then more than %d bytes", ErrUnbounded, len(m.Frames), r.Limits.Skip)
			}
			skipped += int(left)
			if _, err := io.CopyN(io.Discard, r.R, int64(left)); err != nil {
				return m, unexpectedEnd(err, "in a message")
			}
		}
		if !f.more {
			callIfSet(r.OnEnd)
			return m, nil
		}
	}
}

// Release returns the reserved memory of the newest message. Release may be called repeatedly.
func (r *Reader) Release() {
	if r.reserved > 0 {
		r.ReleaseBytes(r.reserved)
		r.reserved = 0
	}
}

func callIfSet(f func()) {
	if f != nil {
		f()
	}
}

// checkLimits returns the fault of a message after the next frame was counted in the size.
func (r *Reader) checkLimits(m *Message) Fault {
	switch {
	case len(m.Frames) >= r.Limits.Frames:
		return TooManyFrames
	case m.Size > uint64(r.Limits.Bytes):
		return TooLarge
	}
	return Whole
}

// readBody appends a frame of size bytes, or as many bytes as memory was granted for. Then left bytes are still to be
// skipped.
func (r *Reader) readBody(m *Message, size uint64) (left uint64, err error) {
	body := make([]byte, min(size, uint64(r.freeLeft)))
	r.freeLeft -= len(body)
	for at := 0; ; {
		if _, err := io.ReadFull(r.R, body[at:]); err != nil {
			return 0, unexpectedEnd(err, "in a message")
		}
		if at = len(body); uint64(at) == size {
			m.Frames = append(m.Frames, body)
			return 0, nil
		}
		more := int(min(size-uint64(at), uint64(max(at, freeBytes))))
		if r.ReserveBytes != nil {
			if !r.ReserveBytes(more) {
				m.Fault = NoRoom
				return size - uint64(at), nil
			}
			r.reserved += more
		}
		body = append(body, make([]byte, more)...)
	}
}

// handleCommand carries out a command that arrived between two messages.
func (r *Reader) handleCommand(size uint64) error {
	c, err := readCommand(r.R, size)
	if err != nil {
		return err
	}
	switch c.name {
	case commandPing:
		if len(c.data) < 2 || len(c.data) > 2+contextMax {
			return protocolError("a PING of %d bytes", len(c.data))
		}
		if r.SendPong != nil {
			r.SendPong(appendCommand(nil, commandPong, c.data[2:]))
		}
	case commandPong: // A PONG says only that the peer is alive.
	default:
		return protocolError("the command %q between messages", c.name)
	}
	return nil
}
