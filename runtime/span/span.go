// Package span says what spans a node and a proxy report, without the library that exports them: package runtime/tracing
// implements [Tracer] over OpenTelemetry, and other programs may implement it over something else.
package span

import (
	"encoding/hex"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A Tracer takes spans that have ended. Its methods never block, and may be called by several goroutines.
type Tracer interface {
	// Start names a new span below a parent; without a parent, the span begins a trace of its own. The result is zero if
	// the span is not sampled: then nothing is recorded below it, and nothing about it is sent to peers.
	Start(parent effects.TraceContext) effects.Trace
	// End records a span that Start has named. The tracer keeps nothing of Attributes after the call.
	End(s Span)
	// RecordReport records the span that a machine reports with a fact. The tracer keeps nothing of the argument.
	RecordReport(e *effects.Observe)
}

// A Span is a piece of work that has ended.
type Span struct {
	Name         string
	Kind         Kind
	Trace        effects.Trace
	Began, Ended time.Time
	Failed       string // why the work failed; empty: it did not
	Attributes   [AttributesMax]Attribute
}

// AttributesMax is how many attributes a span may have. Those without a key are not there.
const AttributesMax = 4

// An Attribute is a text or, if that is empty, a number.
type Attribute struct {
	Key    string
	Text   string
	Number int64
}

// A Kind is the role of a span, as OpenTelemetry defines them.
type Kind uint8

// The kinds.
const (
	Internal Kind = iota
	Server
	Client
	Producer
	Consumer
)

const flagSampled = 1

// IsSampled reports whether the spans below a context are recorded.
func IsSampled(c effects.TraceContext) bool { return c[24]&flagSampled != 0 }

// ParseParent returns the context of a traceparent header (W3C Trace Context), or zero if the header is not valid.
func ParseParent(header string) (c effects.TraceContext) {
	header = strings.TrimSpace(header)
	const length = 2 + 1 + 32 + 1 + 16 + 1 + 2 // Later versions may have more behind another dash.
	if len(header) < length || header[2] != '-' || header[35] != '-' || header[52] != '-' || header != strings.ToLower(header) {
		return c
	}
	version := header[:2]
	if _, err := hex.DecodeString(version); err != nil || version == "ff" ||
		len(header) > length && (version == "00" || header[length] != '-') {
		return c
	}
	var parsed effects.TraceContext
	for _, part := range []struct {
		to   []byte
		text string
	}{{parsed[:16], header[3:35]}, {parsed[16:24], header[36:52]}, {parsed[24:], header[53:55]}} {
		if _, err := hex.Decode(part.to, []byte(part.text)); err != nil {
			return c
		}
	}
	if [16]byte(parsed[:16]) == [16]byte{} || [8]byte(parsed[16:24]) == [8]byte{} {
		return c
	}
	return parsed
}

// FormatParent returns the traceparent header of a context that is not zero.
func FormatParent(c effects.TraceContext) string {
	return "00-" + hex.EncodeToString(c[:16]) + "-" + hex.EncodeToString(c[16:24]) + "-" + hex.EncodeToString(c[24:])
}
