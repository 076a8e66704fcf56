package door

import (
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A spareFile is a file held in reserve. After the file is closed, a connection can be accepted and turned away,
// although the process may not open any more files.
type spareFile struct {
	mu    sync.Mutex
	users int
	file  *os.File
}

func (s *spareFile) addUser() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	s.openFile()
}

func (s *spareFile) openFile() {
	if s.file == nil {
		s.file, _ = os.Open(os.DevNull) // Without the spare file the door only waits.
	}
}

func (s *spareFile) removeUser() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 && s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}

// refuseConn accepts and closes a connection of l.
func (s *spareFile) refuseConn(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		s.openFile()
		return
	}
	_ = s.file.Close()
	s.file = nil
	if conn, ok := acceptNow(l); ok {
		_ = unix.Close(conn)
	}
	s.openFile()
}

// acceptNow accepts a connection if there is a waiting connection.
func acceptNow(l net.Listener) (fd int, ok bool) {
	socket, ok := l.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(at uintptr) {
		var e error
		fd, _, e = unix.Accept4(int(at), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		ok = e == nil
	})
	return fd, ok && err == nil
}

// FileLimit returns the number of files that the process may open (RLIMIT_NOFILE, which the Go runtime has raised as
// far as possible) and the number of open files.
func FileLimit() (limit, open int, err error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, 0, fmt.Errorf("count the open files: %w", err)
	}
	return int(min(r.Cur, 1<<30)), len(entries) - 1, nil // One entry is the folder itself.
}
