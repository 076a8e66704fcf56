package runtime_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// lineWatcher hands on the lines that contain a text.
type lineWatcher struct {
	text  string
	lines chan string
}

func (w *lineWatcher) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(w.text)) {
		select {
		case w.lines <- string(b):
		default: // The test has read what it waits for.
		}
	}
	return len(b), nil
}

// A drain says what it waits for, while it waits and when its time is over.
func TestDrainSaysWhatItWaitsFor(t *testing.T) {
	w := &lineWatcher{text: "waits_for", lines: make(chan string, 1)}
	s := open(t, senderConfig(t, "shm", effects.Addr{}), runtime.WithLogger(slog.New(slog.NewTextHandler(w, nil))))
	pages := mustReserve(t, s, 2)
	drained := make(chan error, 1)
	go func() {
		_, err := s.Drain(within(t))
		drained <- err
	}()
	const want = "reservations: 1"
	if line := <-w.lines; !strings.Contains(line, want) {
		t.Errorf("the log says %q, want %q", line, want)
	}
	if got := s.Snapshot(within(t)).Unfinished; len(got) != 1 || got[0].Count != 1 {
		t.Errorf("the snapshot says %v, want one reservation", got)
	}
	mustRelease(t, pages)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	mustClose(t, s)

	cfg := senderConfig(t, "shm", effects.Addr{})
	cfg.DrainTimeout = time.Millisecond
	s = open(t, cfg)
	pages = mustReserve(t, s, 1)
	left, err := s.Drain(within(t))
	if wantCode(t, err, effects.Expired); left != 1 || !strings.Contains(err.Error(), want) {
		t.Errorf("the drain says %d left, %v; want %q", left, err, want)
	}
	mustRelease(t, pages)
	mustClose(t, s)
}
