package proxy

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kvferry/kvferry/runtime/buildinfo"
)

// metrics are the metrics of GET /metrics. Labels are paths that the proxy serves and engines of the configuration, so
// clients cannot create series.
type metrics struct {
	registry       *prometheus.Registry
	prefillTime    histogram
	firstPieceTime histogram
	requestTime    histogram
}

type histogram struct{ *prometheus.HistogramVec }

func (h histogram) observeTime(path string, took time.Duration) {
	h.WithLabelValues(path).Observe(took.Seconds())
}

func newMetrics(p *Proxy) *metrics {
	seconds := func(name, help string) histogram {
		return histogram{prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kvferry_proxy_" + name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 17)}, []string{"path"})}
	}
	m := &metrics{
		registry:       prometheus.NewRegistry(),
		prefillTime:    seconds("prefill_seconds", "Time for a prefill engine to answer that it sent a KV cache."),
		firstPieceTime: seconds("first_piece_seconds", "Time from the complete request to the first piece of the answer."),
		requestTime:    seconds("request_seconds", "Time from the complete request to the end of the answer."),
	}
	m.registry.MustRegister(m.prefillTime, m.firstPieceTime, m.requestTime, statsCollector{p}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// serveMetrics handles GET /metrics. At most metricsRequestsMax requests are handled at a time, because gathering takes
// memory.
func (p *Proxy) serveMetrics() http.Handler {
	handler := promhttp.HandlerFor(p.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: metricsRequestsMax})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.extendDeadline(w)
		handler.ServeHTTP(w, r)
	})
}

const metricsRequestsMax = 8

// statsCollector collects the counters that the proxy keeps anyway.
type statsCollector struct{ p *Proxy }

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("kvferry_proxy_"+name, help, labels, nil)
}

var (
	descBuild    = newDesc("build_info", "1, with the version of this program.", "version", "goversion")
	descRequests = newDesc("requests_total", "Requests for generated text that were read completely.")
	descSent     = newDesc("prompts_sent_total", "Requests whose KV cache a prefill engine sent.")
	descComputed = newDesc("prompts_computed_total", "Requests whose prompt the decode engine computed, by reason.",
		"reason")
	descFailed    = newDesc("requests_failed_total", "Requests that no engine answered, or not to the end.")
	descAbandoned = newDesc("requests_left_total",
		"Requests whose client disconnected before the end of the answer, or was too slow.")
	descRefused            = newDesc("requests_refused_total", "Requests that were refused because a limit was reached.")
	descInFlight           = newDesc("requests_under_way", "Requests in flight.")
	descRequestLimit       = newDesc("requests_limit", "Limit of requests in flight (--requests).")
	descBodyBytes          = newDesc("body_bytes", "Bytes of the bodies of requests in flight.")
	descBodyBytesLimit     = newDesc("body_bytes_limit", "Limit of the bytes of bodies in flight (--bodies).")
	descConnections        = newDesc("connections", "Connections of clients.")
	descConnectionLimit    = newDesc("connections_limit", "Limit of connections of clients (--connections).")
	descConnectionsEvicted = newDesc("connections_evicted_total", "Idle connections that were closed to make room for new connections.")
	descConnectionsRefused = newDesc("connections_refused_total",
		"Connections that were refused because a limit was reached or no file was left.")
	descEngineRequests = newDesc("engine_requests_total", "Requests that were sent to an engine.", "engine", "kind")
	descEngineFailures = newDesc("engine_failures_total", "Failures after which an engine rests.", "engine", "kind")
	descEngineRests    = newDesc("engine_rests", "1 while an engine is left out, because it failed.", "engine", "kind")
)

// Describe implements prometheus.Collector.
func (c statsCollector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect implements prometheus.Collector.
func (c statsCollector) Collect(to chan<- prometheus.Metric) {
	p := c.p
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(descBuild, 1, buildinfo.Current().Version, runtime.Version())
	s := &p.stats
	counter(descRequests, s.requests.Load())
	counter(descSent, s.sent.Load())
	for why := range reasonCount {
		counter(descComputed, s.computed[why].Load(), why.String())
	}
	counter(descFailed, s.failed.Load())
	counter(descAbandoned, s.abandoned.Load())
	counter(descRefused, s.refused.Load())
	gauge(descInFlight, p.slots.inUse())
	gauge(descRequestLimit, int64(p.config.MaxRequests))
	gauge(descBodyBytes, p.bodies.inUse())
	gauge(descBodyBytesLimit, p.config.MaxTotalBytes)
	conns := p.gate.door.Stats()
	gauge(descConnections, int64(conns.Open))
	gauge(descConnectionLimit, int64(p.config.MaxConnections))
	counter(descConnectionsEvicted, conns.Evicted)
	counter(descConnectionsRefused, conns.Refused+conns.FailedAccepts)
	now := time.Now()
	for _, f := range []*fleet{p.prefills, p.decodes} {
		seen := map[string]bool{} // a configuration may name an engine twice
		for i, e := range f.copyStates() {
			name := f.urls[i].String()
			if seen[name] {
				continue
			}
			seen[name] = true
			counter(descEngineRequests, e.requests, name, f.kind)
			counter(descEngineFailures, e.failures, name, f.kind)
			rests := int64(0)
			if now.Before(e.restUntil) {
				rests = 1
			}
			gauge(descEngineRests, rests, name, f.kind)
		}
	}
}
