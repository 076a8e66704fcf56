package operator

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/secure"
)

// Config configures a Server.
type Config struct {
	// Address is where the server listens, as host:port. Port 0 lets the system choose.
	Address string
	Sources []Source
	// Guard authenticates clients: they need a certificate of an identity with the role operator. It must be set if other
	// hosts can reach the address, unless AllowPlain. At a loopback address the server speaks HTTP without TLS.
	Guard      *secure.Guard
	AllowPlain bool
	Version    string       // of this program, for kvferry_build_info
	Log        *slog.Logger // nil: slog.Default()
}

// A Server serves the HTTP interface for operators.
type Server struct {
	http     *http.Server
	listener net.Listener
	served   sync.WaitGroup
	log      *slog.Logger
}

const (
	// connsMax is the number of connections at a time. Further ones wait in the system's queue.
	connsMax = 64
	// scrapesMax is the number of requests for metrics at a time, because gathering takes memory.
	scrapesMax = 4
	// requestTimeout is how long a request may take to arrive. An answer may take longer: a CPU profile takes the
	// time that its client asks for.
	requestTimeout = 10 * time.Second
)

// Serve opens the server, which then serves until Close.
func Serve(c Config) (*Server, error) {
	c.Log = cmp.Or(c.Log, slog.Default())
	listener, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("operator: listen at %s: %w; free the port, or give another one", c.Address, err)
	}
	isPlain := isLoopback(listener.Addr())
	if !isPlain && (c.Guard == nil || c.Guard.Mode() == secure.Off) {
		if !c.AllowPlain {
			_ = listener.Close()
			return nil, fmt.Errorf("operator: other hosts reach %s, and nobody would be authenticated there: give a loopback address, or set "+
				"security.mode (docs/security.md)", c.Address)
		}
		isPlain = true
	}
	handler := NewHandler(c.Version, c.Sources...)
	s := &Server{listener: listener, log: c.Log}
	shared := netutil.LimitListener(listener, connsMax)
	if isLoopback(listener.Addr()) {
		handler = localOnly(c.Address, handler)
	}
	if !isPlain {
		shared = tls.NewListener(shared, c.Guard.HTTPServerConfig())
		handler = authorized(c.Guard, handler)
	}
	s.http = &http.Server{Handler: handler, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug)}
	s.served.Go(func() {
		if err := s.http.Serve(shared); !errors.Is(err, http.ErrServerClosed) {
			c.Log.Error("the server for operators has ended", "err", err)
		}
	})
	c.Log.Info("serving operators", "address", listener.Addr().String(), "tls", !isPlain)
	return s, nil
}

// isLoopback reports whether only this host reaches an address.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// localOnly answers requests for another host's name with 421. A page from elsewhere may let the browser of a user of this
// host resolve its own name to a loopback address, and could then read everything here, as a page of the same origin. Names
// that such a page cannot have are served: addresses, localhost, and the name that the configuration gives.
func localOnly(address string, next http.Handler) http.Handler {
	configured, _, _ := net.SplitHostPort(address)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		host = strings.ToLower(host)
		if host != "" && host != "localhost" && !strings.HasSuffix(host, ".localhost") && host != strings.ToLower(configured) &&
			net.ParseIP(host) == nil {
			http.Error(w, "this address is served to its own host only, and not as "+strconv.Quote(host)+": use localhost or 127.0.0.1, or set "+
				"operator.host to that name", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authorized answers requests of identities without the role operator with 403.
func authorized(g *secure.Guard, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.AuthorizeHTTP(r.TLS, effects.RoleOperator); err != nil {
			http.Error(w, err.Error()+"; give the identity the role operator in security.policy", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Addr returns the address at which the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close ends the server at once, and waits for its goroutine.
func (s *Server) Close() error {
	err := s.http.Close()
	s.served.Wait()
	return err
}

// NewHandler returns the handler of the interface, for programs that have an HTTP server of their own. The version is
// that of the program.
func NewHandler(version string, sources ...Source) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildCollector(version))
	for _, s := range sources {
		registry.MustRegister(s.Collectors...)
	}
	mux := http.NewServeMux()
	for _, s := range sources {
		for path, serve := range s.Pages {
			mux.HandleFunc("GET "+path, serve)
		}
		for path, serve := range s.Actions {
			mux.Handle("POST "+path, http.NewCrossOriginProtection().Handler(serve))
		}
	}
	mux.HandleFunc("GET /{$}", servePage)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesMax}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) { serveChecks(w, r, sources, true) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { serveChecks(w, r, sources, false) })
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) { serveStatus(w, r, version, sources) })
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// buildCollector is a collector of the build's version.
type buildCollector string

// Describe implements prometheus.Collector.
func (buildCollector) Describe(to chan<- *prometheus.Desc) { to <- buildInfo.desc }

// Collect implements prometheus.Collector.
func (c buildCollector) Collect(to chan<- prometheus.Metric) {
	buildInfo.send(to, 1, string(c), goruntime.Version())
}

// A checkResult is a check with its result.
type checkResult struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Note  bool   `json:"note,omitempty"` // the process works all the same
	Error string `json:"error,omitempty"`
}

// probe probes the checks of all sources. It reports whether all hold, and whether those of the liveness hold.
func probe(ctx context.Context, sources []Source) (all []checkResult, isReady, isLive bool) {
	ctx, cancel := context.WithTimeout(ctx, machineTimeout)
	defer cancel()
	isReady, isLive = true, true
	for _, s := range sources {
		for _, c := range s.Checks {
			x := checkResult{Name: s.Name + "/" + c.Name, OK: true}
			if err := c.Probe(ctx); err != nil {
				x.OK, x.Note, x.Error = false, c.Kind == CheckNote, err.Error()
				isReady, isLive = isReady && c.Kind == CheckNote, isLive && c.Kind != CheckLive
			}
			all = append(all, x)
		}
	}
	return all, isReady, isLive
}

// serveChecks answers with a line for each check, and with status 503 if the process is not ready, or not live.
func serveChecks(w http.ResponseWriter, r *http.Request, sources []Source, liveness bool) {
	all, ok, isLive := probe(r.Context(), sources)
	if liveness {
		ok = isLive
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	for _, c := range all {
		switch {
		case c.OK:
			_, _ = fmt.Fprintf(w, "[+] %s\n", c.Name)
		case c.Note:
			_, _ = fmt.Fprintf(w, "[!] %s: %s\n", c.Name, c.Error)
		default:
			_, _ = fmt.Fprintf(w, "[-] %s: %s\n", c.Name, c.Error)
		}
	}
}

// serveStatus answers with the state of the process as JSON.
func serveStatus(w http.ResponseWriter, r *http.Request, version string, sources []Source) {
	ctx, cancel := context.WithTimeout(r.Context(), machineTimeout)
	defer cancel()
	checks, isReady, isLive := probe(ctx, sources)
	state := map[string]any{"version": version, "ready": isReady, "live": isLive, "checks": checks, "paths": listPaths(sources)}
	for _, s := range sources {
		if s.State != nil {
			state[s.Name] = s.State(ctx)
		}
	}
	writeJSON(w, state)
}

// listPaths returns the paths of the further pages of all sources, sorted.
func listPaths(sources []Source) (paths []string) {
	for _, s := range sources {
		paths = slices.AppendSeq(paths, maps.Keys(s.Pages))
	}
	slices.Sort(paths)
	return paths
}
