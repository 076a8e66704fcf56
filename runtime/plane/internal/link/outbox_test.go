package link

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// socketPair returns the two ends of a connection.
func socketPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "end")
		if ends[i], err = net.FileConn(file); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	if err := ends[1].SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // It ends only a test that fails.
		t.Fatal(err)
	}
	return ends[0], ends[1]
}

// A small frame is written at once, without the writing goroutine. A large frame is not, nor a frame behind it, whose
// shouldWrite is called when its turn comes.
func TestSmallFrameIsWrittenAtOnce(t *testing.T) {
	ours, theirs := socketPair(t)
	o := newOutbox(ours, 8, time.Minute)
	if how, ok := o.putFrame(queuedFrame{frame: []byte("at once")}); !ok || how != frameSent {
		t.Fatalf("it is %d, %v", how, ok)
	}
	got := make([]byte, 16)
	if n, err := theirs.Read(got); err != nil || string(got[:n]) != "at once" {
		t.Fatalf("%q, %v", got[:n], err)
	}
	large, asked := bytes.Repeat([]byte("x"), maxImmediateBytes+1), 0
	if how, ok := o.putFrame(queuedFrame{frame: large}); !ok || how != frameQueued {
		t.Errorf("a large one is %d, %v", how, ok)
	}
	if how, ok := o.putFrame(queuedFrame{frame: []byte("no"), shouldWrite: func() bool { asked++; return false }}); !ok || how != frameQueued {
		t.Errorf("one behind a large one is %d, %v", how, ok)
	}
	if how, ok := o.putFrame(queuedFrame{frame: []byte("last")}); !ok || how != frameQueued {
		t.Errorf("the last one is %d, %v", how, ok)
	}
	var writer sync.WaitGroup
	writer.Go(o.writeFrames)
	want := append(large, "last"...)
	came := make([]byte, len(want))
	if _, err := io.ReadFull(theirs, came); err != nil || !bytes.Equal(came, want) || asked != 1 {
		t.Errorf("%d bytes came, the last %q, %v; asked %d times", len(came), came[len(came)-4:], err, asked)
	}
	o.close()
	writer.Wait()
}

// If the kernel takes a part of a frame, the rest follows before all other frames, without another call of before.
func TestRestOfAFrameFollows(t *testing.T) {
	ours, theirs := socketPair(t)
	o := newOutbox(ours, 8, time.Minute)
	all := o.writeNow
	o.writeNow = func(b []byte) int { return all(b[:3]) }
	if how, ok := o.putFrame(queuedFrame{frame: []byte("begun"), shouldWrite: func() bool { return false }}); !ok || how != framePartlySent {
		t.Fatalf("it is %d, %v", how, ok)
	}
	if how, ok := o.putFrame(queuedFrame{frame: []byte(" and behind it")}); !ok || how != frameQueued {
		t.Errorf("one behind it is %d, %v", how, ok)
	}
	want := []byte("begun and behind it")
	var writer sync.WaitGroup
	writer.Go(o.writeFrames)
	came := make([]byte, len(want))
	if _, err := io.ReadFull(theirs, came); err != nil || !bytes.Equal(came, want) {
		t.Errorf("%q came, %v", came, err)
	}
	o.close()
	writer.Wait()
}

// deadlineConn is a connection that records its last write deadline.
type deadlineConn struct {
	net.Conn
	mu   sync.Mutex
	last time.Time
}

func (n *deadlineConn) SetWriteDeadline(t time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = t
	return n.Conn.SetWriteDeadline(t)
}

// The write deadline of a queued frame is cleared afterwards; an expired one would prevent immediate writes.
func TestWriteDeadlineIsCleared(t *testing.T) {
	ours, theirs := socketPair(t)
	conn := &deadlineConn{Conn: ours}
	o := newOutbox(conn, 8, time.Minute)
	left := make(chan struct{})
	o.putFrame(queuedFrame{frame: make([]byte, maxImmediateBytes+1), onWritten: func() { close(left) }})
	var writer sync.WaitGroup
	writer.Go(o.writeFrames)
	if _, err := io.ReadFull(theirs, make([]byte, maxImmediateBytes+1)); err != nil {
		t.Fatal(err)
	}
	<-left
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if !conn.last.IsZero() {
		t.Errorf("a deadline is left: %v", conn.last)
	}
	o.close()
	writer.Wait()
}
