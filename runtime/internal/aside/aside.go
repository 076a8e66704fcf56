// Package aside writes a log aside: whoever logs never waits for where the lines go, which may be a pipe that nobody
// reads.
//
// Lines wait in a bounded queue. What finds it full is dropped and counted, and the next line that is written says how
// many were.
package aside

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Max is how many lines wait at most.
const Max = 1024

// A Handler hands records to another one, in their order, from a goroutine that exists only while there are some.
// Attributes are resolved by the caller, but values that are no plain ones are formatted later: they must not change.
type Handler struct {
	to slog.Handler
	q  *queue
	// enabled are the answers of to for slog's levels, as they were when it was last asked. It may take a lock that a
	// line holds which cannot be written.
	enabled *answers
}

// queue is what a handler and all that were derived of it share.
type queue struct {
	max int

	mu      sync.Mutex
	lines   []line
	writing bool
	idle    chan struct{} // closed when there was nothing to write; replaced when there is
	dropped uint64        // since the start
	untold  uint64        // of those, what no line says yet
}

type line struct {
	to     slog.Handler
	record slog.Record
}

// New returns a handler in front of to.
func New(to slog.Handler) *Handler {
	q := &queue{max: Max, idle: make(chan struct{})}
	close(q.idle)
	return newHandler(to, q)
}

func newHandler(to slog.Handler, q *queue) *Handler {
	return &Handler{to: to, q: q, enabled: newAnswers(to)}
}

// Enabled implements slog.Handler. It says what the other handler said lately, and asks it again aside.
func (h *Handler) Enabled(_ context.Context, l slog.Level) bool { return h.enabled.of(l) }

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return newHandler(h.to.WithAttrs(attrs), h.q)
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return newHandler(h.to.WithGroup(name), h.q)
}

// Handle implements slog.Handler. It never waits, and never fails.
func (h *Handler) Handle(_ context.Context, r slog.Record) error {
	h.q.add(line{h.to, resolved(r)})
	return nil
}

// resolved is a copy of r whose values know nothing of the caller any more, as far as they say how.
func resolved(r slog.Record) slog.Record {
	c := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		a.Value = a.Value.Resolve()
		c.AddAttrs(a)
		return true
	})
	return c
}

func (q *queue) add(l line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) >= q.max {
		q.dropped++
		q.untold++
		return
	}
	q.lines = append(q.lines, l)
	if !q.writing {
		q.writing, q.idle = true, make(chan struct{})
		go q.write()
	}
}

func (q *queue) write() {
	for {
		l, untold, more := q.next()
		if !more {
			return
		}
		if untold > 0 {
			r := slog.NewRecord(time.Now(), slog.LevelWarn, "lines of this log were dropped, because it takes them too slowly",
				0)
			r.AddAttrs(slog.Uint64("dropped", untold))
			_ = l.to.Handle(context.Background(), r)
		}
		_ = l.to.Handle(context.Background(), l.record) // Whom could an error be told?
	}
}

func (q *queue) next() (l line, untold uint64, more bool) {
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
		q.lines = nil // The array that was walked through.
	}
	untold, q.untold = q.untold, 0
	return l, untold, true
}

// Dropped is how many lines were dropped since the start.
func (h *Handler) Dropped() uint64 {
	h.q.mu.Lock()
	defer h.q.mu.Unlock()
	return h.q.dropped
}

// Flush waits until all lines are written, at most for patience, and says whether they are.
func (h *Handler) Flush(patience time.Duration) bool {
	h.q.mu.Lock()
	idle := h.q.idle
	h.q.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-idle:
		return true
	case <-late.C:
		return false
	}
}
