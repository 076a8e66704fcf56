package peercred

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyOneUserAndRootAreAllowed(t *testing.T) {
	for _, c := range []struct {
		peer, own uint32
		ok        bool
	}{
		{1000, 1000, true}, {0, 1000, true}, {0, 0, true}, {1000, 0, false}, {1001, 1000, false}, {65534, 1000, false},
		{65534, 65534, false}, // perhaps two users of two namespaces
		{0, 65534, true},
	} {
		if err := checkUser(c.peer, c.own, 65534); (err == nil) != c.ok {
			t.Errorf("peer %d, own %d: %v", c.peer, c.own, err)
		}
	}
}

// The number that the kernel uses for unknown users can be configured.
func TestOverflowUser(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		t.Skip(err)
	}
	if want := strings.TrimSpace(string(text)); fmt.Sprint(overflowUser()) != want {
		t.Errorf("%d, want %s", overflowUser(), want)
	}
}

// socketEnds returns both ends of a socket, which belong to this process.
func socketEnds(t *testing.T) (dialed, accepted net.Conn) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if dialed, err = net.Dial("unix", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close() })
	if accepted, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	return dialed, accepted
}

func TestBothEndsOfASocketKnowTheirUser(t *testing.T) {
	dialed, accepted := socketEnds(t)
	for _, end := range []net.Conn{dialed, accepted} {
		if err := SameUser(end); err != nil {
			t.Error(err)
		}
	}
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	if err := SameUser(one); err == nil {
		t.Error("a pipe has no user, and passed")
	}
}
