package effects

// A TraceContext names a span of a distributed trace as W3C Trace Context does: 16 bytes of the trace, 8 bytes of the span
// and a byte of flags. The zero value names none. Machines pass it on and decide nothing by it.
type TraceContext [25]byte

// TraceFromWire returns the context that a message or a call carries. A context of another length is none, so that a
// peer's mistake about traces harms nothing else.
func TraceFromWire(b []byte) (t TraceContext) {
	if len(b) == len(t) {
		copy(t[:], b)
	}
	return t
}

// Wire returns the context as messages carry it: nothing if it is zero. The bytes are those of t.
func (t *TraceContext) Wire() []byte {
	if *t == (TraceContext{}) {
		return nil
	}
	return t[:]
}

// A Trace says under which span of a trace an operation is reported, if its request is traced.
type Trace struct {
	Context TraceContext // of the operation's own span, or of the span of the peer that caused it
	Parent  [8]byte      // the span above the operation's own; zero: none, or that of the peer
}
