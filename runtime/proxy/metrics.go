package proxy

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the metrics of GET /metrics. Labels are paths that the proxy serves and engines of the configuration, so
// clients cannot create series.
type metrics struct {
	registry *prometheus.Registry
	prefill  histogram
	first    histogram
	whole    histogram
}

type histogram struct{ *prometheus.HistogramVec }

func (h histogram) observe(path string, took time.Duration) {
	h.WithLabelValues(path).Observe(took.Seconds())
}

func newMetrics(p *Proxy) *metrics {
	seconds := func(name, help string) histogram {
		return histogram{prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kvferry_proxy_" + name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 17)}, []string{"path"})}
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		prefill:  seconds("prefill_seconds", "Time for a prefill engine to answer that it sent a KV cache."),
		first:    seconds("first_piece_seconds", "Time from a whole request to the first piece of its answer."),
		whole:    seconds("request_seconds", "Time from a whole request to the end of its answer."),
	}
	m.registry.MustRegister(m.prefill, m.first, m.whole, counts{p}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// serveMetrics handles GET /metrics. At most metricsAtOnce requests are handled at a time, because gathering takes
// memory.
func (p *Proxy) serveMetrics() http.Handler {
	handler := promhttp.HandlerFor(p.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: metricsAtOnce})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.extendDeadline(w)
		handler.ServeHTTP(w, r)
	})
}

const metricsAtOnce = 8

// counts collects the counters that the proxy keeps anyway.
type counts struct{ p *Proxy }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("kvferry_proxy_"+name, help, labels, nil)
}

var (
	descRequests = describe("requests_total", "Requests for text that were read.")
	descSent     = describe("prompts_sent_total", "Requests whose KV cache a prefill engine sent.")
	descComputed = describe("prompts_computed_total", "Requests whose prompt the decode engine computed, by reason.",
		"reason")
	descFailed   = describe("requests_failed_total", "Requests that no engine answered, or not to the end.")
	descLeft     = describe("requests_left_total", "Requests whose client left before the end, or was too slow.")
	descRefused  = describe("requests_refused_total", "Requests for which there was no room.")
	descUnderWay = describe("requests_under_way", "Requests under way.")
	descMost     = describe("requests_limit", "Requests that may be under way (--requests).")
	descBodies   = describe("body_bytes", "Bytes of the bodies of requests under way.")
	descBodiesOf = describe("body_bytes_limit", "Bytes that bodies under way may have (--bodies).")
	descGuests   = describe("connections", "Connections of clients.")
	descGuestsOf = describe("connections_limit", "Connections of clients that there may be (--connections).")
	descEvicted  = describe("connections_evicted_total", "Idle connections that were closed to make room for others.")
	descTurned   = describe("connections_refused_total", "Connections for which there was no room, or no file.")
	descAsked    = describe("engine_requests_total", "Requests that an engine was given.", "engine", "kind")
	descFails    = describe("engine_failures_total", "Failures for which an engine rests.", "engine", "kind")
	descRests    = describe("engine_rests", "1 while an engine is left out, because it failed.", "engine", "kind")
)

// Describe implements prometheus.Collector.
func (c counts) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect implements prometheus.Collector.
func (c counts) Collect(to chan<- prometheus.Metric) {
	p := c.p
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	s := &p.stats
	counter(descRequests, s.requests.Load())
	counter(descSent, s.sent.Load())
	for why := range reasons {
		counter(descComputed, s.computed[why].Load(), why.String())
	}
	counter(descFailed, s.failed.Load())
	counter(descLeft, s.left.Load())
	counter(descRefused, s.refused.Load())
	gauge(descUnderWay, p.slots.inUse())
	gauge(descMost, int64(p.config.Requests))
	gauge(descBodies, p.bodies.inUse())
	gauge(descBodiesOf, p.config.TotalBytes)
	guests := p.gate.door.Stats()
	gauge(descGuests, int64(guests.Open))
	gauge(descGuestsOf, int64(p.config.Connections))
	counter(descEvicted, guests.Evicted)
	counter(descTurned, guests.Refused+guests.FailedAccepts)
	now := time.Now()
	for _, f := range []*fleet{p.prefills, p.decodes} {
		told := map[string]bool{} // a configuration may name an engine twice
		for i, e := range f.snapshot() {
			name := f.urls[i].String()
			if told[name] {
				continue
			}
			told[name] = true
			counter(descAsked, e.requests, name, f.kind)
			counter(descFails, e.failures, name, f.kind)
			rests := int64(0)
			if now.Before(e.until) {
				rests = 1
			}
			gauge(descRests, rests, name, f.kind)
		}
	}
}
