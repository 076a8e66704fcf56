package loglimit

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/runtime/internal/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A text collects all written lines.
type text struct{ logtest.Lines }

func (x *text) log() *Log {
	drop := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}
	return New(slog.New(slog.NewTextHandler(x, &slog.HandlerOptions{ReplaceAttr: drop})))
}

func TestOneLineForEachCauseAndPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x text
		s := x.log()
		for range 1000 {
			s.Warn("bad", "a")
		}
		s.Warn("bad", "b")
		s.Warn("worse", "a")
		time.Sleep(interval) // of the bubble's clock
		s.Warn("bad", "a", "port", 7)
		s.Warn("bad", "a")
		s.FlushSkipped()
		s.FlushSkipped() // It has nothing left to write.
		want := `msg=bad from=a more_since_last_line=0
msg=bad from=b more_since_last_line=0
msg=worse from=a more_since_last_line=0
msg=bad port=7 from=a more_since_last_line=999
msg=bad from=a more_since_last_line=1
`
		if got := x.String(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

// Peers with many addresses share one line beyond a limit, and take no more memory.
func TestManyPeersShareALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x text
		s := x.log()
		for i := range 10 * maxLines {
			s.Warn("bad", fmt.Sprint(i))
		}
		if got := strings.Count(x.String(), "\n"); got != maxLines+1 {
			t.Errorf("%d lines, and the bound is %d and one", got, maxLines)
		}
		if len(s.lines) > maxLines+1 {
			t.Errorf("%d are kept", len(s.lines))
		}
		time.Sleep(interval)
		s.Warn("bad", "new") // Expired lines are dropped for it.
		if len(s.lines) > 2 {
			t.Errorf("%d are kept after a while", len(s.lines))
		}
		s.FlushSkipped()
		if got := x.String(); !strings.Contains(got, fmt.Sprintf("more_since_last_line=%d\n", 9*maxLines-1)) {
			t.Errorf("nobody says how many were left out: %s", got[strings.LastIndex(strings.TrimSpace(got), "\n"):])
		}
	})
}

func TestSkippedLinesAreCounted(t *testing.T) {
	var x text
	s := x.log()
	const writers, each = 8, 200
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				s.Warn("bad", "a")
			}
		})
	}
	all.Wait()
	s.FlushSkipped()
	if got := x.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, fmt.Sprintf("more_since_last_line=%d\n",
		writers*each-1)) {
		t.Errorf("%s", got)
	}
	New(nil).Warn("nobody reads it", "")
}
