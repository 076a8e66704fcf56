package tracing_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/span"
	"github.com/kvferry/kvferry/runtime/tracing"
)

// benchPushes is how many pushes follow each other before it is another pair's turn.
const benchPushes = 50

// BenchmarkTraces takes turns between pushes, each from the engine's Put to the chunk in the hands of the receiver's engine:
// without tracers, with tracers and requests that are not sampled, and with requests that all are. It reports the median
// time of a push, and the CPU time of the process, in which the collector is, too.
func BenchmarkTraces(b *testing.B) {
	at := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer at.Close()
	sampled := span.ParseParent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	names := []string{"off", "unsampled", "sampled"}
	var pairs []planetest.Alternative
	// Two pairs of nodes of each kind, because pairs of one kind differ by more than traces cost.
	for _, name := range []string{"off", "unsampled", "sampled", "sampled", "unsampled", "off"} {
		var options [2][]runtime.Option
		if name != "off" {
			for i := range options {
				tracer, err := tracing.Open(tracing.Config{Endpoint: at.URL, Service: "n", Log: discard})
				if err != nil {
					b.Fatal(err)
				}
				defer func() {
					if err := tracer.Close(b.Context()); err != nil {
						b.Error(err)
					}
					if _, dropped := tracer.Counts(); dropped > 0 {
						b.Errorf("%d spans were dropped", dropped)
					}
				}()
				options[i] = []runtime.Option{runtime.WithTracer(tracer)}
			}
		}
		parent := effects.TraceContext{}
		if name == "sampled" {
			parent = sampled
		}
		from, to := openNode(b, "sender", options[0]...), openNode(b, "receiver", options[1]...)
		pages, err := from.Sender().Reserve(b.Context(), 1)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = pages.Release(b.Context()) })
		round := 0
		pairs = append(pairs, planetest.Alternative{Name: name, Move: func(*rand.Rand) time.Duration {
			times := make([]time.Duration, benchPushes)
			for i := range times {
				round++
				keys, begun := []string{fmt.Sprintf("m@1@0@%x@bfloat16", round)}, time.Now()
				if _, err := from.Sender().Put(b.Context(), runtime.Put{Peer: peerOf(to), Request: "r", Keys: keys, Pages: pages,
					Trace: parent}); err != nil {
					b.Fatal(err)
				}
				got, err := to.Receiver().Get(b.Context(), runtime.Get{Request: "r", Keys: keys, Timeout: testTimeout, Trace: parent})
				if err != nil {
					b.Fatal(err)
				}
				times[i] = time.Since(begun)
				if err := got.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(times)
			return times[benchPushes/2]
		}})
	}
	t := planetest.TimeAlternatives(b, pairs)
	for _, name := range names {
		b.ReportMetric(t.Median(name)*1e6, name+"-µs")
		b.ReportMetric(t.CPU(name)*1e6/benchPushes, name+"-cpu-µs")
	}
}
