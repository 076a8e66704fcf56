//go:build !linux

package netpoll

import (
	"net"
	"time"
)

// Take returns conn: on this system Go's own poller waits for it.
func Take(conn net.Conn, _ time.Duration) net.Conn { return conn }
