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
	// What is known of engines is not asked again for so long, however often the proxy is asked.
	healthFor = time.Second
)

// A check is what engines said last of their health.
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

// health answers 200 if a decode engine does: without prefill engines prompts are computed.
func (p *Proxy) health(w http.ResponseWriter, _ *http.Request) {
	known := p.healthy()
	status := http.StatusOK
	if known.Decodes.Up == 0 {
		status = http.StatusServiceUnavailable
	}
	p.patience(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(known)
}

func (p *Proxy) healthy() health {
	c := &p.checked
	c.mu.Lock() // Who comes meanwhile waits for the same answers.
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < healthFor {
		return c.known
	}
	// Not of the client that asks: others wait, too.
	ctx, cancel := context.WithTimeout(context.Background(), p.healthWait)
	defer cancel()
	var asked sync.WaitGroup
	count := func(f *fleet) *atomic.Int64 {
		var n atomic.Int64
		for _, engine := range f.urls {
			asked.Go(func() {
				if p.askHealth(ctx, engine) == isWell {
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
