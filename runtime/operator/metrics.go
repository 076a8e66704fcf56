package operator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/metrics"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/attach"
	"github.com/kvferry/kvferry/runtime/directory"
)

// A metric is a metric of this package. Its series have the labels in this order.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	desc       *prometheus.Desc
}

// allMetrics lists the metrics, in the order of their definition, for docs/metrics.md.
//
//kvferry:table
var allMetrics []*metric

// prefix begins the names of all metrics.
const prefix = "kvferry_"

func define(kind prometheus.ValueType, name, help string, labels ...string) *metric {
	m := &metric{name: prefix + name, help: help, kind: kind, labels: labels}
	m.desc = prometheus.NewDesc(m.name, help, labels, nil)
	allMetrics = append(allMetrics, m)
	return m
}

func gauge(name, help string, labels ...string) *metric {
	return define(prometheus.GaugeValue, name, help, labels...)
}

func counter(name, help string, labels ...string) *metric {
	return define(prometheus.CounterValue, name, help, labels...)
}

// send sends a value of the metric to Prometheus.
func (m *metric) send(to chan<- prometheus.Metric, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

var (
	buildInfo = gauge("build_info", "1, with the version of this program.", "version", "goversion")

	nodeStates    = gauge("node_state", "1 for the state that the node is in, and 0 for the others.", "state")
	scrapeStale   = gauge("scrape_stale", "1 if the node's event loop did not answer, so that the counts of its tables are missing.")
	poolCapacity  = gauge(metrics.PagesCapacity, "Pages of a pool.", "pool")
	poolStates    = gauge(metrics.Pages, "Pages of a pool by state; the states do not cover all pages (docs/metrics.md).", "pool", "state")
	pageBytes     = gauge("page_bytes", "Bytes of a page.")
	leasedMost    = gauge(metrics.PagesLeased, "The most pages that were leased to peers at a time.")
	pinnedPages   = gauge(metrics.PagesPinned, "Pins of pages for peers that read them.")
	tableRowCount = gauge(metrics.TableRows, "Rows of a table of the node's machine.", "table")
	tableLimits   = gauge("table_limit", "The limit of a table of the node's machine.", "table")
	commands      = gauge("commands_in_progress", "Commands in progress, and commands whose memory is still in use.")
	factsTotal    = counter(metrics.Facts, "What the node observed, by kind and code (docs/metrics.md).", "fact", "code")
	factItems     = counter(metrics.FactItems, "Sums of what these facts count: chunks, pages or others, by kind.", "fact", "code")
	transfers     = counter(metrics.Transfers, "Transfers of this node that ended: writes to peers, and reads from peers.",
		"plane", "direction", "code")
	transferBytes = counter(metrics.TransferBytes, "Bytes of the transfers that succeeded.", "plane", "direction")
	controlDrops  = counter("control_dropped_total", "Control messages that were dropped, by reason.", "reason")
	inboundConns  = gauge("connections", "Inbound connections of the control transport that are open.")
	inboundEnded  = counter("connections_ended_total", "Inbound connections of the control transport that were closed or refused, by reason.",
		"reason")
	tlsConns      = gauge("tls_connections", "Connections with TLS that are open.")
	tlsEvents     = counter("tls_events_total", "Handshakes and files of TLS, by event.", "event")
	checksumBytes = counter("checksum_bytes_total", "Bytes that were compared with checksums (data.checksum).")
	corruptPages  = counter("checksum_failures_total", "Pages that did not have the checksum that their source stated.")
	droppedLines  = counter("log_lines_dropped_total", "Lines that the log dropped, because its handler took them too slowly.")

	gatewayOps = counter("gateway_operations_total", "Operations of the gateway to plain engines, by outcome.", "operation", "outcome")
	gatewayNow = gauge("gateway_engines", "Plain engines that write to the node (producer), that the node writes to (consumer), and agents "+
		"of the gateway (agent).", "kind")

	recorderOn    = gauge("recorder_recording", "1 while the state machine is recorded (recorder.dir), 0 if the recording has ended.")
	recorderBytes = gauge("recorder_file_bytes", "The size of the files of the recording, without saved ones.")
	recorderSteps = counter("recorder_steps_total", "Steps of the state machine that were recorded.")

	directoryRows = gauge("directory_rows", "Rows of a table of the directory.", "table")
	directoryMem  = gauge("directory_index_bytes", "Memory of the directory's index of chunks.")
	directoryLog  = gauge("directory_log_up", "1 while the log that directories share can be reached, or if there is none.")

	traceSpans = counter("trace_spans_total", "Spans of traced requests that were exported, and that were dropped because the collector is "+
		"slow or gone.", "event")

	agentEngines = gauge("agent_engines", "Engines that are attached.")
	agentCalls   = gauge("agent_calls", "Calls of attached engines in progress.")
	agentHandles = gauge("agent_handles", "Handles that attached engines hold.")
)

// A histogram is the name, the meaning and the labels of a metric of a Timer.
type histogram struct {
	name, help string
	labels     []string
}

// histograms lists the metrics of a Timer.
//
//kvferry:table
var histograms = []histogram{
	{"kvferry_command_duration_seconds", "Time from a call of the node's interface to its outcome, by call and code.",
		[]string{"call", "code"}},
	{prefix + metrics.PutStage, "Time of a batch of a put in each stage. Each batch counts once in every stage, so the stages add up to " +
		"the time of the batch (docs/metrics.md).", []string{"stage", "outcome"}},
	{prefix + metrics.TransferDuration, "Time from the beginning of a transfer to its end.", []string{"plane", "direction", "outcome"}},
}

// newVec returns the metric. Its classic buckets reach from 16 microseconds to about 67 seconds, each four times the one
// before; where Prometheus scrapes native histograms, neighbouring buckets differ by a tenth.
func (h *histogram) newVec() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: h.name, Help: h.help,
		Buckets: prometheus.ExponentialBuckets(16e-6, 4, 12), NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, h.labels)
}

