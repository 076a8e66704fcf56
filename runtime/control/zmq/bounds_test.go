package zmq

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// An outbox that was full for a slow reader frees its buffer afterwards.
func TestOutboxKeepsNoMemory(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	var writers sync.WaitGroup
	o := newOutbox(near, 1<<20, time.Minute, &writers)
	for range 16 {
		if !o.sendBytes(make([]byte, 64<<10)) {
			t.Fatal("it takes less than its limit")
		}
	}
	if o.sendBytes([]byte{1}) {
		t.Error("it takes more than its limit")
	}
	if _, err := io.CopyN(io.Discard, far, 1<<20); err != nil {
		t.Fatal(err)
	}
	<-o.drainChan()
	writers.Wait()
	if cap(o.bytes) != 0 || !o.sendBytes(nil) {
		t.Errorf("it keeps %d bytes", cap(o.bytes))
	}
	o.waitForRoom()
	writers.Wait()
}
