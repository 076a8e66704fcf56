package protocol

import "strconv"

// A P2PErrorCode is the reason why a peer refused a message on its lookup socket.
type P2PErrorCode uint8

// The codes, by their numbers on the wire.
const (
	_ P2PErrorCode = iota
	// P2PServerError: the bytes were no message, or serving the message failed. Every put is answered with this code.
	P2PServerError
	// P2PUnknownMessage: the socket does not serve this message.
	P2PUnknownMessage
	// P2PNotIntroduced: the requester that the message names has made no handshake since the owner started.
	P2PNotIntroduced
	p2pErrorCodes
)

var p2pErrorNames = [p2pErrorCodes]string{
	P2PServerError: "server error", P2PUnknownMessage: "unknown message", P2PNotIntroduced: "not introduced",
}

// Valid reports whether c is one of the codes above.
func (c P2PErrorCode) Valid() bool { return c > 0 && c < p2pErrorCodes }

// String returns a short name of the code.
func (c P2PErrorCode) String() string {
	if !c.Valid() {
		return "P2PErrorCode(" + strconv.Itoa(int(c)) + ")"
	}
	return p2pErrorNames[c]
}

// A P2PErrorMsg is the reply to a message on a lookup socket that has no other reply.
//
//wire:message
type P2PErrorMsg struct {
	Code P2PErrorCode `wire:"error_code"`
}

// readP2PError reads the number of a known code.
func (r *reader) readP2PError() P2PErrorCode {
	at := r.off
	v, negative := r.readInteger()
	if r.ok() && (negative || v == 0 || v >= uint64(p2pErrorCodes)) {
		r.fail(DecodeUnknownValue, at, integerText(v, negative), "1 to "+strconv.Itoa(int(p2pErrorCodes)-1))
		return 0
	}
	return P2PErrorCode(v)
}
