// Package nowait writes as many bytes to a connection as the kernel takes at once. A goroutine that must not wait for
// a peer can thereby write directly instead of waking another goroutine.
package nowait

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// RawConn returns the connection's file for WriteNow, or nil if the connection has no file; WriteNow then writes
// nothing.
func RawConn(conn any) syscall.RawConn {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// WriteNow writes to the connection without waiting, and returns the number of bytes of b that the kernel took. Errors
// are not reported, because the next ordinary write meets the same error. No ordinary write to the connection may be
// in progress, because WriteNow would wait for the end of that write. After an expired write deadline nothing is
// written.
func WriteNow(raw syscall.RawConn, b []byte) (n int) {
	if raw == nil {
		return 0
	}
	_ = raw.Write(func(fd uintptr) bool {
		if wrote, err := unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err == nil {
			n = wrote
		}
		return true
	})
	return n
}
