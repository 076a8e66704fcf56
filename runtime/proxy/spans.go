package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/span"
)

const parentHeader = "Traceparent"

// A requestSpan is the span of a request that the proxy serves or sends. The zero value is that of a request that is not
// sampled.
type requestSpan struct {
	tracer span.Tracer
	span   span.Span
}

// startSpan begins a span below a parent.
func (p *Proxy) startSpan(name string, kind span.Kind, parent effects.TraceContext) requestSpan {
	if p.config.Tracer == nil {
		return requestSpan{}
	}
	t := p.config.Tracer.Start(parent)
	if t == (effects.Trace{}) {
		return requestSpan{}
	}
	return requestSpan{p.config.Tracer, span.Span{Name: name, Kind: kind, Trace: t, Began: time.Now()}}
}

// end ends the span. The error says why the request failed, and may be nil.
func (s *requestSpan) end(id string, err error) {
	if s.tracer == nil {
		return
	}
	s.span.Ended = time.Now()
	s.span.Attributes[0] = span.Attribute{Key: "kvferry.request", Text: id}
	if err != nil {
		s.span.Failed = errorKind(err)
	}
	s.tracer.End(s.span)
}

// errorKind describes an error in words of this program: texts of errors may have addresses and what a client wrote.
func errorKind(err error) string {
	var status statusError
	switch {
	case errors.As(err, &status):
		return http.StatusText(int(status))
	case errors.Is(err, errNotSent):
		return "no kv_transfer_params"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "no answer"
}

// serveSpan begins the span of a request of a client, below the span that the client states. Requests to engines are below
// the new span.
func (p *Proxy) serveSpan(c *call, path string, r *http.Request) requestSpan {
	s := p.startSpan(http.MethodPost+" "+path, span.Server, span.ParseParent(r.Header.Get(parentHeader)))
	c.trace = s.span.Trace.Context
	return s
}

// engineSpan begins the span of a request to an engine, which continues the trace. The result has the headers for it.
func (p *Proxy) engineSpan(c call, name string) (call, requestSpan) {
	if c.trace == (effects.TraceContext{}) {
		return c, requestSpan{}
	}
	s := p.startSpan(name, span.Client, c.trace)
	if s.tracer != nil {
		c.headers = c.headers.Clone()
		c.headers.Set(parentHeader, span.FormatParent(s.span.Trace.Context))
	}
	return c, s
}
