// Package tracing exports the spans of a node or a proxy to an OpenTelemetry collector, by OTLP over HTTP.
//
//	tracer, err := tracing.Open(tracing.Config{Endpoint: "http://127.0.0.1:4318", Service: "my-engine"})
//	...
//	node, err := runtime.Open(ctx, cfg, runtime.WithTracer(tracer), ...)
//	...
//	defer tracer.Close(ctx)
//
// Spans that have ended go through a bounded queue to one goroutine, which makes and exports them. If the collector is slow
// or gone, the queue fills up and spans are dropped and counted; nothing else waits.
package tracing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/span"
)

// Config describes where spans go.
type Config struct {
	// Endpoint is the URL of the collector. If it is empty, the environment says it: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
	// which is the whole URL, or OTEL_EXPORTER_OTLP_ENDPOINT, to which /v1/traces is added as it is to an Endpoint without. The other
	// variables of the OTLP exporter hold too: headers, compression, certificates and the timeout.
	Endpoint string
	// Ratio is the share of the calls without a parent that begin a trace, from 0 to 1. A call with a parent is sampled if
	// its parent is.
	Ratio float64
	// Service and Version describe the program. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override them.
	Service, Version string
	Log              *slog.Logger // required
}

// The variables of the environment that name a collector.
const (
	endpointVariable       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
)

// tracesPath is where collectors take spans.
const tracesPath = "/v1/traces"

const (
	queueMax    = 8192
	batchMax    = 512
	exportEvery = time.Second
	exportTime  = 10 * time.Second // for a batch, with its retries
	quietTime   = time.Minute      // between two log lines about a collector that takes nothing
)

// A Tracer exports spans.
type Tracer struct {
	ratio    float64
	log      *slog.Logger
	queue    chan record
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	exporter sdk.SpanExporter
	ids      *spanIDs
	day      time.Time // the time of day when the clock of the machines showed boot
	boot     effects.Time
	batch    []sdk.ReadOnlySpan
	silentAt time.Time // when the log last said that the collector takes nothing

	closeOnce sync.Once
	closing   chan struct{}
	ended     chan struct{}
	exports   context.Context // ends when Close has waited long enough
	cancel    context.CancelFunc

	exported, dropped atomic.Uint64
}

var _ span.Tracer = (*Tracer)(nil)

// Counts returns how many spans were exported, and how many were dropped because they did not fit the queue or the
// collector did not take them.
func (t *Tracer) Counts() (exported, dropped uint64) { return t.exported.Load(), t.dropped.Load() }

// A record is what the queue takes: a span, or the report of a machine.
type record struct {
	span   span.Span
	fact   effects.Fact // 0: span is set
	code   effects.Code
	count  uint32
	peer   [4]byte
	report effects.Report
}

// Open returns a tracer. It returns nil without an error if neither the configuration nor the environment names a
// collector. The collector need not be there.
func Open(c Config) (*Tracer, error) {
	if c.Endpoint == "" && os.Getenv(endpointVariable) == "" && os.Getenv(tracesEndpointVariable) == "" {
		return nil, nil
	}
	var options []otlptracehttp.Option
	if c.Endpoint != "" {
		u, err := url.Parse(c.Endpoint)
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(u.Path, tracesPath) {
			u = u.JoinPath(tracesPath)
		}
		options = append(options, otlptracehttp.WithEndpointURL(u.String()))
	}
	ctx := context.Background()
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("the exporter of spans: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", c.Service),
		attribute.String("service.version", c.Version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("%w; look at OTEL_RESOURCE_ATTRIBUTES", err)
	}
	t := &Tracer{ratio: c.Ratio, log: c.Log, queue: make(chan record, queueMax), exporter: exporter, ids: &spanIDs{},
		closing: make(chan struct{}), ended: make(chan struct{})}
	t.exports, t.cancel = context.WithCancel(ctx)
	t.provider = sdk.NewTracerProvider(sdk.WithIDGenerator(t.ids), sdk.WithSampler(sdk.AlwaysSample()), sdk.WithResource(about),
		sdk.WithSpanProcessor(collector{t}))
	t.tracer = t.provider.Tracer("github.com/kvferry/kvferry")
	go t.run()
	return t, nil
}

// Start implements span.Tracer.
func (t *Tracer) Start(parent effects.TraceContext) (x effects.Trace) {
	if parent == (effects.TraceContext{}) {
		if t.ratio == 0 || rand.Float64() >= t.ratio {
			return x
		}
		for [16]byte(parent[:16]) == ([16]byte{}) {
			binary.NativeEndian.PutUint64(parent[:8], rand.Uint64())
			binary.NativeEndian.PutUint64(parent[8:16], rand.Uint64())
		}
		parent[24] = byte(trace.FlagsSampled)
	} else if !span.IsSampled(parent) {
		return x
	}
	x.Parent = [8]byte(parent[16:24])
	x.Context = parent
	id := newSpanID()
	copy(x.Context[16:24], id[:])
	return x
}

