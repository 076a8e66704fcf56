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

// Lock is the suffix of the file beside a socket. An agent that has locked this file has the path.
const Lock = ".lock"

// pathMax is how many bytes of a path fit into a socket's address, beside the zero that ends it.
const pathMax = len(unix.RawSockaddrUnix{}.Path) - 1

// A socket is the agent's listener. It numbers the connections that it accepts, in their order: the newest connection
// of an engine counts, whichever is served first.
type socket struct {
	*net.UnixListener
	path string
	made os.FileInfo // of the socket's file
	lock *os.File
	poll time.Duration
	last session.Conn
}

type accepted struct {
	net.Conn
	id session.Conn
}

// Accept is called by one goroutine at a time.
func (l *socket) Accept() (net.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	l.last++
	return &accepted{netpoll.Take(c, l.poll), l.last}, nil
}

// Close removes the socket's file, and lets another agent have the path. What somebody else has put in the file's place
// stays there.
func (l *socket) Close() error {
	var err error
	if now, statErr := os.Lstat(l.path); statErr == nil && os.SameFile(now, l.made) {
		err = os.Remove(l.path)
	}
	return errors.Join(err, l.UnixListener.Close(), l.lock.Close())
}

// lockPath lets this process alone have a path, until the file is closed or the process is gone. The file stays: a
// process that removed it might remove the file that another agent has locked by then.
func lockPath(path string) (*os.File, error) {
	f, err := os.OpenFile(path+Lock, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
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

// listen makes the agent's socket at a path, and has its connections poll as netpoll.Take says. A socket that an agent
// left there when it was killed is replaced; everything else that is there stays, and the error says what it is.
func listen(path string, poll time.Duration) (net.Listener, error) {
	if strings.HasPrefix(path, "@") {
		path = "./" + path // Package net would take it for an abstract name, which engines do not.
	}
	if len(path) > pathMax {
		return nil, fmt.Errorf("the path has %d bytes, and a Unix socket's has %d at most; give a shorter one, for example "+
			"in /run/user/%d, or one relative to the working directory", len(path), pathMax, os.Geteuid())
	}
	if err := checkFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := checkPlace(path); err != nil {
		return nil, err
	}
	f, err := lockPath(path)
	if err != nil {
		return nil, err
	}
	l, made, err := bind(path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &socket{UnixListener: l, path: path, made: made, lock: f, poll: poll}, nil
}

// checkFolder refuses a directory that is not there, with what would make it.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the directory %s does not exist; make it, writable for this user alone: "+
			"install -d -m 700 -o %d %s", dir, os.Geteuid(), dir)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no directory; give a path in one", dir)
	}
	return nil
}

// checkPlace says why the agent's socket cannot be at a path: something is there that no agent of this user left.
func checkPlace(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	const remedy = "give another path, or move it away"
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there, which no agent has made; %s", kindOf(info), remedy)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("a socket of user %d is there, and this process has user %d; %s", s.Uid, os.Geteuid(), remedy)
	}
	return nil
}

func kindOf(info os.FileInfo) string {
	t := info.Mode().Type()
	switch {
	case t.IsRegular():
		return fmt.Sprintf("a file of %d bytes", info.Size())
	case t.IsDir():
		return "a directory"
	case t == fs.ModeSymlink:
		return "a symbolic link"
	}
	return fmt.Sprintf("something that is no socket (%v)", t)
}

// bind makes the socket. With the path's lock held.
func bind(path string) (*net.UnixListener, os.FileInfo, error) {
	if err := removeDead(path); err != nil {
		return nil, nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	listener.SetUnlinkOnClose(false) // It would remove whatever has the name by then.
	made, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close(), os.Remove(path)) // It was made above.
	}
	return listener, made, nil
}

// removeDead removes a socket of this user at which nobody listens any more. It refuses what is anything else.
func removeDead(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := checkPlace(path); err != nil {
		return err
	}
	conn, err := net.Dial("unix", path)
	if errors.Is(err, unix.ECONNREFUSED) {
		return os.Remove(path)
	}
	if err == nil {
		err = conn.Close()
	}
	return errors.Join(fmt.Errorf("another agent serves there; %w", errServed), err)
}
