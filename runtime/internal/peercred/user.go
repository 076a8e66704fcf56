// Package peercred identifies the process at the remote end of a Unix socket by the credentials that the kernel
// recorded when that process connected or began to listen. No peer can forge these credentials (M3).
//
//	if err := peercred.SameUser(conn); err != nil {
//		return err // "the peer's user is 1001 and ours 1000; run both as one user, or use another plane"
//	}
package peercred

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// SameUser returns an error unless the process at the remote end of conn runs as our user, or as root, which can do
// everything anyway. The check keeps processes of different users from reading our memory, even a process that took
// over the socket name of a peer that died.
func SameUser(conn net.Conn) error {
	var peer *unix.Ucred
	if err := controlSocket(conn, func(fd int) (err error) {
		peer, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	}); err != nil {
		return err
	}
	return checkUser(peer.Uid, uint32(os.Geteuid()), overflowUser())
}

// controlSocket calls use with the descriptor of the socket behind conn.
func controlSocket(conn net.Conn, use func(fd int) error) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%T is not a unix connection", conn)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("access the descriptor of a unix connection: %w", err)
	}
	var useErr error
	if err := raw.Control(func(fd uintptr) { useErr = use(int(fd)) }); err != nil {
		return fmt.Errorf("access the descriptor of a unix connection: %w", err)
	}
	if useErr != nil {
		return fmt.Errorf("identify the process at the remote end: %w", useErr)
	}
	return nil
}

// overflowUser returns the number that the kernel uses for all users that have no number in this process's user
// namespace.
func overflowUser() uint32 {
	const usual = 65534
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return usual
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 32)
	if err != nil {
		return usual
	}
	return uint32(n)
}

func checkUser(peer, own, overflow uint32) error {
	switch peer {
	case overflow:
		// Also if our own user has that number, because the number stands for all users of foreign namespaces.
		return fmt.Errorf("the peer's user is %d, which stands for all users without a number in this user namespace; run "+
			"both as a user with a number in this namespace that is not %d, or use another plane", peer, overflow)
	case own, 0:
		return nil
	}
	return fmt.Errorf("the peer's user is %d and ours %d; run both processes as the same user, or use another plane", peer, own)
}
