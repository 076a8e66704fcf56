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

// A Process is the process that connected to a Unix socket. The value stays valid after the process has ended.
type Process struct {
	PID  int
	file *os.File // a pidfd
}

// soPeerPIDFD is SO_PEERPIDFD of Linux 6.5, which returns a pidfd of that very process, even if the process number was
// reused.
const soPeerPIDFD = 77

// ProcessOf returns the process at the remote end of an accepted connection. The caller must Close the process.
func ProcessOf(conn net.Conn) (*Process, error) {
	p := &Process{}
	err := controlSocket(conn, func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return err
		}
		if p.PID = int(cred.Pid); p.PID == 0 {
			return errors.New("the process has no number in this PID namespace; run both processes in the same PID " +
				"namespace, or the agent in the host's")
		}
		pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, soPeerPIDFD)
		if errors.Is(err, unix.ENOPROTOOPT) {
			if pidfd, err = unix.PidfdOpen(p.PID, 0); err == nil && hungUp(fd) {
				// Another process may have the number by now.
				return errors.Join(fmt.Errorf("process %d has closed the connection already", p.PID), unix.Close(pidfd))
			}
		}
		if err != nil {
			return fmt.Errorf("watch process %d: %w; Linux 5.3 or later is needed", p.PID, err)
		}
		unix.CloseOnExec(pidfd)
		if err := unix.SetNonblock(pidfd, true); err != nil { // Waiting then occupies no thread.
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

// hungUp reports whether the remote end of a connection is closed, as after the end of the remote process.
func hungUp(fd int) bool {
	at := []unix.PollFd{{Fd: int32(fd)}}
	for {
		if _, err := unix.Poll(at, 0); !errors.Is(err, syscall.EINTR) {
			return err != nil || at[0].Revents&unix.POLLHUP != 0
		}
	}
}

// HasEnded reports whether the process has ended, with all threads.
func (p *Process) HasEnded() (bool, error) {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return false, err
	}
	gone := false
	var pollErr error
	err = raw.Control(func(fd uintptr) { gone, pollErr = pidfdEnded(fd) })
	return gone, errors.Join(err, pollErr)
}

// pidfdEnded reports whether a pidfd is readable, that is, whether the process has ended.
func pidfdEnded(fd uintptr) (bool, error) {
	at := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(at, 0)
		if !errors.Is(err, syscall.EINTR) {
			return n > 0, err
		}
	}
}

// AwaitEnd waits until the process has ended, and returns an error if ctx ended before, or if the end cannot be
// observed.
func (p *Process) AwaitEnd(ctx context.Context) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.file.Close() })
	defer stop()
	gone := false
	var pollErr error
	err = raw.Read(func(fd uintptr) bool {
		gone, pollErr = pidfdEnded(fd)
		return gone || pollErr != nil
	})
	if gone {
		return nil
	}
	return errors.Join(ctx.Err(), err, pollErr)
}

// Close ends the watching of the process.
func (p *Process) Close() error { return p.file.Close() }

// ProgramImage identifies the program that the process runs: the file, and the place in memory that the kernel chose.
// The image changes with every exec, even of the same file, unless the process has switched off address randomisation.
// The result is false if the image cannot be known now, for example in the middle of an exec, or if this process may
// not read the image.
func (p *Process) ProgramImage() (image string, known bool) {
	// The kernel passed the auxiliary vector to the program at the start. Only an exec changes the vector.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", p.PID))
	if err != nil || len(text) == 0 {
		return "", false
	}
	// The text may be another process's that has the number by now.
	if gone, err := p.HasEnded(); gone || err != nil {
		return "", false
	}
	return string(text), true
}
