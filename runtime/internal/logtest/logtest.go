// Package logtest provides logs for tests: [Lines], which a test can read while goroutines write, and [FullPipe], to
// which every write blocks.
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

// Lines collects everything that is written. The zero value is empty. Lines may be used from any goroutine.
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

// String returns everything that was written.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// CountText returns how often a text was written.
func (l *Lines) CountText(what string) int { return strings.Count(l.String(), what) }

// LinesWith returns the lines that contain a text.
func (l *Lines) LinesWith(what string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, what) {
			lines = append(lines, line)
		}
	}
	return lines
}

// Logger returns a logger that writes text to l.
func (l *Lines) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// FullPipe returns the writing end of a full pipe that nobody reads. When the test ends, the pipe is drained and
// closed, after the cleanups that were registered after this call.
func FullPipe(tb testing.TB) *os.File {
	tb.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	var drained sync.WaitGroup
	tb.Cleanup(func() {
		drained.Go(func() { _, _ = io.Copy(io.Discard, r) }) // Ends writes that block.
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
