package zmtp

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrSocketType is wrapped by the error for a peer that speaks the protocol as a socket of an unsuitable type.
var ErrSocketType = errors.New("wrong socket type")

// Handshake exchanges greetings and READY commands, as a socket of type socketType with a peer of a type in peerTypes.
// send is called with the bytes to send. Handshake reads a greeting and at most one command from r. pings says whether
// the peer is certain to understand PING.
func Handshake(r io.Reader, send func(wire []byte), socketType string, peerTypes []string) (pings bool, err error) {
	send(AppendGreeting(nil))
	if pings, err = ReadGreeting(r); err != nil {
		return false, err
	}
	send(AppendReady(nil, socketType))
	peer, err := ReadReady(r)
	if err != nil {
		return false, err
	}
	if !slices.Contains(peerTypes, peer) {
		return false, fmt.Errorf("%w: a socket of type %q cannot talk to a %s: connect one of %q",
			ErrSocketType, peer, socketType, peerTypes)
	}
	return pings, nil
}
