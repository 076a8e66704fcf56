package protocol

// An ErrorMsg answers what has no other answer: a controller's, to what it cannot read or does not serve, and a
// worker's, to each WorkerControlMsg that it does not carry out.
type ErrorMsg struct {
	Error []byte // for people
}

// Fields of ErrorMsg.
const (
	_ = iota // the tag
	errorError
)

var errorSchema = schema{name: "ErrorMsg", tagged: true, names: []string{tagField, "error"}, required: 1 << errorError}

// Append appends the message to b.
func (m *ErrorMsg) Append(b []byte) []byte {
	return appendStr(appendStr(appendTag(b, TagErrorMsg, 1), "error"), m.Error)
}

// Decode fills m from b, which may be JSON; Error is a view. The error is a *DecodeError.
func (m *ErrorMsg) Decode(b []byte, lim *Limits) error {
	*m = ErrorMsg{}
	r, from := openEither(b, lim)
	r.expectTag(TagErrorMsg)
	w := fields{r: &r, schema: &errorSchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == errorError {
			m.Error = r.text()
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}
