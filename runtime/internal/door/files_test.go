package door

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/internal/logtest"
)

// With no file left, connections are turned away with the help of the spare file; when there are files again,
// connections are admitted.
func TestNoFileLeft(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log logtest.Lines
	d := New(Config{MaxTotal: 8, MaxPerAddress: 8, MaxStrangers: 8, HandshakeTimeout: 1 << 60, Log: log.Logger()})
	served := make(chan struct{}, 8)
	d.Serve(l, "test", func(g *Conn) error {
		served <- struct{}{}
		_, err := io.Copy(io.Discard, g)
		return err
	})
	connect := func() (*net.TCPConn, error) {
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
	first, err := connect() // When it is served, the spare file is open.
	if err != nil {
		t.Fatal(err)
	}
	<-served
	// The sockets of the next connections exist already, because they belong to this process, too.
	const turnedAway = 3
	var sockets []int
	for range turnedAway {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, fd)
	}
	giveBack := useAllFiles(t)
	to := &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	for _, fd := range sockets {
		err := unix.Connect(fd, to)
		n := 0
		if err == nil {
			n, err = unix.Read(fd, make([]byte, 1)) // the end, or nothing ever
		}
		if n != 0 || err != nil && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("read %d bytes, %v", n, err)
		}
	}
	giveBack()
	for _, fd := range sockets {
		_ = unix.Close(fd)
	}
	second, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	<-served
	if n := d.Stats().FailedAccepts; n < turnedAway {
		t.Errorf("%d attempts failed for %d who were turned away", n, turnedAway)
	}
	_, _ = first.Close(), second.Close()
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := log.CountText("no connection can be accepted"); n == 0 || n > 2 { // The second one counts the others.
		t.Errorf("%d lines", n)
	}
	if d.spare.file != nil {
		t.Error("the file kept back is open still")
	}
}

// useAllFiles uses up the files of this process.
func useAllFiles(t *testing.T) (giveBack func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	_, open, err := FileLimit()
	if err != nil {
		t.Fatal(err)
	}
	less := old
	less.Cur = min(old.Cur, uint64(open)+64)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &less); err != nil {
		t.Fatal(err)
	}
	var taken []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		taken = append(taken, f)
	}
	return func() {
		for _, f := range taken {
			_ = f.Close()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	}
}
