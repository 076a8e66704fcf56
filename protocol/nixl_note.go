package protocol

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// The notifications of vLLM's NIXL push connector, as of connector version 14 (vLLM 0.32.0). They are bytes beside the
// name of an agent; what they are is seen from how they begin, and two of them are texts.

// A NixlNote says what a notification is.
type NixlNote uint8

// What a notification is.
const (
	NixlCompletion   NixlNote = iota // <request>:<ranks>, and whatever is none of the others
	NixlRegistration                 // PUSH_REG:<a map>
	NixlHeartbeat                    // HB:<request>,<request>,…
)

const (
	registrationPrefix = "PUSH_REG:"
	heartbeatPrefix    = "HB:"
)

// NixlNoteOf says what a notification is, in the reference's order of tests. It looks at how it begins alone.
func NixlNoteOf(b []byte) NixlNote {
	switch {
	case bytes.HasPrefix(b, []byte(registrationPrefix)):
		return NixlRegistration
	case bytes.HasPrefix(b, []byte(heartbeatPrefix)):
		return NixlHeartbeat
	}
	return NixlCompletion
}

// CheckNixlRequest says why a request cannot be named in notifications: its name would be taken for something else, or
// would end a list early. A request with such a name is to be refused before anything is sent of it. The error is a
// *DecodeError.
func CheckNixlRequest(id []byte, lim *Limits) error {
	r := reader{b: id, lim: lim.orDefault(), message: "notification", field: "request_id"}
	switch {
	case len(id) == 0:
		r.fail(DecodeEmpty, 0, "0 bytes", "a name")
	case NixlNoteOf(append(id[:len(id):len(id)], ':')) != NixlCompletion: // As its completion begins.
		r.fail(DecodeOutOfRange, 0, quote(id), "neither PUSH_REG nor HB up to the first colon")
	case bytes.IndexByte(id, ',') >= 0:
		r.fail(DecodeOutOfRange, bytes.IndexByte(id, ','), quote(id), "a name without a comma")
	default:
		r.checkText(0, id)
	}
	return r.result()
}

// checkText refuses what is no text within the limits, found at a byte.
func (r *reader) checkText(at int, s []byte) {
	switch {
	case len(s) > r.lim.StringBytes:
		r.fail(DecodeStringTooLong, at, strconv.Itoa(len(s))+" bytes", atMost(r.lim.StringBytes, "StringBytes"))
	case !utf8.Valid(s):
		r.fail(DecodeInvalidUTF8, at, quote(s), "")
	}
}

// A PushCompletion says that what one rank of the producer had to write for a request has been written: producer to
// consumer, with each write. It names no rank: who sent it is the agent's name beside it.
type PushCompletion struct {
	RequestID []byte // the consumer's, as it registered; may have colons
	Ranks     uint32 // of the producer: its tensor-parallel size, 1 at least
}

// Append appends the notification to b.
func (m *PushCompletion) Append(b []byte) []byte {
	return strconv.AppendUint(append(append(b, m.RequestID...), ':'), uint64(m.Ranks), 10)
}

// Decode fills m from b; RequestID is a view of it. The last colon divides; the reference's reader ends its engine at
// what has none, or no number behind it, and so nothing of the kind is believed. The error is a *DecodeError.
func (m *PushCompletion) Decode(b []byte, lim *Limits) error {
	*m = PushCompletion{}
	r := openAs(b, lim, "completion", "a text")
	at := bytes.LastIndexByte(b, ':')
	if r.ok() && at < 0 {
		r.fail(DecodeMissingField, len(b), quote(b), "a request, a colon, and how many ranks the producer has")
	}
	if !r.ok() {
		return r.result()
	}
	r.field = "request_id"
	if r.checkText(0, b[:at]); r.ok() && at == 0 {
		r.fail(DecodeEmpty, 0, "0 bytes", "a name")
	}
	r.field = "tp_size"
	ranks, ok := ranksOf(b[at+1:])
	if r.ok() && !ok {
		r.fail(DecodeOutOfRange, at+1, quote(b[at+1:]), "1 to 4294967295")
	}
	if r.ok() {
		m.RequestID, m.Ranks = b[:at:at], ranks
	}
	return r.result()
}

// ranksOf reads a number above 0 of at most 32 bits, in decimal digits alone.
func ranksOf(b []byte) (uint32, bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(string(b), 10, 32)
	return uint32(n), err == nil && n > 0
}

// A PushHeartbeat asks a producer to keep the blocks of requests for longer: consumer to producer, every interval. What
// is unknown there is passed over, nothing is made by it, and no lease becomes shorter.
type PushHeartbeat struct {
	RequestIDs [][]byte // the producer's
}

// Append appends the notification to b.
func (m *PushHeartbeat) Append(b []byte) []byte {
	b = append(b, heartbeatPrefix...)
	for i, id := range m.RequestIDs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, id...)
	}
	return b
}

// Decode fills m from b; RequestIDs are views of it. Names without a letter are left out. The error is a *DecodeError.
func (m *PushHeartbeat) Decode(b []byte, lim *Limits) error {
	*m = PushHeartbeat{RequestIDs: m.RequestIDs[:0]}
	r := openAs(b, lim, "heartbeat", "a text")
	if r.ok() && NixlNoteOf(b) != NixlHeartbeat {
		r.fail(DecodeWrongTag, 0, quote(b[:min(len(b), len(heartbeatPrefix))]), heartbeatPrefix)
	}
	r.field = "request_ids"
	for at := len(heartbeatPrefix); r.ok() && at < len(b); {
		end := bytes.IndexByte(b[at:], ',')
		if end < 0 {
			end = len(b) - at
		}
		id := b[at : at+end : at+end]
		switch r.checkText(at, id); {
		case !r.ok() || len(id) == 0:
		case len(m.RequestIDs) == r.lim.ArrayLen:
			r.fail(DecodeArrayTooLong, at, "more names", atMost(r.lim.ArrayLen, "ArrayLen"))
		default:
			m.RequestIDs = append(m.RequestIDs, id)
		}
		at += end + 1
	}
	if !r.ok() {
		m.RequestIDs = m.RequestIDs[:0]
	}
	return r.result()
}
