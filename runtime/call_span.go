package runtime

import (
	"errors"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/span"
)

// startSpan names the span of a command below the span of its caller, which may be zero.
func (n *Node) startSpan(parent effects.TraceContext) (none effects.Trace) {
	if n.tracer == nil {
		return none
	}
	return n.tracer.Start(parent)
}

// A callSpan is the span of a call in progress.
type callSpan struct {
	tracer span.Tracer // nil: the call is not sampled
	trace  effects.Trace
	name   string
	began  time.Time
}

// startCall begins the span of a call. The name is that of the span.
func (n *Node) startCall(name string, parent effects.TraceContext) callSpan {
	if t := n.startSpan(parent); t != (effects.Trace{}) {
		return callSpan{n.tracer, t, name, time.Now()}
	}
	return callSpan{}
}

// end ends the span of a call, which took this number of chunks for a request.
func (c *callSpan) end(request string, chunks int, err error) {
	if c.tracer == nil {
		return
	}
	code := effects.OK
	if err != nil {
		code = effects.Failed
		if e := (*Error)(nil); errors.As(err, &e) {
			code = e.Code
		}
	}
	s := span.Span{Name: c.name, Trace: c.trace, Began: c.began, Ended: time.Now(), Attributes: [span.AttributesMax]span.Attribute{
		{Key: "kvferry.code", Text: code.String()}, {Key: "kvferry.chunks", Number: int64(chunks)}, {Key: "kvferry.request", Text: request}}}
	if code != effects.OK {
		s.Failed = code.String()
	}
	c.tracer.End(s)
}
