package zmq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/zmq/zmtp"
)

// What stands around a body on the wire, by the channel's framing.

const (
	// framesMax is the most frames of a message to us: envelopes of some routers, a delimiter, a body.
	framesMax = 8
	// partsMax is the most frames of a body that has several.
	partsMax = 64
	// severalMax is the most messages that come together. LMCache's workers put 50.
	severalMax = 256
	// hopMax is the longest frame of an envelope: routers put names of sockets there, and ZeroMQ's have no more.
	hopMax = 255
	// idBytes is the length of a question's id.
	idBytes = 8
)

// serves says whether this transport knows a channel. Those of others' machines are questions in envelopes.
func serves(ch effects.Channel) bool {
	return ch.Order() != effects.Unordered
}

// frames are those of the messages of one Conn.
type frames struct {
	channel effects.Channel
	matched bool // questions have ids
}

// framesOf are those of a Conn that is opened with a window.
func framesOf(ch effects.Channel, window uint16) frames {
	return frames{channel: ch, matched: window > 1 || ch.Framing() == effects.BareID}
}

// most is how many frames an answer may have.
func (f frames) most() int {
	n := 1
	if f.channel.Framing() == effects.Parts {
		n = partsMax
	}
	if f.matched {
		n++
	}
	if f.channel.Framing() != effects.BareID {
		n++
	}
	return n
}

// framesTo is how many frames a message to us may have.
func framesTo(ch effects.Channel) int {
	switch ch.Framing() {
	case effects.Several:
		return severalMax
	case effects.Parts:
		return framesMax + partsMax - 1
	case effects.Envelope, effects.BareID:
	}
	return framesMax
}

// wire appends a message as it goes over the wire. The empty frame is what a REQ would send before the body.
func (f frames) wire(b []byte, id uint64, body []byte) []byte {
	if f.matched {
		b = zmtp.AppendFrame(b, binary.BigEndian.AppendUint64(make([]byte, 0, idBytes), id), true)
	}
	if f.channel.Asks() && f.channel.Framing() != effects.BareID {
		b = zmtp.AppendFrame(b, nil, true)
	}
	return appendBody(b, f.channel, body)
}

// answer takes an answer apart: the id of its question, which is zero where there are none, and its body.
func (f frames) answer(all [][]byte) (id uint64, body []byte, err error) {
	rest := all
	if f.matched {
		if len(rest) == 0 || len(rest[0]) != idBytes {
			return 0, nil, errors.New("no frame of 8 bytes at its start, which says what it answers")
		}
		id, rest = binary.BigEndian.Uint64(rest[0]), rest[1:]
	}
	if f.channel.Framing() != effects.BareID {
		if len(rest) == 0 || len(rest[0]) != 0 {
			return id, nil, fmt.Errorf("%d frames instead of an empty one and a body", len(all))
		}
		rest = rest[1:]
	}
	body, err = bodyOf(f.channel, rest)
	return id, body, err
}

// appendBody appends a body, which is one frame, or several of a channel of parts.
func appendBody(wire []byte, ch effects.Channel, body []byte) []byte {
	if ch.Framing() != effects.Parts {
		return zmtp.AppendFrame(wire, body, false)
	}
	for part, rest, ok := effects.CutPart(body); ok; part, rest, ok = effects.CutPart(rest) {
		wire = zmtp.AppendFrame(wire, part, len(rest) > 0)
	}
	return wire
}

// isBody says whether a machine's body is one: on a channel of parts it has at least one part, and nothing behind its
// last one.
func isBody(ch effects.Channel, body []byte) bool {
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

// bodyOf is its opposite for the frames that a peer sent behind what stands around a body.
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

// question takes a message apart as a REP socket would: all frames up to the first empty one are the envelope, which
// goes back in front of the answer. One without is answered without. Where questions have a bare id, all frames but the
// last one are the envelope.
func question(ch effects.Channel, m zmtp.Message, limits zmtp.Limits) (envelope [][]byte, body []byte, err error) {
	end := slices.IndexFunc(m.Frames, func(f []byte) bool { return len(f) == 0 })
	if ch.Framing() == effects.BareID {
		end = len(m.Frames) - 2
	} else if end < 0 {
		return nil, nil, fault(m, limits, errors.New("no empty frame before the body; send one, as a REQ socket does"))
	}
	envelope, rest := m.Frames[:end+1], m.Frames[end+1:]
	if slices.ContainsFunc(envelope, func(hop []byte) bool { return len(hop) > hopMax }) {
		// It would be kept until the answer, however long that takes, and sent with it.
		return nil, nil, fmt.Errorf("more than %d bytes in a frame before the body; ZeroMQ's names have no more", hopMax)
	}
	if body, err = bodyOf(ch, rest); err != nil || m.Fault != zmtp.Whole {
		return envelope, nil, fault(m, limits, err)
	}
	return envelope, body, nil
}
