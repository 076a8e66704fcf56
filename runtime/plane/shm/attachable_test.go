package shm

import (
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// The peers of a node with an attachable pool get nothing that they could map writable. The test takes what they get
// from a socket.
func TestPeersOfAnAttachablePoolOnlyRead(t *testing.T) {
	const pages = 2
	sink := planetest.OpenNode(t, Open, 1, 1, hostilePage)
	pool, err := plane.NewPool(plane.PoolConfig{Pages: pages, PageBytes: hostilePage, Sink: sink, Attachable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	permits, err := plane.NewPermits(1)
	if err != nil {
		t.Fatal(err)
	}
	defer permits.Close()
	m := &medium{permits: permits}
	h := link.Hello{From: effects.Incarnation{5}, To: sink.Inc, Buffer: pool.Buffer()}
	w := link.Welcome{From: effects.Incarnation{5}, Buffer: pool.Buffer()}
	for _, c := range []struct {
		name string
		send func(conn net.Conn) error
	}{
		{"hello", func(conn net.Conn) error { return m.SendHello(conn, link.AppendHello(nil, link.KindHello, h), pool) }},
		{"welcome", func(conn net.Conn) error { return m.SendWelcome(conn, link.AppendWelcome(nil, w), pool) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			one, other := pair(t)
			if err := c.send(one); err != nil {
				t.Fatal(err)
			}
			_, _, came, err := m.ReadFirstFrame(other)
			if err != nil || len(came) != filesPerFrame {
				t.Fatalf("%d files came: %v", len(came), err)
			}
			for i, file := range came {
				defer file.Close()
				if _, err := unix.Mmap(int(file.Fd()), 0, 64, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
					t.Errorf("file %d can be mapped writable", i)
				}
				// The other files are sealed, which has the same effect.
				if mode, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0); i == 0 && (err != nil ||
					mode&unix.O_ACCMODE != unix.O_RDONLY) {
					t.Errorf("the pages are open in mode %#x, %v", mode, err)
				}
			}
			mapping, err := plane.MapPool(came[0].Fd(), came[1].Fd(), pages, hostilePage)
			if err != nil {
				t.Fatalf("but they can be read: %v", err)
			}
			if err := mapping.Unmap(); err != nil {
				t.Error(err)
			}
		})
	}
}

// pair returns a connection within this process.
func pair(t *testing.T) (one, other net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		var fileErr error
		conns[i], fileErr = net.FileConn(file)
		if err := errors.Join(fileErr, file.Close()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conns[i].Close() })
	}
	return conns[0], conns[1]
}
