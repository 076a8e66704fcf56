package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	healthTimeout = 2 * time.Second
	// A result is reused for this long, however often the proxy is asked.
	healthTTL = time.Second
)

// A healthCache holds the last known health of the engines.
type healthCache struct {
	mu        sync.Mutex
	checkedAt time.Time
	result    fleetHealth
}

type fleetHealth struct {
	Prefills upCount `json:"prefills"`
	Decodes  upCount `json:"decodes"`
}

type upCount struct {
	Up int64 `json:"up"`
	Of int64 `json:"of"`
}

// handleHealth answers 200 if a decode engine is healthy. Prefill engines are not needed, because decode engines can
// compute prompts.
func (p *Proxy) handleHealth(w http.ResponseWriter, _ *http.Request) {
	result := p.cachedHealth()
	status := http.StatusOK
	if result.Decodes.Up == 0 {
		status = http.StatusServiceUnavailable
	}
	p.extendDeadline(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(result)
}

func (p *Proxy) cachedHealth() fleetHealth {
	c := &p.lastHealth
	c.mu.Lock() // requests that arrive meanwhile wait for the same result
	defer c.mu.Unlock()
	if !c.checkedAt.IsZero() && time.Since(c.checkedAt) < healthTTL {
		return c.result
	}
	// Do not use the context of the request, because several requests may wait for the result.
	ctx, cancel := context.WithTimeout(context.Background(), p.healthWait)
	defer cancel()
	var asked sync.WaitGroup
	count := func(f *fleet) *atomic.Int64 {
		var n atomic.Int64
		for _, engine := range f.urls {
			asked.Go(func() {
				if p.getHealth(ctx, engine) == healthy {
					n.Add(1)
				}
			})
		}
		return &n
	}
	prefills, decodes := count(p.prefills), count(p.decodes)
	asked.Wait()
	c.result = fleetHealth{Prefills: upCount{prefills.Load(), int64(len(p.prefills.urls))},
		Decodes: upCount{decodes.Load(), int64(len(p.decodes.urls))}}
	c.checkedAt = time.Now()
	return c.result
}
