package protocol

// An AscendQueryDonePortMsg asks an owner where it takes dones: on its lookup socket.
type AscendQueryDonePortMsg struct{}

// An AscendQueryDonePortRetMsg answers it.
type AscendQueryDonePortRetMsg struct {
	DoneURL []byte // host:port, without a scheme; another after each start of the owner
}

// Fields of AscendQueryDonePortRetMsg.
const (
	_ = iota // the tag
	donePortURL
)

var (
	donePortSchema      = schema{name: "AscendQueryDonePortMsg", tagged: true, names: []string{tagField}}
	donePortReplySchema = schema{
		name:     "AscendQueryDonePortRetMsg",
		tagged:   true,
		names:    []string{tagField, "done_url"},
		required: 1 << donePortURL,
	}
)

// Append appends the message to b.
func (m *AscendQueryDonePortMsg) Append(b []byte) []byte {
	return appendTag(b, TagAscendQueryDonePortMsg, 0)
}

// Decode checks that b is this message. The error is a *DecodeError.
func (m *AscendQueryDonePortMsg) Decode(b []byte, lim *Limits) error {
	return decodeBare(b, lim, TagAscendQueryDonePortMsg, &donePortSchema)
}

// Append appends the message to b.
func (m *AscendQueryDonePortRetMsg) Append(b []byte) []byte {
	b = appendTag(b, TagAscendQueryDonePortRetMsg, 1)
	return appendStr(appendStr(b, "done_url"), m.DoneURL)
}

// Decode fills m from b; DoneURL is a view of it. The error is a *DecodeError.
func (m *AscendQueryDonePortRetMsg) Decode(b []byte, lim *Limits) error {
	*m = AscendQueryDonePortRetMsg{}
	r := open(b, lim)
	r.expectTag(TagAscendQueryDonePortRetMsg)
	w := fields{r: &r, schema: &donePortReplySchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == donePortURL {
			m.DoneURL = r.text()
		}
	}
	w.close()
	r.end()
	return r.result()
}
