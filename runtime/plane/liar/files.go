package liar

import (
	"io"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/plane"
)

// maxFiles is more than the number of files that are passed beside any frame.
const maxFiles = 8

// An endpoint is one side of a relayed connection. Between processes of the same host the end also receives the files
// that are passed beside bytes.
type endpoint struct {
	net.Conn
	mu    sync.Mutex
	files []*os.File // received and not taken yet
}

// Read implements io.Reader.
func (e *endpoint) Read(b []byte) (int, error) {
	c, ok := e.Conn.(*net.UnixConn)
	if !ok {
		return e.Conn.Read(b)
	}
	control := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, nc, _, _, err := c.ReadMsgUnix(b, control)
	messages, _ := unix.ParseSocketControlMessage(control[:nc]) // The kernel's control messages are well formed.
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			e.files = append(e.files, os.NewFile(uintptr(fd), "came"))
		}
	}
	if n <= 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

func (e *endpoint) takeFiles() []*os.File {
	e.mu.Lock()
	defer e.mu.Unlock()
	files := e.files
	e.files = nil
	return files
}

func (e *endpoint) closeFiles() {
	for _, file := range e.takeFiles() {
		_ = file.Close()
	}
}

// sendBytes writes bytes, and passes files beside the first byte.
func (e *endpoint) sendBytes(b []byte, files []*os.File) bool {
	c, ok := e.Conn.(*net.UnixConn)
	if !ok || len(files) == 0 || len(b) == 0 {
		_, err := e.Write(b)
		return err == nil
	}
	var fds []int
	for _, file := range files {
		fds = append(fds, int(file.Fd()))
	}
	n, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	if err == nil {
		_, err = c.Write(b[n:])
	}
	return err == nil
}

// replaceFiles returns the files to pass on in place of the received files, and closes the files that are not passed
// on.
func replaceFiles(way Way, files []*os.File) []*os.File {
	drop := func(n int) {
		for _, file := range files[n:] {
			_ = file.Close()
		}
		files = files[:n]
	}
	switch way {
	case NoFiles:
		drop(0)
	case FewerFiles:
		drop(min(1, len(files)))
	case MoreFiles:
		for len(files) > 0 && len(files) < maxFiles {
			files = append(files, newMemory(0, false))
		}
	case Swapped:
		slices.Reverse(files)
	case NoMemory, Shorter, Unsealed:
		for i, old := range files {
			info, err := old.Stat()
			switch {
			case err != nil:
			case way == NoMemory:
				files[i], _ = os.Open(os.DevNull)
			case way == Shorter:
				files[i] = newMemory(info.Size()/2, true)
			default:
				files[i] = newMemory(info.Size(), false)
			}
			_ = old.Close()
		}
	case Silence, Freeze, Garbage, Truncated, CutOff, Twice, Late, Number, Largest, TooLong, Closed, Trailing, Early:
		// These ways deviate in the bytes.
	}
	return files
}

// newMemory returns empty memory of a size, sealed like a pool's if sealed is true.
func newMemory(size int64, sealed bool) *os.File {
	fd, err := unix.MemfdCreate("lie", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), "lie")
	_ = file.Truncate(size)
	if sealed {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, int(plane.RequiredSeals))
	}
	return file
}
