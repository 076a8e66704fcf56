package protocol

// A Worker identifies the worker that sends a message to the controller or that a message is about: one rank of one
// instance.
type Worker struct {
	InstanceID []byte `wire:"instance_id"`
	WorkerID   uint32 `wire:"worker_id"` // the tensor-parallel rank
}

// A Listener is the address on which a worker takes the controller's requests.
type Listener struct {
	IP   []byte `wire:"ip"`
	Port uint16 `wire:"port"`
}

// An ErrorMsg is the reply to a message that has no other reply. A controller sends an ErrorMsg if it cannot decode or
// does not serve a message; a worker sends an ErrorMsg for each WorkerControlMsg that the worker does not carry out.
//
//wire:message json
type ErrorMsg struct {
	Error []byte `wire:"error"` // for people
}

// A WorkerControlMsg is a request of a controller on the worker's own socket: to clear, pin, compress, decompress or
// move chunks, to report the worker's health, or to report whether an event has finished. A worker that supports none
// of these requests replies with an ErrorMsg; a worker that does not reply blocks the controller's socket.
//
// Decode reads only the event of a request, and Append writes nothing else: the type serves workers, not controllers.
// The codec is written by hand, because seven tags share the type.
//
//wire:tag TagClearWorkerMsg ClearWorkerMsg &controlSchemas[0] &WorkerControlMsg{Kind: t}
//wire:tag TagPinWorkerMsg PinWorkerMsg &controlSchemas[1] &WorkerControlMsg{Kind: t}
//wire:tag TagCompressWorkerMsg CompressWorkerMsg &controlSchemas[2] &WorkerControlMsg{Kind: t}
//wire:tag TagDecompressWorkerMsg DecompressWorkerMsg &controlSchemas[3] &WorkerControlMsg{Kind: t}
//wire:tag TagMoveWorkerMsg MoveWorkerMsg &controlSchemas[4] &WorkerControlMsg{Kind: t}
//wire:tag TagHealthWorkerMsg HealthWorkerMsg &controlSchemas[5] &WorkerControlMsg{Kind: t}
//wire:tag TagCheckFinishWorkerMsg CheckFinishWorkerMsg &controlSchemas[6] &WorkerControlMsg{Kind: t}
type WorkerControlMsg struct {
	Kind    Tag    `wire:"-"` // one of the tags from TagClearWorkerMsg to TagCheckFinishWorkerMsg
	EventID []byte `wire:"worker_event_id"`
}

// controlEventID is the index of the field in each of controlSchemas.
const controlEventID = 1

// controlSchemas holds a schema for each kind, because errors name the kind.
var controlSchemas = func() (all [TagCheckFinishWorkerMsg - TagClearWorkerMsg + 1]schema) {
	for i := range all {
		all[i] = schema{
			name:     tagNames[int(TagClearWorkerMsg)+i],
			tagged:   true,
			names:    []string{tagField, "worker_event_id"},
			required: 1 << controlEventID,
		}
	}
	return all
}()

// isWorkerControl reports whether t is the tag of a request to a worker.
func (t Tag) isWorkerControl() bool { return t >= TagClearWorkerMsg && t <= TagCheckFinishWorkerMsg }

// Append appends the message to b, with the event as its only field.
func (m *WorkerControlMsg) Append(b []byte) []byte {
	if !m.Kind.isWorkerControl() {
		panic("BUG: a WorkerControlMsg is encoded with the tag of another message")
	}
	return appendStr(appendStr(appendTag(b, m.Kind, 1), "worker_event_id"), m.EventID)
}

// Decode fills m from b, which may be JSON; EventID is a view. The error is a *DecodeError.
func (m *WorkerControlMsg) Decode(b []byte, lim *Limits) error {
	*m = WorkerControlMsg{Kind: TagClearWorkerMsg}
	r, from := newEitherReader(b, lim)
	tag, at := r.findTag()
	if tag.isWorkerControl() {
		m.Kind = tag
	} else if r.ok() {
		r.message, r.field = "WorkerControlMsg", tagField
		r.fail(DecodeWrongTag, at, tag.String(), "a request to a worker")
	}
	w := mapReader{r: &r, schema: &controlSchemas[m.Kind-TagClearWorkerMsg], depth: 2}
	for w.readHeader(); w.nextField(); {
		if w.at == controlEventID {
			m.EventID = r.readText()
		}
	}
	w.checkRequired()
	r.expectEnd()
	return from.result(&r)
}
