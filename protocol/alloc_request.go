package protocol

// An AllocRequest asks a receiver for pages for a batch of keys: sender to receiver, answered by
// one AllocResponse.
type AllocRequest struct {
	// Keys are the batch's keys as text, one per chunk. Decode checks their length alone; CheckKey
	// and ParseKey do the rest.
	Keys [][]byte
	// Format, Shape and Dtype describe the first chunk. That is a full chunk, unless the batch has
	// only one and that is partial: then Shape has the partial number of tokens.
	Format Format
	Shape  Shape
	Dtype  Dtype
	// LastChunkTokens is the number of tokens in the last key's chunk.
	LastChunkTokens uint32

	// WithAsync says that the three fields of the asynchronous revisions are on the wire. They hold
	// their defaults otherwise.
	WithAsync   bool
	RequestID   []byte // the proxy's id of the request
	IsLastBatch bool   // no batch of this request follows
	TotalChunks uint32 // of all batches of this request; absent from the first asynchronous revision

	HasExt bool
	Ext    AllocExt
}

// AllocExt is what kvferry adds to an AllocRequest. Without keys the message is a request of its
// own, which commits and aborts grants; it goes only to peers that announced CapCommit. Format, Shape
// and Dtype are required even then.
type AllocExt struct {
	Version     uint32   // kvf_v: of these fields; its presence is HasExt
	Incarnation UUID     // kvf_inc: the asker's
	To          UUID     // kvf_to: the incarnation that the asker believes it talks to
	Operation   uint64   // kvf_op: the same for each attempt at one thing
	Attempt     uint32   // kvf_try
	PatienceNS  uint64   // kvf_patience_ns: how long after receipt an answer is of use, nanoseconds
	Request     []byte   // kvf_req: the proxy's id of the request, may be empty
	Commit      []uint64 // kvf_commit: grants whose writes are all settled and whole
	Abort       []uint64 // kvf_abort: grants given back, unwritten or partly written, and settled
	Code        uint32   // kvf_code: why they are given back; 0 is unsaid
	Reason      []byte   // kvf_reason: the same for people
	// Of a layerwise transfer the keys are those of layers, and LastChunkTokens is of all of them.
	Layers uint32 // kvf_layers: how many layers a chunk has; 0: the keys are of whole chunks
	Epoch  uint32 // kvf_epoch: of its request; layers of two never make a chunk
	// Opened is kvf_opened: the grant under which the first layers of these chunks came; 0: none has come. It says which
	// layers the sender counts on. A chunk that was opened by another grant, such as that for an older message which the
	// network delayed, does not have them.
	Opened uint64
	// Carried is kvf_bytes: the chunks themselves, one behind the other in the order of Keys, each as long as its valid
	// bytes; empty: they are to be asked for. It is the last field, so that its bytes end the message. It goes to peers
	// that take so much (HelloExt.Carries).
	Carried []byte
}

// Fields of AllocRequest.
const (
	_ = iota // the tag
	allocKeys
	allocFormat
	allocShape
	allocDtype
	allocLastTokens
	allocRequestID
	allocIsLast
	allocTotal
	allocVersion
	allocIncarnation
	allocTo
	allocOperation
	allocAttempt
	allocPatience
	allocRequest
	allocCommit
	allocAbort
	allocCode
	allocReason
	allocLayers
	allocEpoch
	allocOpened
	allocCarried
)

var allocRequestSchema = schema{
	name:   "AllocRequest",
	tagged: true,
	names: []string{
		tagField, "keys", "fmt", "shape", "dtype", "last_chunk_toks", "req_id", "is_last_batch", "total_chunks",
		"kvf_v", "kvf_inc", "kvf_to", "kvf_op", "kvf_try", "kvf_patience_ns", "kvf_req", "kvf_commit", "kvf_abort",
		"kvf_code", "kvf_reason", "kvf_layers", "kvf_epoch", "kvf_opened", "kvf_bytes",
	},
	required: 1<<allocKeys | 1<<allocFormat | 1<<allocShape | 1<<allocDtype | 1<<allocLastTokens,
}

// Layout returns the layout of the chunk that the message describes.
func (m *AllocRequest) Layout() Layout { return Layout{m.Format, m.Shape, m.Dtype} }

