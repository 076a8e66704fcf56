package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A pulse is the last sign of life of a decode engine. Computing takes long, and an engine that hangs says as little as
// one that computes: so one that says nothing to anybody for Config.Silence is asked for its health.
type pulse struct {
	at     atomic.Int64 // in nanoseconds since started; 0: never
	asking sync.Mutex   // held by the request that asks for the engine's health
}

// started is what pulses count from: a clock that nobody sets. By the time of day a clock that is set forward would make
// every engine silent, and one that is set back would hide one that hangs.
var started = time.Now()

func (u *pulse) beat() { u.at.Store(max(1, int64(time.Since(started)))) }

func (u *pulse) silent(since time.Duration) bool {
	at := u.at.Load()
	return at == 0 || time.Since(started)-time.Duration(at) >= since
}

// watch has a decode engine rest while it hangs with a request that was begun, until stop is called. The request stays
// where it is: it may be what the engine hangs of, and must not do the same to others.
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
			if p.decodes.pulses[at].silent(p.config.Silence) && p.examine(ctx, p.decodes, at) == isIll {
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
