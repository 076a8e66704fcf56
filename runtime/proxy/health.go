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
	healthFor = time.Second
)

// A check holds the last known health of the engines.
type check struct {
	mu    sync.Mutex
	at    time.Time
	known health
}

type health struct {
	Prefills up `json:"prefills"`
	Decodes  up `json:"decodes"`
}

type up struct {
	Up int64 `json:"up"`
	Of int64 `json:"of"`
}

// health answers 200 if a decode engine is healthy. Prefill engines are not needed, because decode engines can compute
// prompts.
func (p *Proxy) health(w http.ResponseWriter, _ *http.Request) {
	known := p.engineHealth()
	status := http.StatusOK
	if known.Decodes.Up == 0 {
		status = http.StatusServiceUnavailable
	}
	p.extendDeadline(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(known)
}

func (p *Proxy) engineHealth() health {
	c := &p.lastHealth
	c.mu.Lock() // requests that arrive meanwhile wait for the same result
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < healthFor {
		return c.known
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
	c.known = health{Prefills: up{prefills.Load(), int64(len(p.prefills.urls))},
		Decodes: up{decodes.Load(), int64(len(p.decodes.urls))}}
	c.at = time.Now()
	return c.known
}
