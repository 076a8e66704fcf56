package zmq

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// slow is a connection without a file, so that the outbox's goroutine writes everything; it records the write deadline.
type slow struct {
	net.Conn
	mu   sync.Mutex
	last time.Time
}

func (s *slow) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = t
	return s.Conn.SetWriteDeadline(t)
}

// The write deadline is cleared when the outbox is empty. An expired one would make every later write fail at once.
func TestWriteDeadlineIsCleared(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	conn := &slow{Conn: ours}
	var writers sync.WaitGroup
	o := newOutbox(conn, 1<<10, time.Minute, &writers)
	if !o.sendBytes([]byte("waits")) {
		t.Fatal("refused")
	}
	if _, err := io.ReadFull(theirs, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	if !conn.last.IsZero() {
		t.Errorf("a deadline is left: %v", conn.last)
	}
}
