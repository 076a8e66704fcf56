package zmq_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/logtest"
)

// logged collects log lines.
type logged struct{ logtest.Lines }

// await returns the first line that contains says.
func (l *logged) await(t testing.TB, says string) string {
	t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); runtime.Gosched() {
		if lines := l.LinesWith(says); len(lines) > 0 {
			return lines[0]
		}
	}
	t.Fatalf("no line says %q", says)
	return ""
}
