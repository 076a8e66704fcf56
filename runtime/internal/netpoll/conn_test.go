//go:build linux

package netpoll_test

import (
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/nettest"

	"github.com/kvferry/kvferry/runtime/internal/netpoll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair connects two ends, both passed to Take.
func pair(tb testing.TB, network string, poll time.Duration) (net.Conn, net.Conn) {
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(tb.TempDir(), "socket")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	a, err := net.Dial(network, l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	return netpoll.Take(a, poll), netpoll.Take(b, poll)
}

// Concurrent writes of two goroutines do not mix, even though the kernel takes them in parts.
func TestWritesDoNotMix(t *testing.T) {
	const bytes, writers = 4 << 20, 2
	a, b := pair(t, "tcp", time.Millisecond)
	defer func() { _, _ = a.Close(), b.Close() }()
	if err := a.(*netpoll.Conn).SetWriteBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	for n := range byte(writers) {
		go func() { _, _ = a.Write(slices.Repeat([]byte{n}, bytes)) }()
	}
	got, changes := make([]byte, writers*bytes), 0
	if _, err := io.ReadFull(b, got); err != nil {
		t.Fatal(err)
	}
	for i := range got[1:] {
		if got[i] != got[i+1] {
			changes++
		}
	}
	if changes != writers-1 {
		t.Errorf("the bytes of %d writers change %d times", writers, changes)
	}
}

// A Conn behaves like any net.Conn, whether it polls or not.
func TestConnImplementsNetConn(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		for name, poll := range map[string]time.Duration{"for little": time.Nanosecond, "for long": 100 * time.Microsecond} {
			t.Run(network+" "+name, func(t *testing.T) {
				nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
					a, b := pair(t, network, poll)
					return a, b, func() { _, _ = a.Close(), b.Close() }, nil
				})
			})
		}
	}
}
