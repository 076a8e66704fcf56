package protocol

import "strconv"

// A P2PErrorCode says why a peer did not answer what it was asked.
type P2PErrorCode uint8

// The codes, by their numbers on the wire.
const (
	_ P2PErrorCode = iota
	// P2PServerError: what came was no message, or serving it failed. It answers every put.
	P2PServerError
	// P2PUnknownMessage: a message that is not served there.
	P2PUnknownMessage
	// P2PNotIntroduced: the requester that the message names has not shaken hands since the owner began.
	P2PNotIntroduced
	p2pErrorCodes
)

var p2pErrorNames = [p2pErrorCodes]string{
	P2PServerError: "server error", P2PUnknownMessage: "unknown message", P2PNotIntroduced: "not introduced",
}

// Valid reports whether c is one of the codes above.
func (c P2PErrorCode) Valid() bool { return c > 0 && c < p2pErrorCodes }

// String names the code in a few words.
func (c P2PErrorCode) String() string {
	if !c.Valid() {
		return "P2PErrorCode(" + strconv.Itoa(int(c)) + ")"
	}
	return p2pErrorNames[c]
}

// A P2PErrorMsg answers a message on a lookup socket that has no other answer.
type P2PErrorMsg struct {
	Code P2PErrorCode
}

// Fields of P2PErrorMsg.
const (
	_ = iota // the tag
	p2pErrorCode
)

var p2pErrorSchema = schema{
	name:     "P2PErrorMsg",
	tagged:   true,
	names:    []string{tagField, "error_code"},
	required: 1 << p2pErrorCode,
}

// Append appends the message to b.
func (m *P2PErrorMsg) Append(b []byte) []byte {
	b = appendTag(b, TagP2PErrorMsg, 1)
	return appendUint(appendStr(b, "error_code"), uint64(m.Code))
}

// Decode fills m from b and keeps nothing of it. The error is a *DecodeError.
func (m *P2PErrorMsg) Decode(b []byte, lim *Limits) error {
	*m = P2PErrorMsg{}
	r := open(b, lim)
	r.expectTag(TagP2PErrorMsg)
	w := fields{r: &r, schema: &p2pErrorSchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == p2pErrorCode {
			m.Code = r.p2pError()
		}
	}
	w.close()
	r.end()
	return r.result()
}

func (r *reader) p2pError() P2PErrorCode {
	at := r.off
	v, negative := r.integer()
	if r.ok() && (negative || v == 0 || v >= uint64(p2pErrorCodes)) {
		r.fail(DecodeUnknownValue, at, integerText(v, negative), "1 to "+strconv.Itoa(int(p2pErrorCodes)-1))
		return 0
	}
	return P2PErrorCode(v)
}
