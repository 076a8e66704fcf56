package asynclog_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/runtime/internal/asynclog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLinesKeepOrderAndAttributes(t *testing.T) {
	var out bytes.Buffer
	h := asynclog.New(slog.NewJSONHandler(&out, nil))
	log := slog.New(h).With("node", 7).WithGroup("g")
	for i := range 100 {
		log.Info("line", "i", i)
	}
	log.Debug("not enabled")
	if !h.Flush(time.Minute) {
		t.Fatal("not written in a minute")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 100 || !strings.Contains(lines[42], `"node":7`) || !strings.Contains(lines[42], `"g":{"i":42}`) {
		t.Errorf("%d lines, one is %q", len(lines), lines[min(42, len(lines)-1)])
	}
}

// A log that nobody reads delays no goroutine. The number of lost lines is logged when the log is read again.
func TestFullPipeDelaysNobody(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	h := asynclog.New(slog.NewTextHandler(w, nil))
	log := slog.New(h)
	const lines = 10_000
	for i := range lines {
		log.Info("a line long enough to fill a pipe "+strings.Repeat("x", 200), "i", i)
	}
	if h.Flush(time.Millisecond) {
		t.Fatal("a full pipe took everything")
	}
	if h.DroppedLines() < lines/2 {
		t.Errorf("%d lines were dropped", h.DroppedLines())
	}
	read := make(chan string)
	go func() {
		b, _ := io.ReadAll(r)
		read <- string(b)
	}()
	if !h.Flush(time.Minute) {
		t.Error("not written in a minute")
	}
	_ = w.Close()
	if got := <-read; !strings.Contains(got, "lines of this log were dropped") || !strings.Contains(got, "dropped=") {
		t.Error("no line says that some were dropped")
	}
	_ = r.Close()
}

// A locked handler takes its lock to answer Enabled, like a handler that reads its own state, and holds it while it
// writes.
type locked struct {
	slog.Handler
	lock chan struct{}
}

func (h locked) Enabled(ctx context.Context, l slog.Level) bool {
	h.lock <- struct{}{}
	defer func() { <-h.lock }()
	return h.Handler.Enabled(ctx, l)
}

// A stuck log is not asked whether a line is wanted, and a changed level takes effect soon.
func TestStuckLogIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var level slog.LevelVar
		lock := make(chan struct{}, 1)
		log := slog.New(asynclog.New(locked{slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: &level}), lock}))
		ctx := t.Context()
		wants := func(l slog.Level) bool {
			log.Enabled(ctx, l)
			time.Sleep(2 * time.Second)
			log.Enabled(ctx, l) // This call asks, if it may.
			synctest.Wait()
			return log.Enabled(ctx, l)
		}
		if wants(slog.LevelDebug) || !wants(slog.LevelInfo) || !wants(slog.LevelError+1) {
			t.Error("other levels are taken than the log's")
		}
		level.Set(slog.LevelDebug)
		if !wants(slog.LevelDebug) {
			t.Error("a level that was lowered does not count")
		}
		lock <- struct{}{} // held like the lock of a write that blocks
		level.Set(slog.LevelError)
		if !wants(slog.LevelDebug) {
			t.Error("a log that is stuck has said something")
		}
		<-lock
		if wants(slog.LevelDebug) {
			t.Error("a log that goes on is not asked again")
		}
	})
}
