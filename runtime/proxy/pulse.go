package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A pulse records the last sign of life of a decode engine. Computing takes long, and an engine that hangs sends as
// little as one that computes: so the health of an engine that sends nothing for Config.Silence is checked.
type pulse struct {
	at     atomic.Int64 // in nanoseconds since started; 0: never
	asking sync.Mutex   // held by the request that checks the engine's health
}

// started is the origin of pulses, on the monotonic clock. With the wall clock, setting it forward would make every
// engine silent, and setting it back would hide one that hangs.
var started = time.Now()

// beat notes a sign of life.
func (u *pulse) beat() { u.at.Store(max(1, int64(time.Since(started)))) }

// silent reports whether there was no sign of life for a span of time.
func (u *pulse) silent(since time.Duration) bool {
	at := u.at.Load()
	return at == 0 || time.Since(started)-time.Duration(at) >= since
}

// watch lets a decode engine rest while it hangs with a request that began at begun, until stop is called. The request
// stays with this engine: it may be what makes the engine hang, and must not do the same to others.
func (p *Proxy) watch(ctx context.Context, at int, begun time.Time) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(p.config.Silence)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if p.decodes.pulses[at].silent(p.config.Silence) && p.checkHealth(ctx, p.decodes, at) == unhealthy {
				p.decodes.failed(at, begun, time.Now(), 2*p.config.Silence+p.healthWait)
				p.log.Warn("a decode engine hangs: others are asked", p.config.Decodes[at].URL.String(), "silence",
					p.config.Silence)
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}
