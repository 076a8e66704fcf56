package attach

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// dialAs connects as another user: credentials are a thread's.
func dialAs(t *testing.T, user uintptr, path string) net.Conn {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	const same = ^uintptr(0)
	runtime.LockOSThread()
	if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, same, user, same); no != 0 {
		t.Fatal(no)
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, same, 0, same); no != 0 {
		t.Fatal(no) // The thread ends with this goroutine, as it is locked.
	}
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Another user's process is told why it may not attach, and gets nothing.
func TestAnotherUserIsToldWhy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root alone can be another user")
	}
	r := newRig(t, "sender")
	folder := filepath.Dir(r.s.Path())
	for _, path := range []string{r.s.Path(), folder, filepath.Dir(folder)} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	conn := dialAs(t, 1000, r.s.Path())
	hello := (&protocol.AttachRequest{Version: protocol.AttachVersion}).Append(nil)
	if _, err := conn.Write(protocol.AppendFrame(nil, hello)); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(conn)
	if err != nil || len(said) < protocol.FrameBytes {
		t.Fatalf("it says %q, %v", said, err)
	}
	var told protocol.AttachResponse
	if err := told.Decode(said[protocol.FrameBytes:], nil); err != nil || effects.Code(told.Code) != effects.Refused ||
		!strings.Contains(string(told.Reason), "user is 1000") || told.Session != 0 || told.Pages != 0 {
		t.Errorf("told %+v, %s, %v", told, told.Reason, err)
	}
	r.attach() // Who may still can.
}
