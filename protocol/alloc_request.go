package protocol

// An AllocRequest asks a receiver for one page per key: sender to receiver, answered by an AllocResponse.
//
//wire:message
type AllocRequest struct {
	// Keys are the keys of the batch as text, one per chunk. Decode checks only the length and encoding of the keys;
	// CheckKey and ParseKey check the rest.
	Keys [][]byte `wire:"keys,as=keys"`
	// Format, Shape and Dtype describe the first chunk of the batch. That is a full chunk, unless the batch has a single,
	// partial chunk: Shape then has the partial number of tokens.
	Format Format `wire:"fmt"`
	Shape  Shape  `wire:"shape"`
	Dtype  Dtype  `wire:"dtype"`
	// LastChunkTokens is the number of tokens in the chunk of the last key.
	LastChunkTokens uint32 `wire:"last_chunk_toks"`

	// WithAsync is true if the three fields of the asynchronous revisions are on the wire. Otherwise the fields are zero.
	WithAsync   bool   `wire:"-"`
	RequestID   []byte `wire:"req_id,with=WithAsync"`        // the proxy's id of the request
	IsLastBatch bool   `wire:"is_last_batch,with=WithAsync"` // no batch of this request follows
	// TotalChunks is the number of chunks of all batches; the first asynchronous revision has no such field.
	TotalChunks uint32 `wire:"total_chunks,with=WithAsync"`

	HasExt bool     `wire:"-"`
	Ext    AllocExt `wire:",ext"`
}

// AllocExt is the extension of an AllocRequest. A message without keys is a request of its own, which commits and
// aborts grants; the sender sends such a message only to peers that announced CapCommit. Format, Shape and Dtype are
// required even then.
type AllocExt struct {
	Version     uint32 `wire:"kvf_v"`            // version of these fields; its presence sets HasExt
	Incarnation UUID   `wire:"kvf_inc,omitzero"` // the sender's incarnation
	To          UUID   `wire:"kvf_to,omitzero"`  // the receiver's incarnation, as far as the sender knows
	Operation   uint64 `wire:"kvf_op,omitzero"`  // number of the operation, the same in each of its attempts
	Attempt     uint32 `wire:"kvf_try,omitzero"` // number of the attempt
	// PatienceNS is the deadline budget: how long after receipt a reply is of use; nanoseconds.
	PatienceNS uint64 `wire:"kvf_patience_ns,omitzero"`
	Request    []byte `wire:"kvf_req,omitzero"` // the proxy's id of the request, may be empty

	Commit []uint64 `wire:"kvf_commit,omitzero"` // grants whose writes are settled and complete
	Abort  []uint64 `wire:"kvf_abort,omitzero"`  // grants that are given back, unwritten or partly written, and settled
	Code   uint32   `wire:"kvf_code,omitzero"`   // why grants are aborted; 0 if the sender does not say
	Reason []byte   `wire:"kvf_reason,omitzero"` // Code as text for people

	// Layers is the number of layers of a chunk in a layerwise push; the keys are then keys of layers, and
	// LastChunkTokens counts tokens of all layers. 0: the keys are keys of whole chunks.
	Layers uint32 `wire:"kvf_layers,omitzero"`
	// Epoch is the epoch of the request in a layerwise push. Layers of two epochs never make one chunk.
	Epoch uint32 `wire:"kvf_epoch,omitzero"`
	// Opened is the grant under which the first layers of these chunks were written; 0: no layer was written. The field
	// says which layers the sender counts on. Example: the network delays a message of an earlier epoch, which opens the
	// chunk again under another grant; that grant's chunk does not have the sender's first layers.
	Opened uint64 `wire:"kvf_opened,omitzero"`
	// Sums are the checksums (effects.Sum) of the chunks' valid bytes, or of the layers'; 0: none is known. Empty: none.
	Sums []uint64 `wire:"kvf_sums,omitzero,len=keys|0"`
	// Trace is the context of the sender's span in a distributed trace (effects.TraceContext). Empty: none. A reader ignores
	// it if it does not have the length of one.
	Trace []byte `wire:"kvf_trace,omitzero,bin=MessageBytes"`
	// Carried holds the chunks themselves, concatenated in the order of Keys, each as long as the chunk's valid bytes.
	// Empty: the sender will write the chunks into the granted pages. The field is the last field, so that the carried
	// bytes end the message. The sender uses it only with peers that accept so many bytes (HelloExt.Carries).
	Carried []byte `wire:"kvf_bytes,omitzero,bin=MessageBytes"`
}

// Layout returns the layout of the chunk that the message describes.
func (m *AllocRequest) Layout() Layout { return Layout{m.Format, m.Shape, m.Dtype} }
