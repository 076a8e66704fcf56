package zmtp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// GreetingBytes is the length of a greeting, the first bytes that either end sends.
const GreetingBytes = 64

const (
	mechanism   = "NULL"
	mechanismAt = 12
	mechanismIn = 20
)

// ErrProtocol is wrapped by all errors of a peer that does not follow the protocol.
var ErrProtocol = errors.New("not ZMTP 3 with the NULL mechanism")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// AppendGreeting appends our greeting.
func AppendGreeting(b []byte) []byte {
	g := [GreetingBytes]byte{0: 0xFF, 9: 0x7F, 10: 3, 11: 1}
	copy(g[mechanismAt:], mechanism)
	return append(b, g[:]...)
}

// ReadGreeting reads a peer's greeting. pings says whether the peer is certain to understand PING, which is so if the
// minor version is 1 or more.
func ReadGreeting(r io.Reader) (pings bool, err error) {
	var g [GreetingBytes]byte
	// Read signature and version first: a peer that speaks another protocol may never send as many bytes as a greeting
	// has.
	if _, err := io.ReadFull(r, g[:11]); err != nil {
		return false, unexpectedEnd(err, "in its greeting")
	}
	switch {
	case g[0] != 0xFF || g[9]&1 == 0:
		return false, protocolError("the greeting begins with % x; the peer speaks another protocol, or ZeroMQ before 3.0", g[:10])
	case g[10] < 3:
		return false, protocolError("the peer speaks ZMTP version %d; libzmq 4.0 and later speak 3", g[10])
	}
	if _, err := io.ReadFull(r, g[11:]); err != nil {
		return false, unexpectedEnd(err, "in its greeting")
	}
	if name := bytes.TrimRight(g[mechanismAt:mechanismAt+mechanismIn], "\x00"); string(name) != mechanism {
		return false, protocolError("the peer wants the security mechanism %q", name)
	}
	return g[11] >= 1, nil
}

// unexpectedEnd marks the end of a connection inside a message or handshake, as opposed to io.EOF between two messages.
func unexpectedEnd(err error, where string) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: %w", where, err)
}
