// Package loglimit limits the rate of warnings that a peer can cause any number of times: at most one line for each
// cause and peer is written in 30 seconds, and the next line says how many lines were left out.
//
//	log := loglimit.New(slog.Default())
//	log.Warn("cannot open a link to a peer", "10.0.0.7", "err", err) // At most once in 30 s for 10.0.0.7.
//	defer log.End()                                               // Writes how many lines were left out at last.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A Log writes lines at a limited rate. A Log may be used from any goroutine, and holds no lock while writing.
type Log struct {
	log *slog.Logger

	mu    sync.Mutex
	lines map[lineKey]*lineCount
}

type lineKey struct {
	level slog.Level
	cause string
	peer  string
}

type lineCount struct {
	at      time.Time
	skipped uint64
}

const (
	interval = 30 * time.Second
	maxLines = 512
)

// New returns a Log that writes to log, or writes nothing if log is nil.
func New(log *slog.Logger) *Log { return &Log{log: log, lines: map[lineKey]*lineCount{}} }

// Warn writes a warning, unless a warning with the same cause and peer was written in the last 30 seconds. The peer is
// an address or a name, or empty if the warning concerns no peer.
func (s *Log) Warn(cause, peer string, attrs ...any) {
	s.WriteLimited(slog.LevelWarn, cause, peer, attrs...)
}

// WriteLimited is like Warn, for any level.
func (s *Log) WriteLimited(level slog.Level, cause, peer string, attrs ...any) {
	if s.log == nil || !s.log.Enabled(context.Background(), level) {
		return
	}
	if skipped, write := s.countLine(lineKey{level, cause, peer}, time.Now()); write {
		if peer != "" {
			attrs = append(attrs, "from", peer)
		}
		s.log.Log(context.Background(), level, cause, append(attrs, "more_since_last_line", skipped)...)
	}
}

func (s *Log) countLine(key lineKey, now time.Time) (skipped uint64, write bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.lines[key]
	if x != nil && now.Sub(x.at) < interval {
		x.skipped++
		return 0, false
	}
	if x == nil {
		if len(s.lines) >= maxLines {
			// Warnings of so many peers at once share a line for each cause.
			key.peer = ""
			if x = s.lines[key]; x != nil && now.Sub(x.at) < interval {
				x.skipped++
				return 0, false
			}
			s.dropExpired(now)
		}
		if x == nil {
			x = &lineCount{}
			s.lines[key] = x
		}
	}
	skipped, x.skipped, x.at = x.skipped, 0, now
	return skipped, true
}

func (s *Log) dropExpired(now time.Time) {
	for k, x := range s.lines {
		if now.Sub(x.at) >= interval {
			delete(s.lines, k)
		}
	}
}

// FlushSkipped writes, for each cause and peer, how many lines were left out since the last written line.
func (s *Log) FlushSkipped() {
	left := map[lineKey]uint64{}
	s.mu.Lock()
	for k, x := range s.lines {
		if x.skipped > 0 {
			left[k], x.skipped = x.skipped, 0
		}
	}
	s.mu.Unlock()
	for k, n := range left { // Not under the lock: a log may be slow.
		if s.log != nil {
			s.log.Log(context.Background(), k.level, k.cause, "from", k.peer, "more_since_last_line", n)
		}
	}
}
