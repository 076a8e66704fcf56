package shm

import (
	"context"
	"crypto/rand"
	"net"
	"testing"
)

func TestOnlyOneUserAndRootAreAllowed(t *testing.T) {
	for _, c := range []struct {
		peer, own uint32
		ok        bool
	}{{1000, 1000, true}, {0, 1000, true}, {0, 0, true}, {1000, 0, false}, {1001, 1000, false}, {65534, 1000, false}} {
		if err := allowed(c.peer, c.own); (err == nil) != c.ok {
			t.Errorf("peer %d, own %d: %v", c.peer, c.own, err)
		}
	}
}

func TestBothEndsOfASocketKnowTheirUser(t *testing.T) {
	name := abstractPrefix + rand.Text() // All processes of this host share these names.
	listener, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	m := &medium{boot: "this"}
	dialed, err := m.Dial(context.Background(), "this "+name)
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if err := sameUser(accepted); err != nil {
		t.Error(err)
	}
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	if err := sameUser(one); err == nil {
		t.Error("a pipe has no user, and passed")
	}
}
