package protocol

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// The notifications of vLLM's NIXL push connector, as of connector version 14 (vLLM 0.32.0). A notification consists of
// bytes, which libnixl delivers with the name of the sending agent. The first bytes say which kind of notification it
// is; two of the three kinds are texts.

// A NotificationKind is a kind of notification.
type NotificationKind uint8

// The kinds of notifications.
const (
	NixlCompletion   NotificationKind = iota // <request>:<ranks>, and every notification of no other kind
	NixlRegistration                         // PUSH_REG:<a map>
	NixlHeartbeat                            // HB:<request>,<request>,…
)

const (
	registrationPrefix = "PUSH_REG:"
	heartbeatPrefix    = "HB:"
)

// NotificationKindOf returns the kind of a notification, by the first bytes alone. The kinds are tested in the order of
// the reference implementation.
func NotificationKindOf(b []byte) NotificationKind {
	switch {
	case bytes.HasPrefix(b, []byte(registrationPrefix)):
		return NixlRegistration
	case bytes.HasPrefix(b, []byte(heartbeatPrefix)):
		return NixlHeartbeat
	}
	return NixlCompletion
}

// CheckNixlRequest checks that notifications can carry the id of a request. An id can be unusable because a receiver
// would take a notification with this id for another kind of notification, or because the id would end a list early.
// The caller must refuse a request with an unusable id before it sends anything of the request. The error is a
// *DecodeError.
func CheckNixlRequest(id []byte, lim *Limits) error {
	r := reader{b: id, lim: lim.orDefault(), message: "notification", field: "request_id"}
	switch {
	case len(id) == 0:
		r.fail(DecodeEmpty, 0, "0 bytes", "a name")
	case NotificationKindOf(append(id[:len(id):len(id)], ':')) != NixlCompletion: // A completion begins in this way.
		r.fail(DecodeOutOfRange, 0, quoteBytes(id), "neither PUSH_REG nor HB up to the first colon")
	case bytes.IndexByte(id, ',') >= 0:
		r.fail(DecodeOutOfRange, bytes.IndexByte(id, ','), quoteBytes(id), "a name without a comma")
	default:
		r.checkText(0, id)
	}
	return r.result()
}

// checkText refuses a text that is too long or not UTF-8, and that begins at byte at.
func (r *reader) checkText(at int, s []byte) {
	switch {
	case len(s) > r.lim.StringBytes:
		r.fail(DecodeStringTooLong, at, strconv.Itoa(len(s))+" bytes", atMost(r.lim.StringBytes, "StringBytes"))
	case !utf8.Valid(s):
		r.fail(DecodeInvalidUTF8, at, quoteBytes(s), "")
	}
}

// A PushCompletion reports that one rank of the producer has written everything that it had to write for a request:
// producer to consumer, with each write. The notification does not name the rank; libnixl passes the sending agent's
// name beside the notification.
type PushCompletion struct {
	RequestID []byte // the consumer's id of the request, from the registration; may contain colons
	Ranks     uint32 // tensor-parallel size of the producer, at least 1
}

// Append appends the notification to b.
func (m *PushCompletion) Append(b []byte) []byte {
	return strconv.AppendUint(append(append(b, m.RequestID...), ':'), uint64(m.Ranks), 10)
}

// Decode fills m from b; RequestID is a view of b. The last colon separates the two fields. A text without a colon, or
// without a number after the colon, is refused: the reference implementation terminates its engine on such a text. The
// error is a *DecodeError.
func (m *PushCompletion) Decode(b []byte, lim *Limits) error {
	*m = PushCompletion{}
	r := newReaderFor(b, lim, "completion", "a text")
	at := bytes.LastIndexByte(b, ':')
	if r.ok() && at < 0 {
		r.fail(DecodeMissingField, len(b), quoteBytes(b), "a request, a colon, and how many ranks the producer has")
	}
	if !r.ok() {
		return r.result()
	}
	r.field = "request_id"
	if r.checkText(0, b[:at]); r.ok() && at == 0 {
		r.fail(DecodeEmpty, 0, "0 bytes", "a name")
	}
	r.field = "tp_size"
	ranks, ok := parseRanks(b[at+1:])
	if r.ok() && !ok {
		r.fail(DecodeOutOfRange, at+1, quoteBytes(b[at+1:]), "1 to 4294967295")
	}
	if r.ok() {
		m.RequestID, m.Ranks = b[:at:at], ranks
	}
	return r.result()
}

// parseRanks parses a number above 0 that fits 32 bits and consists of decimal digits only.
func parseRanks(b []byte) (uint32, bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(string(b), 10, 32)
	return uint32(n), err == nil && n > 0
}

// A PushHeartbeat asks a producer to keep the blocks of requests for longer: consumer to producer, every interval. The
// producer ignores unknown requests, creates nothing, and shortens no lease.
type PushHeartbeat struct {
	RequestIDs [][]byte // the producer's ids
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

// Decode fills m from b; RequestIDs are views of b. Empty ids are left out. The error is a *DecodeError.
func (m *PushHeartbeat) Decode(b []byte, lim *Limits) error {
	*m = PushHeartbeat{RequestIDs: m.RequestIDs[:0]}
	r := newReaderFor(b, lim, "heartbeat", "a text")
	if r.ok() && NotificationKindOf(b) != NixlHeartbeat {
		r.fail(DecodeWrongTag, 0, quoteBytes(b[:min(len(b), len(heartbeatPrefix))]), heartbeatPrefix)
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
