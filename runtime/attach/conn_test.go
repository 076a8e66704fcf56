package attach

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/internal/nowait"
)

// newConn returns a connection whose writer does not run yet, and the engine's end of it.
func newConn(t *testing.T) (c *engineConn, engine net.Conn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	engine, err = net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	u, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.Close() })
	if err := engine.SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // Which ends only a test that fails.
		t.Fatal(err)
	}
	c = &engineConn{netConn: u, raw: nowait.RawConn(u), queueMax: 8}
	c.wake = sync.NewCond(&c.mu)
	return c, engine
}

// A short answer leaves at once. A long one, or one that the pool's memory goes with, waits for the writer, and those
// behind it wait for it.
func TestShortAnswersLeaveAtOnce(t *testing.T) {
	c, engine := newConn(t)
	want := func(body []byte) {
		t.Helper()
		frame := protocol.AppendFrame(nil, body)
		got := make([]byte, len(frame))
		if _, err := io.ReadFull(engine, got); err != nil || !bytes.Equal(got, frame) {
			t.Fatalf("%d bytes other than those of %.9q, %v", len(got), body, err)
		}
	}
	c.sendMessage([]byte("at once"), false)
	want([]byte("at once"))
	long := bytes.Repeat([]byte("x"), directWriteMax+1)
	c.sendMessage(long, false)
	c.sendMessage([]byte("with memory"), true)
	c.sendMessage([]byte("behind"), false)
	if len(c.queue) != 3 {
		t.Fatalf("%d wait", len(c.queue))
	}
	var writer sync.WaitGroup
	writer.Go(func() { c.writeMessages(nil, time.Minute) })
	want(long)
	want([]byte("with memory"))
	want([]byte("behind"))
	c.closeAfterFlush("")
	writer.Wait()
}
