//go:build cgo && linux

package plaintest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/kvferry/kvferry/effects"
)

var localhost = effects.Addr{Host: "127.0.0.1"}

// NewSocket makes a plain ZeroMQ socket, like a socket of an LMCache process. All operations time out after half a
// minute.
func NewSocket(t testing.TB, kind zmq4.Type) *zmq4.Socket {
	t.Helper()
	context, err := zmq4.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	s, err := context.NewSocket(kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), context.Term()); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(s.SetLinger(0), s.SetRcvtimeo(30*time.Second), s.SetSndtimeo(30*time.Second)); err != nil {
		t.Fatal(err)
	}
	return s
}

// NewServer binds a plain socket to a free port.
func NewServer(t testing.TB, kind zmq4.Type) (*zmq4.Socket, effects.Addr) {
	t.Helper()
	s := NewSocket(t, kind)
	if err := s.Bind("tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	endpoint, err := s.GetLastEndpoint()
	if err != nil {
		t.Fatal(err)
	}
	addr := localhost
	if _, err := fmt.Sscanf(endpoint, "tcp://127.0.0.1:%d", &addr.Port); err != nil {
		t.Fatalf("endpoint %q: %v", endpoint, err)
	}
	return s, addr
}

// NewClient connects a plain socket.
func NewClient(t testing.TB, kind zmq4.Type, addr effects.Addr) *zmq4.Socket {
	t.Helper()
	s := NewSocket(t, kind)
	if err := s.Connect(fmt.Sprintf("tcp://%s:%d", addr.Host, addr.Port)); err != nil {
		t.Fatal(err)
	}
	return s
}

// SendFrames sends a message.
func SendFrames(t testing.TB, s *zmq4.Socket, frames ...string) {
	t.Helper()
	parts := make([][]byte, len(frames))
	for i, frame := range frames {
		parts[i] = []byte(frame)
	}
	if _, err := s.SendMessage(parts); err != nil {
		t.Fatalf("send %q: %v", frames, err)
	}
}

// WantFrames receives a message and compares the frames.
func WantFrames(t testing.TB, s *zmq4.Socket, want ...string) {
	t.Helper()
	got, err := s.RecvMessage(0)
	if err != nil {
		t.Fatalf("waiting for %q: %v", want, err)
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("received %q, want %q", got, want)
	}
}
