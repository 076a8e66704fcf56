// Package asynclog provides a slog.Handler that writes a log from a separate goroutine. A goroutine that logs never
// waits for the destination of the lines, which may be a pipe that nobody reads.
//
// Lines wait in a bounded queue. A line that finds the queue full is dropped and counted, and the next line that is
// written is preceded by a line with that count.
//
//	h := asynclog.New(slog.NewTextHandler(os.Stderr, nil))
//	log := slog.New(h)
//	defer h.Flush(time.Second)
package asynclog

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// MaxLines is the number of lines that may wait.
const MaxLines = 1024

// A Handler passes records to another handler, in order, from a goroutine that exists only while there are records.
// Attributes are resolved by the caller, but values that are not plain are formatted later, and must not change.
type Handler struct {
	destination slog.Handler
	q           *queue
	// enabled caches the destination's answers about slog's levels. The destination is not asked each time, because
	// asking may take a lock that is held by a write that blocks.
	enabled *enabledLevels
}

// A queue is shared by a handler and all handlers derived from it.
type queue struct {
	max int

	mu         sync.Mutex
	lines      []line
	writing    bool
	idle       chan struct{} // closed when there is nothing to write; replaced when there is
	dropped    uint64        // since the start
	unreported uint64        // dropped lines that no written line has reported yet
}

type line struct {
	to     slog.Handler
	record slog.Record
}

// New returns a handler in front of to.
func New(to slog.Handler) *Handler {
	q := &queue{max: MaxLines, idle: make(chan struct{})}
	close(q.idle)
	return newHandler(to, q)
}

func newHandler(to slog.Handler, q *queue) *Handler {
	return &Handler{destination: to, q: q, enabled: newEnabledLevels(to)}
}

// Enabled implements slog.Handler. The result is the cached answer of the destination, which is refreshed in the
// background.
func (h *Handler) Enabled(_ context.Context, l slog.Level) bool { return h.enabled.isEnabled(l) }

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return newHandler(h.destination.WithAttrs(attrs), h.q)
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return newHandler(h.destination.WithGroup(name), h.q)
}

// Handle implements slog.Handler. Handle never waits and never fails.
func (h *Handler) Handle(_ context.Context, r slog.Record) error {
	h.q.addLine(line{h.destination, resolveAttrs(r)})
	return nil
}

// resolveAttrs returns a copy of r with resolved values, which do not depend on the caller any more.
func resolveAttrs(r slog.Record) slog.Record {
	c := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		a.Value = a.Value.Resolve()
		c.AddAttrs(a)
		return true
	})
	return c
}

func (q *queue) addLine(l line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) >= q.max {
		q.dropped++
		q.unreported++
		return
	}
	q.lines = append(q.lines, l)
	if !q.writing {
		q.writing, q.idle = true, make(chan struct{})
		go q.writeLines()
	}
}

func (q *queue) writeLines() {
	for {
		l, dropped, more := q.nextLine()
		if !more {
			return
		}
		if dropped > 0 {
			r := slog.NewRecord(time.Now(), slog.LevelWarn, "lines of this log were dropped, because it is written too slowly",
				0)
			r.AddAttrs(slog.Uint64("dropped", dropped))
			_ = l.to.Handle(context.Background(), r)
		}
		_ = l.to.Handle(context.Background(), l.record) // There is no destination for an error.
	}
}

func (q *queue) nextLine() (l line, dropped uint64, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) == 0 {
		q.writing = false
		close(q.idle)
		return line{}, 0, false
	}
	l = q.lines[0]
	q.lines[0] = line{}
	if q.lines = q.lines[1:]; len(q.lines) == 0 {
		q.lines = nil // frees the array
	}
	dropped, q.unreported = q.unreported, 0
	return l, dropped, true
}

// DroppedLines returns the number of lines that were dropped since the start.
func (h *Handler) DroppedLines() uint64 {
	h.q.mu.Lock()
	defer h.q.mu.Unlock()
	return h.q.dropped
}

// Flush waits at most for the timeout until all lines are written, and reports whether all lines are written.
func (h *Handler) Flush(timeout time.Duration) bool {
	h.q.mu.Lock()
	idle := h.q.idle
	h.q.mu.Unlock()
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case <-idle:
		return true
	case <-late.C:
		return false
	}
}
