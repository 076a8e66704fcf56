package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/secure"
)

const (
	headerBytes   = 32 << 10 // of each connection
	headerTimeout = 10 * time.Second
	idleTimeout   = time.Minute
	dialTimeout   = 3 * time.Second
	// vLLM closes connections that were idle for 5 s; the proxy must not send a request just then.
	idleAtEngine = 2 * time.Second
)

// A Proxy is a running HTTP server. The methods may be called from any goroutine.
type Proxy struct {
	config     Config
	log        *loglimit.Log
	server     *http.Server
	gate       *gate
	transport  *http.Transport
	prefills   *fleet
	decodes    *fleet
	lastHealth healthCache
	metrics    *metrics
	keyPair    *secure.KeyPair // nil: clients connect without TLS
	keys       *apiKeys        // nil: clients need no key
	engineKey  string          // shown to engines; empty: they get the client's

	healthWait    time.Duration // timeout of an engine's health check
	minClientRate int64         // see the constant

	slots  *shares // of requests in flight
	bodies *shares // of the bytes of their bodies
	stats  struct {
		requests, sent, failed, abandoned, refused atomic.Uint64
		computed                                   [reasonCount]atomic.Uint64
	}
	failuresChecked atomic.Uint64 // verdicts about engines that were reached in the background

	baseCtx context.Context // parent of the contexts of all requests

	mu       sync.Mutex
	closing  bool
	inFlight sync.WaitGroup
	serveErr chan error
	cancel   context.CancelFunc // ends all requests
}

// Stats counts requests since the start.
type Stats struct {
	Requests uint64 // requests that were read whole
	Sent     uint64 // requests whose cache a prefill engine sent
	Computed uint64 // requests whose prompt the decode engine computed
	Failed   uint64 // requests that no engine answered, or not to the end
	Left     uint64 // requests whose client left before the end or was too slow, or that Close ended
	Refused  uint64 // requests refused because a limit was reached
}

// Listen starts a proxy. The error names the field that is wrong, or the address that cannot be bound.
func Listen(c Config) (*Proxy, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := c.fitFiles(); err != nil {
		return nil, err
	}
	keyPair, roots, err := c.loadCertificates()
	if err != nil {
		return nil, err
	}
	var keys *apiKeys
	if c.APIKeys != "" {
		if keys, err = openKeys(c.APIKeys, c.Log); err != nil {
			return nil, err
		}
	}
	engineKey, err := readEngineKey(c.EngineKey)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("listen at %q: %w", c.Address, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	urls := make([]*url.URL, len(c.Decodes))
	for i, d := range c.Decodes {
		urls[i] = d.URL
	}
	p := &Proxy{config: c, keys: keys, engineKey: engineKey, log: loglimit.New(c.Log), baseCtx: ctx, cancel: cancel,
		serveErr: make(chan error, 1),
		prefills: newFleet("prefill", c.Prefills, c.RestTime, c.PrefillTimeout+2*healthTimeout),
		decodes:  newFleet("decode", urls, c.RestTime, 2*c.SilenceTimeout+healthTimeout),
		slots:    newShares(int64(c.MaxRequests), 1), bodies: newShares(c.MaxTotalBytes, c.MaxBodyBytes),
		healthWait: healthTimeout, minClientRate: minClientRate,
		transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: dialTimeout, DisableCompression: true, IdleConnTimeout: idleAtEngine,
			MaxIdleConns: c.MaxRequests, MaxIdleConnsPerHost: c.MaxRequests, MaxResponseHeaderBytes: headerBytes,
		}}
	// Behind a reverse proxy all connections have the same address. At the bound, idle connections are closed first.
	p.gate = newGate(listener, door.Config{MaxTotal: c.MaxConnections, MaxPerAddress: c.MaxConnections, MaxStrangers: c.MaxConnections,
		HandshakeTimeout: c.ReadTimeout, Log: c.Log})
	p.metrics = newMetrics(p)
	p.server = &http.Server{Handler: p.newHandler(), ReadHeaderTimeout: min(headerTimeout, c.ReadTimeout),
		ReadTimeout: c.ReadTimeout,
		// For responses of the server itself; handlers set later deadlines (extendDeadline).
		WriteTimeout: c.WriteTimeout,
		IdleTimeout:  idleTimeout, MaxHeaderBytes: headerBytes,
		ErrorLog:    slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }, ConnContext: withClient}
	serve := func() error { return p.server.Serve(p.gate) }
	if keyPair != nil {
		p.keyPair, p.server.TLSConfig = keyPair, keyPair.ServerConfig()
		// HTTP/2 has several requests on a connection, and the limits of clients count connections.
		p.server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		serve = func() error { return p.server.ServeTLS(p.gate, "", "") }
	}
	go func() { p.serveErr <- serve() }()
	return p, nil
}

