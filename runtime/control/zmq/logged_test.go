package zmq_test

import (
	"bytes"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// logged keeps lines of a log.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// await returns the first line that contains says.
func (l *logged) await(t testing.TB, says string) string {
	t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); runtime.Gosched() {
		if lines := l.with(says); len(lines) > 0 {
			return lines[0]
		}
	}
	t.Fatalf("no line says %q", says)
	return ""
}

// with returns the lines that contain says.
func (l *logged) with(says string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, says) {
			lines = append(lines, line)
		}
	}
	return lines
}
