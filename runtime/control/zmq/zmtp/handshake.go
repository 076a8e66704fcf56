package zmtp

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrKind is what the error of a peer wraps that speaks the protocol and is of no use: a socket of another type.
var ErrKind = errors.New("the wrong type of socket")

// Shake shakes hands, as a socket of type ours with one of the types that theirs has. say is given what to send; what
// comes back is read from r, a greeting and one command at most. pings says whether the peer is sure to understand
// PING.
func Shake(r io.Reader, say func(wire []byte), ours string, theirs []string) (pings bool, err error) {
	say(AppendGreeting(nil))
	if pings, err = ReadGreeting(r); err != nil {
		return false, err
	}
	say(AppendReady(nil, ours))
	peer, err := ReadReady(r)
	if err != nil {
		return false, err
	}
	if !slices.Contains(theirs, peer) {
		return false, fmt.Errorf("%w: a socket of type %q cannot talk to a %s: connect one of %q",
			ErrKind, peer, ours, theirs)
	}
	return pings, nil
}
