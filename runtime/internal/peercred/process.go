package peercred

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Process is the one that connected to a Unix socket, for as long as it runs and after.
type Process struct {
	PID  int
	file *os.File // a pidfd
}

// soPeerPIDFD is SO_PEERPIDFD of Linux 6.5: a pidfd of that very process, whoever has its number by now.
const soPeerPIDFD = 77

// ProcessOf returns who is at the other end of a connection that was accepted. Close is the caller's.
func ProcessOf(conn net.Conn) (*Process, error) {
	p := &Process{}
	err := control(conn, func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return err
		}
		if p.PID = int(cred.Pid); p.PID == 0 {
			return errors.New("it has no number here; run both in one PID namespace, or the agent in the host's")
		}
		pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, soPeerPIDFD)
		if errors.Is(err, unix.ENOPROTOOPT) {
			// Between its connecting and this another process may have had its number, if it was gone at once.
			pidfd, err = unix.PidfdOpen(p.PID, 0)
		}
		if err != nil {
			return fmt.Errorf("watch process %d: %w; it needs Linux 5.3 or later", p.PID, err)
		}
		unix.CloseOnExec(pidfd)
		if err := unix.SetNonblock(pidfd, true); err != nil { // So that waiting for it takes no thread.
			return errors.Join(err, unix.Close(pidfd))
		}
		p.file = os.NewFile(uintptr(pidfd), "pidfd")
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Gone says whether the process has ended, with all of its threads.
func (p *Process) Gone() (bool, error) {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return false, err
	}
	gone := false
	var failed error
	err = raw.Control(func(fd uintptr) { gone, failed = ended(fd) })
	return gone, errors.Join(err, failed)
}

// ended says whether a pidfd is readable: that is when its process has ended.
func ended(fd uintptr) (bool, error) {
	at := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(at, 0)
		if !errors.Is(err, syscall.EINTR) {
			return n > 0, err
		}
	}
}

// Await waits until the process has ended. An error says that ctx ended before, or that it cannot be known.
func (p *Process) Await(ctx context.Context) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.file.Close() })
	defer stop()
	gone := false
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		gone, failed = ended(fd)
		return gone || failed != nil
	})
	if gone {
		return nil
	}
	return errors.Join(ctx.Err(), err, failed)
}

// Close gives up watching.
func (p *Process) Close() error { return p.file.Close() }
