package aside

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// lasts is how long an answer is used: a changed level takes effect after at most that time.
const lasts = time.Second

// answers caches which levels a handler writes. A level between slog's four, which this module does not use, counts
// as the next lower one.
type answers struct {
	to     slog.Handler
	bits   atomic.Uint32 // one for each of levels
	until  atomic.Int64  // nanoseconds since start
	asking atomic.Bool
}

var levels = [...]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

var start = time.Now()

// newAnswers asks the handler at once, so its caller may wait.
func newAnswers(to slog.Handler) *answers {
	a := &answers{to: to}
	a.ask()
	return a
}

func (a *answers) of(l slog.Level) bool {
	if int64(time.Since(start)) > a.until.Load() && a.asking.CompareAndSwap(false, true) {
		go func() {
			defer a.asking.Store(false)
			a.ask()
		}()
	}
	bits := a.bits.Load()
	for i := len(levels) - 1; i > 0; i-- {
		if l >= levels[i] {
			return bits>>i&1 != 0
		}
	}
	return bits&1 != 0
}

func (a *answers) ask() {
	var bits uint32
	for i, l := range levels {
		if a.to.Enabled(context.Background(), l) {
			bits |= 1 << i
		}
	}
	a.bits.Store(bits)
	a.until.Store(int64(time.Since(start) + lasts))
}
