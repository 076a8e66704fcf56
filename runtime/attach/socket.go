package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/runtime/internal/netpoll"
)

// LockSuffix is the suffix of the lock file beside a socket. The agent that has locked this file owns the socket's
// path.
const LockSuffix = ".lock"

// pathMax is the longest path in bytes that fits into a Unix socket address, without the terminating zero byte.
const pathMax = len(unix.RawSockaddrUnix{}.Path) - 1

// A socketListener is the agent's listener. The listener numbers accepted connections in the order of acceptance,
// because only the newest connection of an engine is valid, even if an older connection is served later.
type socketListener struct {
	*net.UnixListener
	path    string
	created os.FileInfo // identity of the socket file that this listener created
	lock    *os.File
	poll    time.Duration
	last    session.Conn
}

// An acceptedConn connection carries the number that the listener has assigned.
type acceptedConn struct {
	net.Conn
	id session.Conn
}

// Accept returns the next connection, of type *accepted. Calls must not overlap.
func (l *socketListener) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	l.last++
	return &acceptedConn{netpoll.Take(c, l.poll), l.last}, nil
}

// Close removes the socket file and unlocks the path for another agent. If another file has replaced the socket file,
// Close leaves that file in place.
func (l *socketListener) Close() error {
	var err error
	if now, statErr := os.Lstat(l.path); statErr == nil && os.SameFile(now, l.created) {
		err = os.Remove(l.path)
	}
	return errors.Join(err, l.UnixListener.Close(), l.lock.Close())
}

// lockPath locks a path for this process until the returned file is closed or the process ends. The lock file itself
// is never removed: a process that removed the lock file could remove the file that another agent has locked in the
// meantime.
func lockPath(path string) (*os.File, error) {
	f, err := os.OpenFile(path+LockSuffix, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("another agent has locked %s; %w", f.Name(), errServed)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

var errServed = errors.New("give another path, or end that agent")

// listenUnix creates the agent's socket at a path. Accepted connections poll for the time poll, as netpoll.Take
// describes. A socket that a killed agent left behind is replaced. Any file that is not a socket of an agent stays, and
// the error describes the file.
func listenUnix(path string, poll time.Duration) (net.Listener, error) {
	if strings.HasPrefix(path, "@") {
		path = "./" + path // Package net would read the path as an abstract socket name, and engines would not.
	}
	if len(path) > pathMax {
		return nil, fmt.Errorf("the path has %d bytes; the path of a Unix socket has at most %d; give a shorter path, for "+
			"example in /run/user/%d, or one relative to the working directory", len(path), pathMax, os.Geteuid())
	}
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := checkExisting(path); err != nil {
		return nil, err
	}
	f, err := lockPath(path)
	if err != nil {
		return nil, err
	}
	l, made, err := bindSocket(path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &socketListener{UnixListener: l, path: path, created: made, lock: f, poll: poll}, nil
}

// checkDir returns an error if the directory does not exist or is not a directory. The error contains the command
// that creates the directory.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the directory %s does not exist; create it, writable only for this user: install -d -m 700 -o %d "+
			"%s", dir, os.Geteuid(), dir)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory; give a path in a directory", dir)
	}
	return nil
}

// checkExisting returns an error if the path holds a file that no agent of this user left there. A socket of this user
// passes.
func checkExisting(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	const remedy = "give another path, or move it away"
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("the path is %s that no agent has created; %s", describeFile(info), remedy)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("the path is a socket of user %d, but this process runs as user %d; %s", s.Uid, os.Geteuid(), remedy)
	}
	return nil
}

// describeFile describes the file for an error message.
func describeFile(info os.FileInfo) string {
	t := info.Mode().Type()
	switch {
	case t.IsRegular():
		return fmt.Sprintf("a file of %d bytes", info.Size())
	case t.IsDir():
		return "a directory"
	case t == fs.ModeSymlink:
		return "a symbolic link"
	}
	return fmt.Sprintf("a file that is not a socket (%v)", t)
}

// bindSocket creates the socket with mode 0600. The caller holds the path's lock.
func bindSocket(path string) (*net.UnixListener, os.FileInfo, error) {
	if err := removeStaleSocket(path); err != nil {
		return nil, nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	listener.SetUnlinkOnClose(false) // Otherwise closing would remove any file that has the name by then.
	made, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close(), os.Remove(path)) // This process created the file above.
	}
	return listener, made, nil
}

// removeStaleSocket removes a socket of this user on which no process listens. The result is an error for a file that
// is not such a socket, and for a socket on which another agent listens.
func removeStaleSocket(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := checkExisting(path); err != nil {
		return err
	}
	conn, err := net.Dial("unix", path)
	if errors.Is(err, unix.ECONNREFUSED) {
		return os.Remove(path)
	}
	if err == nil {
		err = conn.Close()
	}
	return errors.Join(fmt.Errorf("another agent serves this socket; %w", errServed), err)
}