// End implements span.Tracer.
func (t *Tracer) End(s span.Span) {
	if s.Trace != (effects.Trace{}) {
		t.enqueue(record{span: s})
	}
}

// RecordReport implements span.Tracer.
func (t *Tracer) RecordReport(e *effects.Observe) {
	if span.IsSampled(e.Report.Trace.Context) {
		t.enqueue(record{fact: e.Fact, code: e.Code, count: e.Count, peer: [4]byte(e.Peer[:4]), report: *e.Report})
	}
}

func (t *Tracer) enqueue(r record) {
	select {
	case t.queue <- r:
	default:
		t.dropped.Add(1)
	}
}

// Close exports what the queue holds, and gives the collector until ctx ends to take it. Spans that end later are dropped.
func (t *Tracer) Close(ctx context.Context) error {
	t.closeOnce.Do(func() { close(t.closing) })
	select {
	case <-t.ended:
		return nil
	case <-ctx.Done():
		t.cancel()
		<-t.ended
		return context.Cause(ctx)
	}
}

// run makes spans of what the queue takes, and exports them in batches.
func (t *Tracer) run() {
	defer close(t.ended)
	defer t.cancel()
	ticker := time.NewTicker(exportEvery)
	defer ticker.Stop()
	t.compareClocks()
	for {
		select {
		case r := <-t.queue:
			if t.makeSpans(&r); len(t.batch) >= batchMax {
				t.export()
			}
		case <-ticker.C:
			t.compareClocks()
			t.export()
		case <-t.closing:
			t.drain()
			return
		}
	}
}

// drain exports what is left in the queue, and ends the exporter.
func (t *Tracer) drain() {
	for len(t.queue) > 0 {
		r := <-t.queue
		if t.makeSpans(&r); len(t.batch) >= batchMax {
			t.export()
		}
	}
	t.export()
	_ = t.provider.Shutdown(t.exports)
	_ = t.exporter.Shutdown(t.exports)
}

// export sends the batch to the collector.
func (t *Tracer) export() {
	if len(t.batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.exports, exportTime)
	defer cancel()
	if err := t.exporter.ExportSpans(ctx, t.batch); err != nil {
		t.dropped.Add(uint64(len(t.batch)))
		if time.Since(t.silentAt) > quietTime {
			t.silentAt = time.Now()
			t.log.Warn("the collector of traces does not take spans", "err", err, "spans", len(t.batch), "remedy",
				"check trace.endpoint and the collector; spans are dropped meanwhile")
		}
	} else {
		t.exported.Add(uint64(len(t.batch)))
	}
	clear(t.batch)
	t.batch = t.batch[:0]
}

// compareClocks compares the clock of the machines with the time of day. It takes the best of some comparisons, because the
// operating system may stop this goroutine between the readings of the two clocks.
func (t *Tracer) compareClocks() {
	shortest := effects.Duration(math.MaxInt64)
	for range clockReadings {
		before := bootTime()
		day := time.Now()
		if took := bootTime().Sub(before); took < shortest {
			shortest, t.day, t.boot = took, day, before.Add(took/2)
		}
	}
}

const clockReadings = 5

func bootTime() effects.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("BUG: the clock of the machines cannot be read: " + err.Error())
	}
	return effects.Time(ts.Nano())
}

// dayTime returns the time of day of an instant of the machines' clock.
func (t *Tracer) dayTime(at effects.Time) time.Time { return t.day.Add(time.Duration(at.Sub(t.boot))) }

// makeSpans makes the spans of a record.
func (t *Tracer) makeSpans(r *record) {
	if r.fact == 0 {
		t.makeSpan(&r.span, nil)
		return
	}
	what := &reportSpans[r.fact]
	if what.name == "" {
		return
	}
	s := span.Span{Name: what.name, Kind: what.kind, Trace: r.report.Trace, Began: t.dayTime(r.report.Began)}
	s.Ended = s.Began.Add(time.Duration(r.report.Phases.Sum()))
	if what.isChild {
		s.Trace.Parent = [8]byte(s.Trace.Context[16:24])
		id := newSpanID()
		copy(s.Trace.Context[16:24], id[:])
	}
	if r.code != effects.OK {
		s.Failed = r.code.String()
	}
	s.Attributes = [span.AttributesMax]span.Attribute{{Key: "kvferry.code", Text: r.code.String()},
		{Key: "kvferry.chunks", Number: int64(r.count)}, {Key: "kvferry.bytes", Number: int64(r.report.Bytes)},
		{Key: "kvferry.peer", Text: hex.EncodeToString(r.peer[:])}}
	t.makeSpan(&s, func(under context.Context) {
		at := s.Began
		for p, took := range r.report.Phases {
			if took == 0 {
				continue
			}
			t.ids.next = newSpanID()
			name := what.phases[p]
			if name == "" {
				name = effects.Phase(p).String()
			}
			_, child := t.tracer.Start(under, name, trace.WithTimestamp(at))
			at = at.Add(time.Duration(took))
			child.End(trace.WithTimestamp(at))
		}
	})
}

