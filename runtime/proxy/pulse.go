package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A pulse records the last sign of life of a decode engine. Computing takes long, and an engine that hangs sends as
// little as an engine that computes. Therefore the proxy checks the health of an engine that sends nothing for
// Config.Silence.
type pulse struct {
	at     atomic.Int64 // in nanoseconds since started; 0: never
	asking sync.Mutex   // held by the request that checks the engine's health
}

// started is the origin of the time of pulses, on the monotonic clock. If the proxy used the wall clock, a step forward
// would make every engine silent, and a step back would hide an engine that hangs.
var started = time.Now()

// beat records that the engine has sent something.
func (u *pulse) beat() { u.at.Store(max(1, int64(time.Since(started)))) }

// silent reports whether the engine has sent nothing for a span of time.
func (u *pulse) silent(since time.Duration) bool {
	at := u.at.Load()
	return at == 0 || time.Since(started)-time.Duration(at) >= since
}

// watch lets a decode engine rest while it hangs with a request that began at begun, until stop is called. The request
// stays with this engine, because the request may be the cause and must not make further engines hang.
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
