// Package logtest has logs for tests: one that a test can look into while others write, and one that takes nothing.
package logtest

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Lines keeps what is written to it. The zero value is empty; any goroutine may use it.
type Lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *Lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String is all that was written.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count is how often something was written.
func (l *Lines) Count(what string) int { return strings.Count(l.String(), what) }

// With are the lines that contain something.
func (l *Lines) With(what string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, what) {
			lines = append(lines, line)
		}
	}
	return lines
}

// Logger writes to it, as text.
func (l *Lines) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Full is a pipe that takes nothing, because it is full and nobody reads it. The end of the test drains and closes it,
// after the cleanups that were registered behind this call.
func Full(tb testing.TB) *os.File {
	tb.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	var drained sync.WaitGroup
	tb.Cleanup(func() {
		drained.Go(func() { _, _ = io.Copy(io.Discard, r) }) // Ends what is blocked in it.
		_ = w.Close()
		drained.Wait()
		_ = r.Close()
	})
	raw, err := w.SyscallConn()
	if err != nil {
		tb.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		for err = error(nil); err == nil; {
			_, err = syscall.Write(int(fd), make([]byte, 512))
		}
	}); err != nil {
		tb.Fatal(err)
	}
	return w
}
