package zmtp

import (
	"errors"
	"fmt"
	"io"
)

// Limits bound what one connection can make its reader hold and do.
type Limits struct {
	// Frames and Bytes are the most that one message may have; empty frames count as frames.
	Frames int
	Bytes  int
	// Skip is the most bytes of one message, its heads included, that are read only to find its end. A message that goes
	// on beyond that is ErrEndless.
	Skip int
}

// Fault says why a Message lacks what its sender put there.
type Fault uint8

// Faults of a message.
const (
	Whole         Fault = iota
	TooLarge            // more than Limits.Bytes
	TooManyFrames       // more than Limits.Frames
	NoRoom              // the Reader's Take refused
)

// A Message is one message of a peer. Frames are the reader's to keep; if Fault is not Whole they are its
// first ones only, those that fitted.
type Message struct {
	Frames [][]byte
	Fault  Fault
	Size   uint64 // bytes of all its frames, the skipped ones included
}

// ErrEndless says that a message had no end within the limits.
var ErrEndless = errors.New("a message without end")

// small is how much of a message is made room for at once, without asking. What is beyond gets room as bytes arrive, so
// that a length that was only claimed costs nothing.
const small = 16 << 10

// A Reader reads the messages of one connection after its handshake.
type Reader struct {
	R      io.Reader // buffered
	Limits Limits
	// Take and Give, if set, are asked for the room of a message that is not small before it is made, and told when it is
	// over: when the next message is asked for, or by Release. If Take refuses, the message has the fault NoRoom.
	Take func(bytes int) bool
	Give func(bytes int)
	// Began and Ended, if set, are called when the first byte of a message was read, and when its last one was.
	Began func()
	Ended func()
	// Pong, if set, is given what answers a PING.
	Pong func(wire []byte)

	head  [9]byte
	free  int // bytes of the message that need not be asked for
	taken int
}

// Next returns the next message. The error is io.EOF if the peer ended the connection between two messages.
func (r *Reader) Next() (Message, error) {
	var m Message
	skipped, begun := 0, false
	r.Release()
	r.free = small
	for {
		f, err := readFrame(r.R, &r.head)
		if err != nil {
			if begun {
				err = ended(err, "in a message")
			}
			return m, err
		}
		if f.command {
			if err := r.obey(f.size); err != nil {
				return m, err
			}
			continue
		}
		if !begun {
			begun = true
			call(r.Began)
		}
		left := f.size
		m.Size += min(f.size, 1<<63-m.Size) // Nobody sends as much; what was only claimed must not wrap around.
		if m.Fault == Whole {
			m.Fault = r.fits(&m)
		}
		if m.Fault == Whole {
			if left, err = r.read(&m, f.size); err != nil {
				return m, err
			}
		}
		if m.Fault != Whole {
			skipped += len(r.head)
			if skipped > r.Limits.Skip || left > uint64(r.Limits.Skip-skipped) {
				return m, fmt.Errorf("%w: %d frames kept, then more than %d bytes", ErrEndless, len(m.Frames), r.Limits.Skip)
			}
			skipped += int(left)
			if _, err := io.CopyN(io.Discard, r.R, int64(left)); err != nil {
				return m, ended(err, "in a message")
			}
		}
		if !f.more {
			call(r.Ended)
			return m, nil
		}
	}
}

// Release gives the room of the newest message back. It may be called often.
func (r *Reader) Release() {
	if r.taken > 0 {
		r.Give(r.taken)
		r.taken = 0
	}
}

func call(f func()) {
	if f != nil {
		f()
	}
}

// fits says whether a message may have the frame that its size has been counted of.
func (r *Reader) fits(m *Message) Fault {
	switch {
	case len(m.Frames) >= r.Limits.Frames:
		return TooManyFrames
	case m.Size > uint64(r.Limits.Bytes):
		return TooLarge
	}
	return Whole
}

// read appends a frame of size bytes, or as much of it as there is room for: then left bytes are still to be read.
func (r *Reader) read(m *Message, size uint64) (left uint64, err error) {
	body := make([]byte, min(size, uint64(r.free)))
	r.free -= len(body)
	for at := 0; ; {
		if _, err := io.ReadFull(r.R, body[at:]); err != nil {
			return 0, ended(err, "in a message")
		}
		if at = len(body); uint64(at) == size {
			m.Frames = append(m.Frames, body)
			return 0, nil
		}
		more := int(min(size-uint64(at), uint64(max(at, small))))
		if r.Take != nil {
			if !r.Take(more) {
				m.Fault = NoRoom
				return size - uint64(at), nil
			}
			r.taken += more
		}
		body = append(body, make([]byte, more)...)
	}
}

// obey does what a command between messages asks for.
func (r *Reader) obey(size uint64) error {
	c, err := readCommand(r.R, size)
	if err != nil {
		return err
	}
	switch c.name {
	case ping:
		if len(c.data) < 2 || len(c.data) > 2+contextMax {
			return broken("a PING of %d bytes", len(c.data))
		}
		if r.Pong != nil {
			r.Pong(appendCommand(nil, pong, c.data[2:]))
		}
	case pong: // That it came is all that it says.
	default:
		return broken("the command %q between messages", c.name)
	}
	return nil
}
