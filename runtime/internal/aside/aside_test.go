package aside_test

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/runtime/internal/aside"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLinesComeInOrderWithWhatTheyWere(t *testing.T) {
	var out bytes.Buffer
	h := aside.New(slog.NewJSONHandler(&out, nil))
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

// A log that nobody reads holds nobody up. What it lost is said when it goes on.
func TestAFullPipeHoldsNobodyUp(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	h := aside.New(slog.NewTextHandler(w, nil))
	log := slog.New(h)
	const lines = 10_000
	for i := range lines {
		log.Info("a line long enough to fill a pipe "+strings.Repeat("x", 200), "i", i)
	}
	if h.Flush(time.Millisecond) {
		t.Fatal("a full pipe took everything")
	}
	if h.Dropped() < lines/2 {
		t.Errorf("%d lines were dropped", h.Dropped())
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
