package asynclog

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// cacheTTL is the time for which an answer is used: a changed level takes effect after at most that time.
const cacheTTL = time.Second

// enabledLevels caches which levels a handler writes. A level between slog's four, which this module does not use,
// counts as the next lower level.
type enabledLevels struct {
	handler    slog.Handler
	bits       atomic.Uint32 // one for each of levels
	validUntil atomic.Int64  // nanoseconds since start
	refreshing atomic.Bool
}

var levels = [...]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

var processStart = time.Now()

// newEnabledLevels asks the handler at once, so the caller may wait.
func newEnabledLevels(to slog.Handler) *enabledLevels {
	a := &enabledLevels{handler: to}
	a.refreshLevels()
	return a
}

func (a *enabledLevels) isEnabled(l slog.Level) bool {
	if int64(time.Since(processStart)) > a.validUntil.Load() && a.refreshing.CompareAndSwap(false, true) {
		go func() {
			defer a.refreshing.Store(false)
			a.refreshLevels()
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

func (a *enabledLevels) refreshLevels() {
	var bits uint32
	for i, l := range levels {
		if a.handler.Enabled(context.Background(), l) {
			bits |= 1 << i
		}
	}
	a.bits.Store(bits)
	a.validUntil.Store(int64(time.Since(processStart) + cacheTTL))
}
