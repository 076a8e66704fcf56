package zeromq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// The frames around a body on the wire, by the channel's framing (effects.Framing).

const (
	// framesMax is the largest number of frames of a message to a server: envelopes of some routers, a delimiter, a
	// body.
	framesMax = 8
	// partsMax is the largest number of frames of a body that consists of several.
	partsMax = 64
	// combinedMax is the largest number of messages that a single ZeroMQ message may combine. LMCache's workers combine
	// 50.
	combinedMax = 256
	// envelopeFrameMax is the longest frame of an envelope, in bytes: routers put names of sockets there, which ZeroMQ
	// limits to 255.
	envelopeFrameMax = 255
	// IDBytes is the length of a request's id.
	IDBytes = 8
)

// SupportsChannel reports whether a transport over ZeroMQ can carry a channel. Channels of foreign machines
// (ChannelOther and up) carry requests in envelopes.
func SupportsChannel(ch effects.Channel) bool {
	return ch.Order() != effects.Unordered
}

// Frames describes how the messages of an outbound Conn are framed.
type Frames struct {
	Channel effects.Channel
	// HasIDs says that requests carry ids, so that replies may arrive in any order.
	HasIDs bool
}

// FramesOf returns the framing of a Conn that is opened with this window.
func FramesOf(ch effects.Channel, window uint16) Frames {
	return Frames{Channel: ch, HasIDs: window > 1 || ch.Framing() == effects.BareID}
}

// MaxReplyFrames returns how many frames a reply may have.
func (f Frames) MaxReplyFrames() int {
	n := 1
	if f.Channel.Framing() == effects.Parts {
		n = partsMax
	}
	if f.HasIDs {
		n++
	}
	if f.Channel.Framing() != effects.BareID {
		n++
	}
	return n
}

// HasDelimiter reports whether a request has an empty frame before the body, as with a REQ socket.
func (f Frames) HasDelimiter() bool {
	return f.Channel.HasReplies() && f.Channel.Framing() != effects.BareID
}

// CutReply splits a reply into the id of the request, which is zero on a Conn without ids, and the body. The call
// fails if the frames do not fit the channel.
func (f Frames) CutReply(all [][]byte) (id uint64, body []byte, err error) {
	rest := all
	if f.HasIDs {
		if len(rest) == 0 || len(rest[0]) != IDBytes {
			return 0, nil, errors.New("the reply does not begin with the 8-byte id of its request")
		}
		id, rest = binary.BigEndian.Uint64(rest[0]), rest[1:]
	}
	if f.Channel.Framing() != effects.BareID {
		if len(rest) == 0 || len(rest[0]) != 0 {
			return id, nil, fmt.Errorf("%d frames instead of an empty frame and a body", len(all))
		}
		rest = rest[1:]
	}
	body, err = joinBody(f.Channel, rest)
	return id, body, err
}

// MaxRequestFrames returns how many frames a message to a server may have.
func MaxRequestFrames(ch effects.Channel) int {
	switch ch.Framing() {
	case effects.Several:
		return combinedMax
	case effects.Parts:
		return framesMax + partsMax - 1
	case effects.Envelope, effects.BareID:
	}
	return framesMax
}

// ForEachFrame calls handleFrame with each frame of a body, and whether more follow. A body is a single frame; on a
// channel of parts, a body may be several frames.
func ForEachFrame(ch effects.Channel, body []byte, handleFrame func(b []byte, more bool)) {
	if ch.Framing() != effects.Parts {
		handleFrame(body, false)
		return
	}
	for part, rest, ok := effects.CutPart(body); ok; part, rest, ok = effects.CutPart(rest) {
		handleFrame(part, len(rest) > 0)
	}
}

// IsBody reports whether a machine's body is well formed: on a channel of parts, a body has at least one part, and no
// bytes after the last part.
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

// joinBody is the opposite of ForEachFrame: joinBody makes a body of the frames that a peer sent after the envelope.
func joinBody(ch effects.Channel, rest [][]byte) ([]byte, error) {
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

// CutRequest splits a message into envelope and body, as a REP socket would. All frames up to the first empty frame
// are the envelope, which the server sends back in front of the reply. On a channel with bare ids, all frames but the
// last are the envelope. A message that is not a request yields an envelope, possibly empty, and an error; the reply
// carries the same envelope.
func CutRequest(ch effects.Channel, frames [][]byte) (envelope [][]byte, body []byte, err error) {
	end := slices.IndexFunc(frames, func(f []byte) bool { return len(f) == 0 })
	if ch.Framing() == effects.BareID {
		end = len(frames) - 2
	} else if end < 0 {
		return nil, nil, errors.New("there is no empty frame before the body; send one, as a REQ socket does")
	}
	envelope, rest := frames[:end+1], frames[end+1:]
	if slices.ContainsFunc(envelope, func(hop []byte) bool { return len(hop) > envelopeFrameMax }) {
		// The envelope is kept until the reply, however long that takes, and is sent with the reply.
		return nil, nil, fmt.Errorf("a frame before the body has more than %d bytes; names of ZeroMQ are not longer", envelopeFrameMax)
	}
	body, err = joinBody(ch, rest)
	return envelope, body, err
}
