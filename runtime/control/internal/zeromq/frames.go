package zeromq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// What stands around a body on the wire, by the channel's framing.

const (
	// framesMax is the most frames of a message to a server: envelopes of some routers, a delimiter, a body.
	framesMax = 8
	// partsMax is the most frames of a body that has several.
	partsMax = 64
	// severalMax is the most messages that come together. LMCache's workers put 50.
	severalMax = 256
	// hopMax is the longest frame of an envelope: routers put names of sockets there, and ZeroMQ's have no more.
	hopMax = 255
	// IDBytes is the length of a question's id.
	IDBytes = 8
)

// Serves reports whether a transport over ZeroMQ knows a channel. Those of others' machines are questions in envelopes.
func Serves(ch effects.Channel) bool {
	return ch.Order() != effects.Unordered
}

// Frames are the frames of the messages of one Conn that a machine opened.
type Frames struct {
	Channel effects.Channel
	// Matched says that questions have ids.
	Matched bool
}

// FramesOf returns the frames of a Conn that is opened with a window.
func FramesOf(ch effects.Channel, window uint16) Frames {
	return Frames{Channel: ch, Matched: window > 1 || ch.Framing() == effects.BareID}
}

// MostOfAnswer returns how many frames an answer may have.
func (f Frames) MostOfAnswer() int {
	n := 1
	if f.Channel.Framing() == effects.Parts {
		n = partsMax
	}
	if f.Matched {
		n++
	}
	if f.Channel.Framing() != effects.BareID {
		n++
	}
	return n
}

// Delimited reports whether a question has an empty frame before its body, as a REQ would send it.
func (f Frames) Delimited() bool {
	return f.Channel.Asks() && f.Channel.Framing() != effects.BareID
}

// Answer takes an answer apart: the id of its question, which is zero where there are none, and its body.
func (f Frames) Answer(all [][]byte) (id uint64, body []byte, err error) {
	rest := all
	if f.Matched {
		if len(rest) == 0 || len(rest[0]) != IDBytes {
			return 0, nil, errors.New("no frame of 8 bytes at its start, which says what it answers")
		}
		id, rest = binary.BigEndian.Uint64(rest[0]), rest[1:]
	}
	if f.Channel.Framing() != effects.BareID {
		if len(rest) == 0 || len(rest[0]) != 0 {
			return id, nil, fmt.Errorf("%d frames instead of an empty one and a body", len(all))
		}
		rest = rest[1:]
	}
	body, err = bodyOf(f.Channel, rest)
	return id, body, err
}

// MostOfMessage returns how many frames a message to a server may have.
func MostOfMessage(ch effects.Channel) int {
	switch ch.Framing() {
	case effects.Several:
		return severalMax
	case effects.Parts:
		return framesMax + partsMax - 1
	case effects.Envelope, effects.BareID:
	}
	return framesMax
}

// Body calls frame with each frame of a body, which is one, or several on a channel of parts, and says which is the last.
func Body(ch effects.Channel, body []byte, frame func(b []byte, more bool)) {
	if ch.Framing() != effects.Parts {
		frame(body, false)
		return
	}
	for part, rest, ok := effects.CutPart(body); ok; part, rest, ok = effects.CutPart(rest) {
		frame(part, len(rest) > 0)
	}
}

// IsBody reports whether a machine's body is one: on a channel of parts it has at least one part, and nothing behind its
// last one.
func IsBody(ch effects.Channel, body []byte) bool {
	if ch.Framing() != effects.Parts {
		return true
	}
	n, rest, ok := 0, body, true
	for len(rest) > 0 && ok {
		_, rest, ok = effects.CutPart(rest)
		n++
	}
	return ok && n > 0 && n <= partsMax
}

// bodyOf is the opposite of Body for the frames that a peer sent behind what stands around a body.
func bodyOf(ch effects.Channel, rest [][]byte) ([]byte, error) {
	switch parts := ch.Framing() == effects.Parts; {
	case parts && (len(rest) == 0 || len(rest) > partsMax):
		return nil, fmt.Errorf("a body of %d frames instead of 1 to %d", len(rest), partsMax)
	case parts:
		var body []byte
		for _, part := range rest {
			body = effects.AppendPart(body, part)
		}
		return body, nil
	case len(rest) != 1:
		return nil, fmt.Errorf("a body of %d frames instead of 1", len(rest))
	}
	return rest[0], nil
}

// Question takes a message apart as a REP socket would: all frames up to the first empty one are the envelope, which
// goes back in front of the answer. One without is answered without. Where questions have a bare id, all frames but the
// last one are the envelope. A message that is no question has an envelope, perhaps none, and an error.
func Question(ch effects.Channel, frames [][]byte) (envelope [][]byte, body []byte, err error) {
	end := slices.IndexFunc(frames, func(f []byte) bool { return len(f) == 0 })
	if ch.Framing() == effects.BareID {
		end = len(frames) - 2
	} else if end < 0 {
		return nil, nil, errors.New("no empty frame before the body; send one, as a REQ socket does")
	}
	envelope, rest := frames[:end+1], frames[end+1:]
	if slices.ContainsFunc(envelope, func(hop []byte) bool { return len(hop) > hopMax }) {
		// It would be kept until the answer, however long that takes, and sent with it.
		return nil, nil, fmt.Errorf("more than %d bytes in a frame before the body; ZeroMQ's names have no more", hopMax)
	}
	body, err = bodyOf(ch, rest)
	return envelope, body, err
}