// A Timer has the histograms of a node.
type Timer struct {
	seconds *prometheus.HistogramVec
	// others are the histograms of fsm/rank/metrics, by their name there.
	others map[string]*prometheus.HistogramVec
	labels map[string]int // the number of labels of each
	// transfers are the last transfers that ended, for /transfers.
	transfers transferRing
}

// NewTimer returns a timer.
func NewTimer() *Timer {
	t := &Timer{seconds: histograms[0].newVec(), others: map[string]*prometheus.HistogramVec{}, labels: map[string]int{}}
	for i := range histograms[1:] {
		h := &histograms[i+1]
		name := strings.TrimPrefix(h.name, prefix)
		t.others[name], t.labels[name] = h.newVec(), len(h.labels)
	}
	for _, outcome := range []string{metrics.OutcomeOK, metrics.OutcomeFailed} {
		for p := range effects.PhaseCount {
			t.others[metrics.PutStage].WithLabelValues(effects.Phase(p).String(), outcome)
		}
	}
	return t
}

// Collectors returns the histograms.
func (t *Timer) Collectors() []prometheus.Collector {
	all := []prometheus.Collector{t.seconds}
	for i := range histograms[1:] {
		all = append(all, t.others[strings.TrimPrefix(histograms[i+1].name, prefix)])
	}
	return all
}

// Options returns the options of a node whose times the timer measures.
func (t *Timer) Options() []runtime.Option {
	return []runtime.Option{runtime.WithCommandTimer(t.Record), runtime.WithMetrics(t.RecordMetric),
		runtime.WithReports(t.transfers.recordReport)}
}

// RecordMetric is a runtime.MetricListener.
func (t *Timer) RecordMetric(o *metrics.Observation) {
	t.others[o.Histogram].WithLabelValues(o.Labels[:t.labels[o.Histogram]]...).Observe(time.Duration(o.Took).Seconds())
}

// Record is a runtime.CommandTimer.
func (t *Timer) Record(call string, code effects.Code, took time.Duration) {
	label := labelOf(call)
	t.seconds.WithLabelValues(label, code.String()).Observe(took.Seconds())
	t.transfers.recordCall(label, code, took)
}

// labelOf returns the value of the label call: the last word of the type of a raw command, such as *engine.Get, and
// otherwise the call with underscores.
func labelOf(call string) string {
	if i := strings.LastIndexByte(call, '.'); i >= 0 {
		call = call[i+1:]
	}
	return strings.ToLower(strings.ReplaceAll(call, " ", "_"))
}

// named is a number with a name.
type named struct {
	name string
	rows int
}

// sendReadings sends the readings of fsm/rank/metrics.
func sendReadings(to chan<- prometheus.Metric, all []metrics.Reading) {
	for i := range all {
		r := &all[i]
		m := readable[r.Metric]
		m.send(to, float64(r.Value), r.Labels[:len(m.labels)]...)
	}
}

// readable has the metrics of fsm/rank/metrics by their names there.
//
//kvferry:table
var readable = map[string]*metric{
	metrics.PagesCapacity: poolCapacity, metrics.Pages: poolStates, metrics.PagesLeased: leasedMost, metrics.PagesPinned: pinnedPages,
	metrics.TableRows: tableRowCount, metrics.Facts: factsTotal, metrics.FactItems: factItems, metrics.Transfers: transfers,
	metrics.TransferBytes: transferBytes,
}

// nodeCollector collects the metrics of a node.
type nodeCollector struct{ n *runtime.Node }