// Append appends the message to b.
func (m *AllocRequest) Append(b []byte) []byte {
	n := 5
	if m.WithAsync {
		n += 3
	}
	if m.HasExt {
		n += m.Ext.count()
	}
	b = appendTag(b, TagAllocRequest, n)
	b = appendStrs(b, "keys", m.Keys)
	b = appendUint(appendStr(b, "fmt"), uint64(m.Format))
	b = appendShape(appendStr(b, "shape"), m.Shape)
	b = appendStr(appendStr(b, "dtype"), m.Dtype.String())
	b = appendUint(appendStr(b, "last_chunk_toks"), uint64(m.LastChunkTokens))
	if m.WithAsync {
		b = appendStr(appendStr(b, "req_id"), m.RequestID)
		b = appendBool(appendStr(b, "is_last_batch"), m.IsLastBatch)
		b = appendUint(appendStr(b, "total_chunks"), uint64(m.TotalChunks))
	}
	if m.HasExt {
		b = m.Ext.append(b)
	}
	return b
}

// Decode fills m from b; see the package comment for what it keeps of both. The error is a
// *DecodeError.
func (m *AllocRequest) Decode(b []byte, lim *Limits) error {
	*m = AllocRequest{Keys: m.Keys[:0], Ext: m.Ext.emptied()}
	r := open(b, lim)
	r.expectTag(TagAllocRequest)
	w := fields{r: &r, schema: &allocRequestSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case allocKeys:
			m.Keys = r.keys(m.Keys)
		case allocFormat:
			m.Format = r.format()
		case allocShape:
			r.shape(&m.Shape)
		case allocDtype:
			m.Dtype = r.dtype()
		case allocLastTokens:
			m.LastChunkTokens = r.uint32()
		case allocRequestID:
			m.RequestID, m.WithAsync = r.text(), true
		case allocIsLast:
			m.IsLastBatch, m.WithAsync = r.boolean(), true
		case allocTotal:
			m.TotalChunks, m.WithAsync = r.uint32(), true
		default:
			m.Ext.decode(&r, w.at)
		}
	}
	w.close()
	r.end()
	if m.HasExt = w.has(allocVersion); !m.HasExt {
		m.Ext = m.Ext.emptied()
	}
	return r.result()
}

// emptied returns no extension, and keeps the slices for the next.
func (e *AllocExt) emptied() AllocExt {
	return AllocExt{Commit: e.Commit[:0], Abort: e.Abort[:0]}
}

func (e *AllocExt) decode(r *reader, field int) {
	switch field {
	case allocVersion:
		e.Version = r.uint32()
	case allocIncarnation:
		e.Incarnation = r.uuid()
	case allocTo:
		e.To = r.uuid()
	case allocOperation:
		e.Operation = r.uint64()
	case allocAttempt:
		e.Attempt = r.uint32()
	case allocPatience:
		e.PatienceNS = r.uint64()
	case allocRequest:
		e.Request = r.text()
	case allocCommit:
		e.Commit = r.uint64s(e.Commit)
	case allocAbort:
		e.Abort = r.uint64s(e.Abort)
	case allocCode:
		e.Code = r.uint32()
	case allocReason:
		e.Reason = r.text()
	case allocLayers:
		e.Layers = r.uint32()
	case allocEpoch:
		e.Epoch = r.uint32()
	case allocOpened:
		e.Opened = r.uint64()
	case allocCarried:
		e.Carried = r.binUpTo(r.lim.MessageBytes, "MessageBytes")
	}
}

// count says how many fields append will write.
func (e *AllocExt) count() int {
	return 1 + ones(e.Incarnation != UUID{}, e.To != UUID{}, e.Operation != 0, e.Attempt != 0, e.PatienceNS != 0,
		len(e.Request) > 0, len(e.Commit) > 0, len(e.Abort) > 0, e.Code != 0, len(e.Reason) > 0,
		e.Layers != 0, e.Epoch != 0, e.Opened != 0, len(e.Carried) > 0)
}

func (e *AllocExt) append(b []byte) []byte {
	b = appendUint(appendStr(b, "kvf_v"), uint64(e.Version))
	b = appendNonZeroUUID(b, "kvf_inc", e.Incarnation)
	b = appendNonZeroUUID(b, "kvf_to", e.To)
	b = appendNonZero(b, "kvf_op", e.Operation)
	b = appendNonZero(b, "kvf_try", uint64(e.Attempt))
	b = appendNonZero(b, "kvf_patience_ns", e.PatienceNS)
	b = appendNonEmptyText(b, "kvf_req", e.Request)
	b = appendNonEmpty(b, "kvf_commit", e.Commit)
	b = appendNonEmpty(b, "kvf_abort", e.Abort)
	b = appendNonZero(b, "kvf_code", uint64(e.Code))
	b = appendNonEmptyText(b, "kvf_reason", e.Reason)
	b = appendNonZero(b, "kvf_layers", uint64(e.Layers))
	b = appendNonZero(b, "kvf_epoch", uint64(e.Epoch))
	b = appendNonZero(b, "kvf_opened", e.Opened)
	if len(e.Carried) > 0 {
		b = appendBin(appendStr(b, "kvf_bytes"), e.Carried)
	}
	return b
}
