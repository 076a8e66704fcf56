package epochs

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
)

// The end of a connection proves something only if the peer's kernel alone can have caused it. A reset may come from
// any machine on the way, and a timeout or a malformed frame proves nothing.
func TestProves(t *testing.T) {
	read := func(err error) error {
		return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", err)}
	}
	for _, c := range []struct {
		err        error
		near, away bool
	}{
		{io.EOF, true, true},
		{fmt.Errorf("a frame: %w", io.ErrUnexpectedEOF), true, true},
		{errors.Join(errors.New("it lied before"), io.EOF), true, true},
		{read(syscall.ECONNRESET), true, false},
		{read(syscall.ETIMEDOUT), false, false},
		{read(syscall.EHOSTUNREACH), false, false},
		{os.ErrDeadlineExceeded, false, false},
		{net.ErrClosed, false, false},
		{errors.New("a kind of nobody's"), false, false},
		{nil, false, false},
	} {
		if near, away := ProvesEnd(c.err, true), ProvesEnd(c.err, false); near != c.near || away != c.away {
			t.Errorf("%v proves %v on this host and %v elsewhere; want %v and %v", c.err, near, away, c.near, c.away)
		}
	}
}