// A reportSpan says how the report of a fact becomes a span.
type reportSpan struct {
	name string // empty: reports of the fact are no spans
	kind span.Kind
	// isChild says that the context of the report is that of the span above: of the peer whose request it was, or of the
	// command that the work belongs to.
	isChild bool
	phases  [effects.PhaseCount]string // names of phases that differ from effects.Phase.String
}

//kvferry:table
var reportSpans = [effects.FactCount]reportSpan{
	effects.FactPutEnded:     {name: "kvferry.put", kind: span.Producer},
	effects.FactLayersEnded:  {name: "kvferry.push_layers", kind: span.Producer, phases: layersPhases},
	effects.FactLayersSent:   {name: "kvferry.put", kind: span.Producer, isChild: true},
	effects.FactRecalled:     {"kvferry.recalled", span.Server, true, answerPhases},
	effects.FactShared:       {"kvferry.share", span.Server, true, answerPhases},
	effects.FactReceived:     {name: "kvferry.register", kind: span.Client, phases: registerPhases},
	effects.FactWritten:      {name: "kvferry.lend", kind: span.Producer, phases: lendPhases},
	effects.FactRegistered:   {"kvferry.put", span.Producer, true, registeredPhases},
	effects.FactGrantTraced:  {"kvferry.receive", span.Consumer, true, receivePhases},
	effects.FactAllocRefused: {"kvferry.receive", span.Consumer, true, receivePhases},
}

var layersPhases = [effects.PhaseCount]string{effects.PhaseQueue: "compute", effects.PhaseWire: "finish"}

var (
	answerPhases     = [effects.PhaseCount]string{effects.PhaseQueue: "answer"}
	registerPhases   = [effects.PhaseCount]string{effects.PhaseQueue: "ask", effects.PhaseWire: "land"}
	lendPhases       = [effects.PhaseCount]string{effects.PhaseQueue: "wait_registrations"}
	registeredPhases = [effects.PhaseCount]string{effects.PhaseQueue: "wait_computed"}
)

var receivePhases = [effects.PhaseCount]string{effects.PhaseQueue: "wait_pages", effects.PhaseWire: "land"}

// makeSpan makes a span, and within it what inside makes.
func (t *Tracer) makeSpan(s *span.Span, inside func(under context.Context)) {
	ctx := context.Background()
	x := &s.Trace
	t.ids.trace, t.ids.next = trace.TraceID(x.Context[:16]), trace.SpanID(x.Context[16:24])
	if x.Parent != ([8]byte{}) {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: t.ids.trace,
			SpanID: trace.SpanID(x.Parent), TraceFlags: trace.TraceFlags(x.Context[24]), Remote: true}))
	}
	ctx, made := t.tracer.Start(ctx, s.Name, trace.WithTimestamp(s.Began), trace.WithSpanKind(kinds[s.Kind]))
	for _, a := range s.Attributes {
		switch {
		case a.Key == "":
		case a.Text != "":
			made.SetAttributes(attribute.String(a.Key, a.Text))
		default:
			made.SetAttributes(attribute.Int64(a.Key, a.Number))
		}
	}
	if s.Failed != "" {
		made.SetStatus(codes.Error, s.Failed)
	}
	if inside != nil {
		inside(ctx)
	}
	made.End(trace.WithTimestamp(s.Ended))
}

//kvferry:table
var kinds = [...]trace.SpanKind{span.Internal: trace.SpanKindInternal, span.Server: trace.SpanKindServer,
	span.Client: trace.SpanKindClient, span.Producer: trace.SpanKindProducer, span.Consumer: trace.SpanKindConsumer}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// spanIDs gives the next span the ids that it was named with when it began. Only the goroutine of the tracer uses it.
type spanIDs struct {
	trace trace.TraceID
	next  trace.SpanID
}

// NewIDs implements sdk.IDGenerator.
func (i *spanIDs) NewIDs(context.Context) (trace.TraceID, trace.SpanID) { return i.trace, i.next }

// NewSpanID implements sdk.IDGenerator.
func (i *spanIDs) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return i.next }

// A collector adds the spans that have ended to the batch.
type collector struct{ t *Tracer }

// OnStart implements sdk.SpanProcessor.
func (collector) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd implements sdk.SpanProcessor.
func (c collector) OnEnd(s sdk.ReadOnlySpan) { c.t.batch = append(c.t.batch, s) }

// ForceFlush implements sdk.SpanProcessor.
func (collector) ForceFlush(context.Context) error { return nil }

// Shutdown implements sdk.SpanProcessor.
func (collector) Shutdown(context.Context) error { return nil }
