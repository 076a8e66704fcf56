package protocol

import (
	"slices"
	"strconv"
)

// A KVAdmitMsg tells a controller that a worker has a chunk, on the pull socket. It is not answered.
type KVAdmitMsg struct {
	Worker
	Key      ChunkHash
	Location []byte // the backend that has it
	Seq      uint64 // the operation's number, from 0; 0 also of revisions without numbers
}

// A KVEvictMsg tells that it has it no more.
type KVEvictMsg KVAdmitMsg

// A BatchedKVOperationMsg tells of several chunks at once, in the order in which they came and went.
type BatchedKVOperationMsg struct {
	Worker
	Location    []byte // the backend that all of them are about
	Operations  []KVOperation
	Incarnation UUID // kvf_inc: the worker's; zero is unsaid
}

// A KVOperation is one chunk that came or went.
type KVOperation struct {
	Type OpType
	Key  ChunkHash
	Seq  uint64 // the operation's number, from 0, one more than that before it
}

// An OpType says whether a chunk came or went.
type OpType uint8

// The operations.
const (
	OpAdmit OpType = iota
	OpEvict
	opTypes
)

var opNames = [opTypes]string{"admit", "evict"}

// String returns the operation as it stands on the wire.
func (t OpType) String() string {
	if t >= opTypes {
		return "OpType(" + strconv.Itoa(int(t)) + ")"
	}
	return opNames[t]
}

// Fields of KVAdmitMsg and KVEvictMsg.
const (
	_           = iota // the tag
	admitWorker        // the first field of Worker
	_
	admitKey
	admitLocation
	admitSeq
)

// Fields of BatchedKVOperationMsg, and of an operation.
const (
	_           = iota // the tag
	batchWorker        // the first field of Worker
	_
	batchLocation
	batchOperations
	batchIncarnation
)

const (
	opType = iota
	opKey
	opSeq
)

var (
	admitNames  = []string{tagField, "instance_id", "worker_id", "key", "location", "seq_num"}
	admitSchema = schema{
		name:     "KVAdmitMsg",
		tagged:   true,
		names:    admitNames,
		required: 1<<admitSeq - 1<<admitWorker,
	}
	evictSchema = schema{name: "KVEvictMsg", tagged: true, names: admitNames, required: admitSchema.required}
	batchSchema = schema{
		name:     "BatchedKVOperationMsg",
		tagged:   true,
		names:    []string{tagField, "instance_id", "worker_id", "location", "operations", "kvf_inc"},
		required: 1<<batchIncarnation - 1<<batchWorker,
	}
	operationSchema = schema{
		name:     "KVOpEvent",
		names:    []string{"op_type", "key", "seq_num"},
		required: 1<<opType | 1<<opKey | 1<<opSeq,
	}
)

// Append appends the message to b.
func (m *KVAdmitMsg) Append(b []byte) []byte { return m.append(b, TagKVAdmitMsg) }

// Append appends the message to b.
func (m *KVEvictMsg) Append(b []byte) []byte { return (*KVAdmitMsg)(m).append(b, TagKVEvictMsg) }

func (m *KVAdmitMsg) append(b []byte, tag Tag) []byte {
	b = m.appendWorker(appendTag(b, tag, 5))
	b = appendHash(appendStr(b, "key"), m.Key)
	b = appendStr(appendStr(b, "location"), m.Location)
	return appendUint(appendStr(b, "seq_num"), m.Seq)
}

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *KVAdmitMsg) Decode(b []byte, lim *Limits) error {
	return m.decode(b, lim, TagKVAdmitMsg, &admitSchema)
}

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *KVEvictMsg) Decode(b []byte, lim *Limits) error {
	return (*KVAdmitMsg)(m).decode(b, lim, TagKVEvictMsg, &evictSchema)
}

func (m *KVAdmitMsg) decode(b []byte, lim *Limits, tag Tag, s *schema) error {
	*m = KVAdmitMsg{}
	r, from := openEither(b, lim)
	r.expectTag(tag)
	w := fields{r: &r, schema: s, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case admitKey:
			m.Key = r.hash()
		case admitLocation:
			m.Location = r.text()
		case admitSeq:
			m.Seq = r.uint64()
		default:
			m.decodeWorker(&r, w.at-admitWorker)
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}

// Append appends the message to b.
func (m *BatchedKVOperationMsg) Append(b []byte) []byte {
	b = appendTag(b, TagBatchedKVOperationMsg, 4+ones(m.Incarnation != UUID{}))
	b = m.appendWorker(b)
	b = appendStr(appendStr(b, "location"), m.Location)
	b = appendArrayHeader(appendStr(b, "operations"), len(m.Operations))
	for i := range m.Operations {
		op := &m.Operations[i]
		b = appendMapHeader(b, len(operationSchema.names))
		b = appendStr(appendStr(b, "op_type"), op.Type.String())
		b = appendHash(appendStr(b, "key"), op.Key)
		b = appendUint(appendStr(b, "seq_num"), op.Seq)
	}
	return appendNonZeroUUID(b, "kvf_inc", m.Incarnation)
}

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *BatchedKVOperationMsg) Decode(b []byte, lim *Limits) error {
	*m = BatchedKVOperationMsg{Operations: m.Operations[:0]}
	r, from := openEither(b, lim)
	r.expectTag(TagBatchedKVOperationMsg)
	w := fields{r: &r, schema: &batchSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case batchLocation:
			m.Location = r.text()
		case batchOperations:
			m.Operations = r.operations(m.Operations)
		case batchIncarnation:
			m.Incarnation = r.uuid()
		default:
			m.decodeWorker(&r, w.at-batchWorker)
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}

// operations appends a list to vs.
func (r *reader) operations(vs []KVOperation) []KVOperation {
	message, field := r.message, r.field
	n := r.arrayUpTo(r.lim.OperationCount, "OperationCount")
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.operation())
		r.message, r.field = message, field
	}
	return vs
}

func (r *reader) operation() (op KVOperation) {
	w := fields{r: r, schema: &operationSchema, depth: 4}
	for w.open(); w.next(); {
		switch w.at {
		case opType:
			op.Type = r.opType()
		case opKey:
			op.Key = r.hash()
		case opSeq:
			op.Seq = r.uint64()
		}
	}
	w.close()
	return op
}

func (r *reader) opType() OpType {
	at := r.off
	name := r.text()
	for t := range opTypes {
		if opNames[t] == string(name) {
			return t
		}
	}
	r.fail(DecodeUnknownValue, at, quote(name), "admit or evict")
	return OpAdmit
}
