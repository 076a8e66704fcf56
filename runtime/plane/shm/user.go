package shm

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// sameUser checks that the process at the other end of conn has our user, or is root's, which may do
// everything anyway. The kernel noted it when that process connected or began to listen. So nobody else reads our
// memory, not even one who took over the name of a peer that died.
func sameUser(conn net.Conn) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%T is not a unix connection", conn)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("reach a unix connection: %w", err)
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer,
			peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return fmt.Errorf("reach a unix connection: %w", err)
	}
	if peerErr != nil {
		return fmt.Errorf("who is at the other end: %w", peerErr)
	}
	return allowed(peer.Uid, uint32(os.Geteuid()), overflowUser())
}

// overflowUser is what the kernel calls everybody whom this process's namespace of users has no number for.
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

func allowed(peer, own, overflow uint32) error {
	switch peer {
	case overflow:
		// Also if it is ours: it stands for all users of other namespaces.
		return fmt.Errorf("the peer's user is %d, which is everybody whom this user namespace does not know; run both as "+
			"one user that it knows, other than %d, or use another plane", peer, overflow)
	case own, 0:
		return nil
	}
	return fmt.Errorf("the peer's user is %d and ours %d; run both as one user, or use another plane", peer, own)
}
