package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/internal/seldom"
)

const (
	headerBytes   = 32 << 10 // of each connection
	headerTimeout = 10 * time.Second
	idleTimeout   = time.Minute
	dialTimeout   = 3 * time.Second
	// vLLM closes connections that were idle for 5 s: it must not be just when we use one.
	idleAtEngine = 2 * time.Second
)

// A Proxy serves. Its methods may be called from any goroutine.
type Proxy struct {
	config    Config
	log       *seldom.Log
	server    *http.Server
	gate      *gate
	transport *http.Transport
	prefills  *turns
	decodes   *turns
	pulses    []pulse // of decode engines
	checked   check

	healthWait time.Duration // for an engine's

	slots chan struct{} // one for each request under way
	bytes atomic.Int64  // of their bodies
	stats struct{ requests, sent, computed, failed, left, refused atomic.Uint64 }

	mu      sync.Mutex
	closing bool
	working sync.WaitGroup
	served  chan error
	cancel  context.CancelFunc // ends all requests
}

// Stats counts requests since the start.
type Stats struct {
	Requests uint64 // that were read
	Sent     uint64 // whose cache a prefill engine sent
	Computed uint64 // whose prompt the decode engine computed
	Failed   uint64 // that no engine answered, or not to the end
	Left     uint64 // whose client left before the end; or which Close ended
	Refused  uint64 // for which there was no room
}

// Listen begins to serve.
func Listen(c Config) (*Proxy, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	listener, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("listen at %q: %w", c.Address, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{config: c, log: seldom.New(c.Log), cancel: cancel, served: make(chan error, 1),
		prefills: newTurns(len(c.Prefills), c.Rest, c.PrefillTimeout),
		decodes:  newTurns(len(c.Decodes), c.Rest, 2*c.Silence+healthTimeout),
		pulses:   make([]pulse, len(c.Decodes)), slots: make(chan struct{}, c.Requests),
		healthWait: healthTimeout,
		transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout: dialTimeout, DisableCompression: true, IdleConnTimeout: idleAtEngine,
			MaxIdleConnsPerHost: c.Requests, MaxResponseHeaderBytes: headerBytes,
		}}
	p.server = &http.Server{Handler: p.routes(), ReadHeaderTimeout: min(headerTimeout, c.ReadTimeout),
		ReadTimeout:  c.ReadTimeout,
		WriteTimeout: c.WriteTimeout, // Of what the server says itself; patience has that of all else.
		IdleTimeout:  idleTimeout, MaxHeaderBytes: headerBytes,
		ErrorLog:    slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }, ConnContext: withClient}
	// Behind another proxy all connections are of one address.
	p.gate = newGate(listener, door.Config{Total: c.Connections, PerAddress: c.Connections, Strangers: c.Connections,
		Patience: c.ReadTimeout, Log: c.Log})
	go func() { p.served <- p.server.Serve(p.gate) }()
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() net.Addr { return p.gate.Addr() }

// Stats counts.
func (p *Proxy) Stats() Stats {
	s := &p.stats
	return Stats{Requests: s.requests.Load(), Sent: s.sent.Load(), Computed: s.computed.Load(), Failed: s.failed.Load(),
		Left: s.left.Load(), Refused: s.refused.Load()}
}

// Close takes no more requests, and lets those under way end until ctx does. Then it ends them.
func (p *Proxy) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	err := p.server.Shutdown(ctx)
	p.cancel()
	if err != nil {
		err = fmt.Errorf("requests under way were ended: %w", errors.Join(err, p.server.Close()))
	}
	p.working.Wait()
	if served := <-p.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	p.served <- http.ErrServerClosed // For whoever closes it again.
	p.transport.CloseIdleConnections()
	return errors.Join(err, p.gate.door.Close(context.WithoutCancel(ctx)))
}

func (p *Proxy) routes() http.Handler {
	m := http.NewServeMux()
	m.Handle("POST /v1/completions", p.counted(p.complete(false)))
	m.Handle("POST /v1/chat/completions", p.counted(p.complete(true)))
	m.Handle("GET /v1/models", p.counted(p.models))
	m.Handle("GET /health", p.counted(p.health))
	m.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		p.refuse(w, http.StatusNotFound,
			"there are POST /v1/completions, POST /v1/chat/completions, GET /v1/models and GET /health")
	})
	return m
}

// counted has Close wait for a handler.
func (p *Proxy) counted(handle http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		closing := p.closing
		if !closing {
			p.working.Add(1)
		}
		p.mu.Unlock()
		if closing {
			p.refuse(w, http.StatusServiceUnavailable, "the proxy is stopping")
			return
		}
		defer p.working.Done()
		known(r)
		handle(w, r)
	})
}
