package protocol

import "strconv"

// A KVAdmitMsg reports to a controller that a worker has stored a chunk, on the pull socket. There is no reply.
//
//wire:message json
type KVAdmitMsg struct {
	Worker   `wire:",inline"`
	Key      ChunkHash `wire:"key"`
	Location []byte    `wire:"location"`         // the backend that has the chunk
	Seq      uint64    `wire:"seq_num,optional"` // the operation's number, from 0; revisions without numbers send 0
}

// A KVEvictMsg reports that a worker has evicted a chunk.
//
//wire:message json
type KVEvictMsg KVAdmitMsg

// A BatchedKVOperationMsg reports several operations, in the order in which they happened.
//
//wire:message json
type BatchedKVOperationMsg struct {
	Worker      `wire:",inline"`
	Location    []byte        `wire:"location"` // the backend of all operations
	Operations  []KVOperation `wire:"operations,max=OperationCount"`
	Incarnation UUID          `wire:"kvf_inc,omitzero"` // the worker's incarnation; zero: not stated
}

// A KVOperation reports that one chunk was stored or evicted.
//
//wire:map name=KVOpEvent title=an_operation
type KVOperation struct {
	Type OpType    `wire:"op_type"`
	Key  ChunkHash `wire:"key"`
	Seq  uint64    `wire:"seq_num"` // the operation's number: from 0, without gaps
}

// An OpType is a kind of KVOperation.
type OpType uint8

// The types.
const (
	OpAdmit OpType = iota
	OpEvict
	opTypes
)

var opNames = [opTypes]string{"admit", "evict"}

// String returns the type as it stands on the wire.
func (t OpType) String() string {
	if t >= opTypes {
		return "OpType(" + strconv.Itoa(int(t)) + ")"
	}
	return opNames[t]
}

// readOpType reads the name of a known type.
func (r *reader) readOpType() OpType {
	at := r.off
	name := r.readText()
	for t := range opTypes {
		if opNames[t] == string(name) {
			return t
		}
	}
	r.fail(DecodeUnknownValue, at, quoteBytes(name), "admit or evict")
	return OpAdmit
}
