package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A activity records the last sign of life of a decode engine. Computing takes long, and an engine that hangs sends as
// little as an engine that computes. Therefore the proxy checks the health of an engine that sends nothing for
// Config.SilenceTimeout.
type activity struct {
	lastNanos  atomic.Int64 // in nanoseconds since started; 0: never
	checkMutex sync.Mutex   // held by the request that checks the engine's health
}

// clockStart is the origin of the time of pulses, on the monotonic clock. If the proxy used the wall clock, a step
// forward would make every engine silent, and a step back would hide an engine that hangs.
var clockStart = time.Now()

// recordActivity records that the engine has sent something.
func (u *activity) recordActivity() { u.lastNanos.Store(max(1, int64(time.Since(clockStart)))) }

// isSilent reports whether the engine has sent nothing for a span of time.
func (u *activity) isSilent(since time.Duration) bool {
	at := u.lastNanos.Load()
	return at == 0 || time.Since(clockStart)-time.Duration(at) >= since
}

// watchEngine lets a decode engine rest while it hangs with a request that began at begun, until stop is called. The
// request stays with this engine, because the request may be the cause and must not make further engines hang.
func (p *Proxy) watchEngine(ctx context.Context, at int, begun time.Time) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(p.config.SilenceTimeout)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if p.decodes.activities[at].isSilent(p.config.SilenceTimeout) && p.checkHealth(ctx, p.decodes, at) == unhealthy {
				p.decodes.onFailure(at, begun, time.Now(), 2*p.config.SilenceTimeout+p.healthWait)
				p.log.Warn("a decode engine hangs: requests go to the other engines", p.config.Decodes[at].URL.String(), "silence",
					p.config.SilenceTimeout)
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}