// loadCertificates reads the certificate for clients, which is nil if there is none, and the authorities of engines,
// which are nil for those of the system.
func (c *Config) loadCertificates() (*secure.KeyPair, *x509.CertPool, error) {
	var roots *x509.CertPool
	if c.EngineCA != "" {
		pem, err := os.ReadFile(c.EngineCA)
		if err != nil {
			return nil, nil, fmt.Errorf("--engine-ca: %w", err)
		}
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(pem) {
			return nil, nil, fmt.Errorf("--engine-ca: %s has no certificate; give a file in PEM", c.EngineCA)
		}
	}
	if c.Cert == "" && c.Key == "" {
		return nil, roots, nil
	}
	keyPair, err := secure.OpenKeyPair("--cert", c.Cert, "--key", c.Key, c.Log)
	return keyPair, roots, err
}

// ReloadFiles makes the next client see the certificate, and the next request be judged by the keys, that the files hold
// then.
func (p *Proxy) ReloadFiles() {
	p.keyPair.Reload()
	p.keys.Reload()
}

// Addr returns the address that the proxy listens at.
func (p *Proxy) Addr() net.Addr { return p.gate.Addr() }

// Stats returns the current counts.
func (p *Proxy) Stats() Stats {
	s := &p.stats
	computed := uint64(0)
	for i := range s.computed {
		computed += s.computed[i].Load()
	}
	return Stats{Requests: s.requests.Load(), Sent: s.sent.Load(), Computed: computed, Failed: s.failed.Load(),
		Left: s.abandoned.Load(), Refused: s.refused.Load()}
}

// Close refuses new requests and waits for the requests in flight until ctx ends; then Close aborts the remaining
// requests.
func (p *Proxy) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	err := p.server.Shutdown(ctx)
	p.cancel()
	if err != nil {
		err = fmt.Errorf("requests in flight were aborted: %w", errors.Join(err, p.server.Close()))
	}
	p.inFlight.Wait()
	if served := <-p.serveErr; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	p.serveErr <- http.ErrServerClosed // for a second call of Close
	p.transport.CloseIdleConnections()
	return errors.Join(err, p.gate.door.Close(context.WithoutCancel(ctx)))
}

func (p *Proxy) newHandler() http.Handler {
	m := http.NewServeMux()
	var served []string
	handle := func(pattern string, h http.Handler) {
		m.Handle(pattern, h)
		served = append(served, pattern)
	}
	for _, a := range endpoints {
		handle("POST "+a.path, p.trackRequest(p.handleCompletion(a)))
	}
	for _, path := range []string{"/v1/messages/count_tokens", "/tokenize", "/detokenize"} {
		handle("POST "+path, p.trackRequest(p.requireKey(p.relayWork)))
	}
	for _, path := range []string{"/v1/models", "/version"} {
		handle("GET "+path, p.trackRequest(p.requireKey(p.relayQuery)))
	}
	for _, pattern := range []string{"GET /health", "GET /ping", "POST /ping"} {
		handle(pattern, p.trackRequest(p.handleHealth))
	}
	handle("GET /metrics", p.trackRequest(p.serveMetrics().ServeHTTP))
	list := "there are " + strings.Join(served[:len(served)-1], ", ") + " and " + served[len(served)-1]
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		markKnown(r)
		closeUnread(w)
		p.refuseRequest(w, http.StatusNotFound, list)
	})
	return p.refuseCrossOrigin(m)
}

// refuseCrossOrigin refuses requests that a web page of a different origin makes a browser send. The engines would
// compute for that page at the expense of the page's reader, and the reader's browser may reach hosts that the author
// of the page cannot reach.
func (p *Proxy) refuseCrossOrigin(h http.Handler) http.Handler {
	c := http.NewCrossOriginProtection()
	c.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		closeUnread(w)
		p.refuseRequest(w, http.StatusForbidden, fmt.Sprintf(
			"a page of origin %.80q makes a browser send this request, but only pages that come "+
				"from this address may: send the request from a server, or serve the page and this proxy at the same address",
			r.Header.Get("Origin")))
	}))
	return c.Handler(h)
}

// trackRequest makes Close wait for a handler.
func (p *Proxy) trackRequest(handle http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		closing := p.closing
		if !closing {
			p.inFlight.Add(1)
		}
		p.mu.Unlock()
		if closing {
			closeUnread(w)
			p.refuseRequest(w, http.StatusServiceUnavailable, "the proxy is stopping")
			return
		}
		defer p.inFlight.Done()
		markKnown(r)
		handle(w, r)
	})
}
