package netpoll

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// A Listener passes each connection that it accepts to Take.
type Listener struct {
	net.Listener
	Poll time.Duration // as in Take
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Take(conn, l.Poll), nil
}

// SyscallConn implements syscall.Conn, if the wrapped listener does: package door accepts a connection in this way
// when no file is left.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	if of, ok := l.Listener.(syscall.Conn); ok {
		return of.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