// Describe implements prometheus.Collector.
func (c nodeCollector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect implements prometheus.Collector.
func (c nodeCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), machineTimeout)
	defer cancel()
	s := c.n.Snapshot(ctx)
	for _, state := range runtime.NodeStates {
		nodeStates.send(to, oneIf(s.State == state), string(state))
	}
	pageBytes.send(to, float64(c.n.PageBytes()))
	commands.send(to, float64(s.CommandsInUse))
	sendReadings(to, s.Counters)
	for _, l := range c.n.TableLimits() {
		tableLimits.send(to, float64(l.Limit), l.Table)
	}
	sendCounters(to, controlDrops, []counted{{"malformed", s.Control.Malformed}, {"unrequested", s.Control.Unrequested},
		{"reply", s.Control.RepliesDropped}, {"request", s.Control.RequestsEvicted}})
	inboundConns.send(to, float64(s.Control.InboundConns))
	sendCounters(to, inboundEnded, []counted{{"evicted", s.Control.InboundEvicted}, {"expired", s.Control.InboundExpired},
		{"refused", s.Control.InboundRefused}})
	tlsConns.send(to, float64(s.Security.Open))
	sendCounters(to, tlsEvents, []counted{{"plain", s.Security.Plain}, {"refused", s.Security.Refused}, {"doubtful", s.Security.Doubtful},
		{"reload", s.Security.Reloads}, {"bad_reload", s.Security.BadReloads}, {"ended", s.Security.Ended}})
	checksumBytes.send(to, float64(s.Checksums.Bytes))
	corruptPages.send(to, float64(s.Checksums.Corrupt))
	droppedLines.send(to, float64(s.DroppedLogLines))
	if g, ok := c.n.Gateway(); ok {
		sendGateway(to, g)
	}
	if r, ok := c.n.Recording(); ok {
		recorderOn.send(to, oneIf(r.Ended == ""))
		recorderBytes.send(to, float64(r.Bytes))
		recorderSteps.send(to, float64(r.Steps))
	}
	stuck := !s.HasRank && (s.State == runtime.StateServing || s.State == runtime.StateDraining)
	if scrapeStale.send(to, oneIf(stuck)); !s.HasRank {
		return
	}
	sendReadings(to, metrics.AppendGauges(nil, &s.Rank))
}

// sendGateway sends the counts of a gateway.
func sendGateway(to chan<- prometheus.Metric, g runtime.CountingGateway) {
	g.VisitCounts(func(operation string, ok, failed uint64) {
		gatewayOps.send(to, float64(ok), operation, metrics.OutcomeOK)
		gatewayOps.send(to, float64(failed), operation, metrics.OutcomeFailed)
	})
	producers, consumers, agents := g.CountEngines()
	for _, x := range []struct {
		kind string
		now  int
	}{{"producer", producers}, {"consumer", consumers}, {"agent", agents}} {
		gatewayNow.send(to, float64(x.now), x.kind)
	}
}

// counted is a counter with the value of its label.
type counted struct {
	label string
	times uint64
}

func sendCounters(to chan<- prometheus.Metric, m *metric, all []counted) {
	for _, c := range all {
		m.send(to, float64(c.times), c.label)
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// directoryCollector collects the metrics of a directory.
type directoryCollector struct{ d *directory.Directory }

// Describe implements prometheus.Collector.
func (c directoryCollector) Describe(to chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, to)
}

// Collect implements prometheus.Collector.
func (c directoryCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), machineTimeout)
	defer cancel()
	f, answered := c.d.Snapshot(ctx)
	if scrapeStale.send(to, oneIf(!answered)); !answered {
		return
	}
	directoryLog.send(to, oneIf(!f.LogDown))
	for _, x := range []named{{"instances", f.Instances}, {"workers", f.Workers}, {"workers_of_other_directories", f.FromReplicas},
		{"locations", f.Locations}, {"syncs", f.Syncs}, {"hashes", f.Rows}, {"chunks", f.Chunks - f.Retired}} {
		directoryRows.send(to, float64(x.rows), x.name)
	}
	directoryMem.send(to, float64(f.Bytes))
}

// agentCollector collects the metrics of an agent's engines.
type agentCollector struct{ s *attach.Server }

// Describe implements prometheus.Collector.
func (c agentCollector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect implements prometheus.Collector.
func (c agentCollector) Collect(to chan<- prometheus.Metric) {
	n := c.s.Counts()
	agentEngines.send(to, float64(n.Engines))
	agentCalls.send(to, float64(n.Calls))
	agentHandles.send(to, float64(n.Holdings))
}

// traceCollector collects the metrics of traces.
type traceCollector struct {
	counts func() (exported, dropped uint64)
}

// Describe implements prometheus.Collector.
func (c traceCollector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect implements prometheus.Collector.
func (c traceCollector) Collect(to chan<- prometheus.Metric) {
	exported, dropped := c.counts()
	sendCounters(to, traceSpans, []counted{{"exported", exported}, {"dropped", dropped}})
}

// metricsTable returns the table of the metrics for docs/metrics.md.
func metricsTable() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	row := func(name, kind, help string, labels []string) {
		names := "–"
		if len(labels) > 0 {
			names = "`" + strings.Join(labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, kind, names, help)
	}
	for _, m := range allMetrics {
		kind := "gauge"
		if m.kind == prometheus.CounterValue {
			kind = "counter"
		}
		row(m.name, kind, m.help, m.labels)
	}
	for _, h := range histograms {
		row(h.name, "histogram", h.help, h.labels)
	}
	return b.String()
}
