package zmtp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// GreetingBytes is the length of the first words of either end.
const GreetingBytes = 64

const (
	mechanism   = "NULL"
	mechanismAt = 12
	mechanismIn = 20
)

// ErrProtocol is what all errors of a peer that does not keep to the protocol wrap.
var ErrProtocol = errors.New("not ZMTP 3 with the NULL mechanism")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// AppendGreeting appends our first words.
func AppendGreeting(b []byte) []byte {
	g := [GreetingBytes]byte{0: 0xFF, 9: 0x7F, 10: 3, 11: 1}
	copy(g[mechanismAt:], mechanism)
	return append(b, g[:]...)
}

// ReadGreeting reads a peer's first words. pings says whether it is sure to understand PING: its minor version is 1 or
// more.
func ReadGreeting(r io.Reader) (pings bool, err error) {
	var g [GreetingBytes]byte
	// Signature and version first: who speaks something else may never send as much as a greeting.
	if _, err := io.ReadFull(r, g[:11]); err != nil {
		return false, ended(err, "in its greeting")
	}
	switch {
	case g[0] != 0xFF || g[9]&1 == 0:
		return false, broken("it begins with % x; another protocol, or ZeroMQ before 3.0", g[:10])
	case g[10] < 3:
		return false, broken("it speaks version %d of ZMTP; libzmq 4.0 and later speak 3", g[10])
	}
	if _, err := io.ReadFull(r, g[11:]); err != nil {
		return false, ended(err, "in its greeting")
	}
	if name := bytes.TrimRight(g[mechanismAt:mechanismAt+mechanismIn], "\x00"); string(name) != mechanism {
		return false, broken("it wants the security mechanism %q", name)
	}
	return g[11] >= 1, nil
}

// ended tells the end of a connection in the middle of something from one between messages, which is io.EOF.
func ended(err error, where string) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: %w", where, err)
}
