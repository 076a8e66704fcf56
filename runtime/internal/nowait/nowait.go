// Package nowait writes to a connection what the system takes at once, so that a goroutine that must not wait for a
// peer can write by itself and wakes no other one for it.
package nowait

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Raw is what Write writes to; nil if the connection has no file, and then Write writes nothing.
func Raw(conn any) syscall.RawConn {
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

// Write returns how much of b the system took. An error is not told: the write that follows finds it. No other write to
// the connection may be under way, because Write would wait for its end. A write deadline that is over lets it write
// nothing.
func Write(raw syscall.RawConn, b []byte) (n int) {
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
