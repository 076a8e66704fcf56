package protocol

// A WorkerControlMsg is what a controller asks of a worker on the worker's own socket: to clear, pin, compress,
// decompress or move what it has, whether it is well, whether something has ended. A worker that does nothing of that
// answers with an ErrorMsg; one that does not answer leaves the controller's socket stuck.
//
// What a request says beyond its event is skipped, and Append writes none of it: this is for answering, not for asking.
type WorkerControlMsg struct {
	Kind    Tag // one of those from TagClearWorkerMsg to TagCheckFinishWorkerMsg
	EventID []byte
}

// Fields of WorkerControlMsg.
const (
	_ = iota // the tag
	controlEventID
)

var controlNames = []string{tagField, "worker_event_id"}

// controlSchemas holds one for each kind, as each has a name of its own.
var controlSchemas = func() (all [TagCheckFinishWorkerMsg - TagClearWorkerMsg + 1]schema) {
	for i := range all {
		all[i] = schema{
			name:     tagNames[int(TagClearWorkerMsg)+i],
			tagged:   true,
			names:    controlNames,
			required: 1 << controlEventID,
		}
	}
	return all
}()

// control says whether t is a request to a worker.
func (t Tag) control() bool { return t >= TagClearWorkerMsg && t <= TagCheckFinishWorkerMsg }

// Append appends the message to b, as far as it is known.
func (m *WorkerControlMsg) Append(b []byte) []byte {
	if !m.Kind.control() {
		panic("BUG: encoding a request to a worker of no kind")
	}
	return appendStr(appendStr(appendTag(b, m.Kind, 1), "worker_event_id"), m.EventID)
}

// Decode fills m from b, which may be JSON; EventID is a view. The error is a *DecodeError.
func (m *WorkerControlMsg) Decode(b []byte, lim *Limits) error {
	*m = WorkerControlMsg{Kind: TagClearWorkerMsg}
	r, from := openEither(b, lim)
	tag, at := r.findTag()
	if tag.control() {
		m.Kind = tag
	} else if r.ok() {
		r.message, r.field = "WorkerControlMsg", tagField
		r.fail(DecodeWrongTag, at, tag.String(), "a request to a worker")
	}
	w := fields{r: &r, schema: &controlSchemas[m.Kind-TagClearWorkerMsg], depth: 2}
	for w.open(); w.next(); {
		if w.at == controlEventID {
			m.EventID = r.text()
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}
