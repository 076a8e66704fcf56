package netpoll

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// A Listener takes each connection that it accepts, as Take does.
type Listener struct {
	net.Listener
	Poll time.Duration // as of Take
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Take(conn, l.Poll), nil
}

// SyscallConn implements syscall.Conn, where the listener below does: package door accepts by it when no file is left.
func (l *Listener) SyscallConn() (syscall.RawConn, error) {
	if of, ok := l.Listener.(syscall.Conn); ok {
		return of.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
