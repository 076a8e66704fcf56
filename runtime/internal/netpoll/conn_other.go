//go:build !linux

package netpoll

import (
	"net"
	"time"
)

// Take returns conn, for which Go's own poller waits on this system.
func Take(conn net.Conn, _ time.Duration) net.Conn { return conn }
