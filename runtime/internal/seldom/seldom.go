// Package seldom writes warnings that a peer can cause as often as it likes: one line for each cause and peer in a
// while, and in the next one how many were left out.
package seldom

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A Log writes seldom. It may be used from any goroutine, and takes no lock while it writes.
type Log struct {
	log *slog.Logger

	mu    sync.Mutex
	lines map[line]*since
}

type line struct {
	level slog.Level
	cause string
	who   string
}

type since struct {
	at      time.Time
	skipped uint64
}

const (
	quiet    = 30 * time.Second
	linesMax = 512
)

// New returns one that writes to log; nil writes nothing.
func New(log *slog.Logger) *Log { return &Log{log: log, lines: map[line]*since{}} }

// Warn writes a warning if cause and who have had none for a while. who is the peer, an address or a name; empty is
// nobody in particular.
func (s *Log) Warn(cause, who string, attrs ...any) { s.Write(slog.LevelWarn, cause, who, attrs...) }

// Write is Warn for what may be less than a warning.
func (s *Log) Write(level slog.Level, cause, who string, attrs ...any) {
	if s.log == nil || !s.log.Enabled(context.Background(), level) {
		return
	}
	if skipped, write := s.count(line{level, cause, who}, time.Now()); write {
		if who != "" {
			attrs = append(attrs, "from", who)
		}
		s.log.Log(context.Background(), level, cause, append(attrs, "more_since_last_line", skipped)...)
	}
}

func (s *Log) count(key line, now time.Time) (skipped uint64, write bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.lines[key]
	if x != nil && now.Sub(x.at) < quiet {
		x.skipped++
		return 0, false
	}
	if x == nil {
		if len(s.lines) >= linesMax {
			// So many addresses at once: from now on one line for each cause speaks of all of them.
			key.who = ""
			if x = s.lines[key]; x != nil && now.Sub(x.at) < quiet {
				x.skipped++
				return 0, false
			}
			s.forget(now)
		}
		if x == nil {
			x = &since{}
			s.lines[key] = x
		}
	}
	skipped, x.skipped, x.at = x.skipped, 0, now
	return skipped, true
}

func (s *Log) forget(now time.Time) {
	for k, x := range s.lines {
		if now.Sub(x.at) >= quiet {
			delete(s.lines, k)
		}
	}
}

// End tells what was left out since the last lines.
func (s *Log) End() {
	left := map[line]uint64{}
	s.mu.Lock()
	for k, x := range s.lines {
		if x.skipped > 0 {
			left[k], x.skipped = x.skipped, 0
		}
	}
	s.mu.Unlock()
	for k, n := range left { // Not under the lock: a log may be slow.
		if s.log != nil {
			s.log.Log(context.Background(), k.level, k.cause, "from", k.who, "more_since_last_line", n)
		}
	}
}
