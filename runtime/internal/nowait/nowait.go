// Package nowait writes to a connection what the kernel takes at once. A goroutine that must not wait for a peer can
// thereby write by itself instead of waking another one.
package nowait

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Raw returns the connection's file for Write. It returns nil if the connection has none; Write then writes nothing.
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

// Write returns how many bytes of b the kernel took. It does not report errors, which the next ordinary write meets
// as well. No other write to the connection may be in progress, because Write would wait for its end. After an
// expired write deadline, Write writes nothing.
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
