package netpoll

import (
	"net"
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
