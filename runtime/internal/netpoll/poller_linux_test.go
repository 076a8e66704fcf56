package netpoll

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func takenPair(t *testing.T, poll time.Duration) (ours, theirs net.Conn) {
	t.Helper()
	if runtime.GOMAXPROCS(0) == 1 {
		t.Skip("nothing is taken where there is one processor")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = (&Listener{Listener: l, Poll: poll}).Accept(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return Take(ours, poll), theirs
}

func exchangeBytes(t *testing.T, a, b net.Conn) {
	t.Helper()
	for range 20 {
		for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
			if _, err := way[0].Write([]byte("words")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(way[1], make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The poller begins with the first connection and ends with the last, and nothing is left of it.
func TestPollerEndsWithTheLastConnection(t *testing.T) {
	before := openFiles(t)
	for range 3 {
		a, b := takenPair(t, time.Millisecond)
		exchangeBytes(t, a, b)
		if a.(*Conn).poller != b.(*Conn).poller {
			t.Error("two pollers in one process")
		}
		p := a.(*Conn).poller
		for _, c := range []net.Conn{a, b} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		<-p.ended
	}
	if now := openFiles(t); now != before {
		t.Errorf("%d files are open, and were %d", now, before)
	}
}

func openFiles(t *testing.T) int {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// A message that leaves wakes a sleeping poller, so that the poller is polling when the reply arrives.
func TestMessageMakesThePollerPoll(t *testing.T) {
	a, b := takenPair(t, time.Hour)
	p := a.(*Conn).poller
	for !p.asleep.Load() {
		runtime.Gosched() // It has nothing to do, and falls asleep.
	}
	if _, err := a.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(b, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if p.asleep.Load() || p.pollUntil.Load() == 0 {
		t.Error("it does not poll")
	}
	_, _ = a.Close(), b.Close()
	<-p.ended
}

// A listener passes on the SyscallConn of the listener below it, or returns an error if that has none.
func TestListenerSyscallConn(t *testing.T) {
	below, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Listener{Listener: below}
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if listens, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens != 1 {
			t.Errorf("it is no listener: %d, %v", listens, err)
		}
	}); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := (&Listener{Listener: noFileListener{}}).SyscallConn(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("reached what has no file: %v", err)
	}
}

type noFileListener struct{ net.Listener }

// A connection that cannot be taken is returned as it is.
func TestConnectionsThatCannotBeTaken(t *testing.T) {
	pipe, other := net.Pipe()
	defer func() { _, _ = pipe.Close(), other.Close() }()
	if Take(pipe, time.Second) != pipe {
		t.Error("a pipe has no descriptor")
	}
	a, b := takenPair(t, 0)
	if _, ok := a.(*net.TCPConn); !ok {
		t.Errorf("a connection that is not to poll became a %T", a)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = 1
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	got := Take(a, time.Second)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if got != a {
		t.Error("a connection is taken although there is no file left")
	}
	exchangeBytes(t, got, b)
	_, _ = got.Close(), b.Close()
}

// Descriptors are passed over a Unix socket, whether it was taken or not.
func TestDescriptorsArePassed(t *testing.T) {
	for _, poll := range []time.Duration{0, time.Millisecond} {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		var ends [2]net.Conn
		for i, fd := range fds {
			f := os.NewFile(uintptr(fd), "socket")
			if ends[i], err = net.FileConn(f); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
		}
		from := Take(ends[0], poll)
		if err := WriteRights(from, []byte("words"), int(os.Stdin.Fd())); err != nil {
			t.Fatal(err)
		}
		b, rights := make([]byte, 5), make([]byte, unix.CmsgSpace(4))
		n, rightsLen, _, _, err := ends[1].(*net.UnixConn).ReadMsgUnix(b, rights)
		if err != nil || string(b[:n]) != "words" {
			t.Fatalf("%q, %v", b[:n], err)
		}
		messages, err := unix.ParseSocketControlMessage(rights[:rightsLen])
		if err != nil || len(messages) != 1 {
			t.Fatalf("%d messages of rights, %v", len(messages), err)
		}
		got, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(got) != 1 {
			t.Fatalf("%d descriptors, %v", len(got), err)
		}
		_, _, _ = unix.Close(got[0]), from.Close(), ends[1].Close()
	}
	if WriteRights(nil, nil) == nil {
		t.Error("nothing took descriptors")
	}
}

// Buffers are set on the socket, and the other end sees CloseWrite.
func TestSocketOptionsAndCloseWrite(t *testing.T) {
	a, b := takenPair(t, time.Millisecond)
	c := a.(*Conn)
	if err := c.SetReadBuffer(64 << 10); err != nil {
		t.Error(err)
	}
	if err := c.SetWriteBuffer(64 << 10); err != nil {
		t.Error(err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if got, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF); err != nil || got < 64<<10 {
			t.Errorf("a buffer of %d bytes, %v", got, err)
		}
	}); err != nil {
		t.Error(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := b.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the other end sees %v", err)
	}
	_, _ = a.Close(), b.Close()
	for what, err := range map[string]error{"close": a.Close(), "close for writing": c.CloseWrite(), "set a buffer": c.SetReadBuffer(1),
		"set a deadline": a.SetDeadline(time.Time{}), "look": raw.Control(func(uintptr) { t.Error("looked at what is closed") })} {
		if err == nil {
			t.Errorf("%s: no error after the close", what)
		}
	}
}
