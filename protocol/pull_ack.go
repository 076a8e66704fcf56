package protocol

// A PullReadyDoneAck answers a PullReadyNotif: receiver to sender. It says what of the offer will be
// read; that the reads have ended is for PullDoneSignal to say. Plain receivers send none for an offer
// that they answered with AllocFailed.
type PullReadyDoneAck struct {
	AlreadySent []int64 // indexes into the notice's keys of chunks that the receiver has; range unchecked
	// AllocFailed says that the receiver has no pages for the others, and reads none of them.
	AllocFailed bool

	HasExt bool
	Ext    PullAckExt
}

// PullAckExt is what kvferry adds to the acknowledgement.
type PullAckExt struct {
	Version     uint32 // kvf_v: of these fields; its presence is HasExt
	Incarnation UUID   // kvf_inc: the receiver's
	Code        uint32 // kvf_code: why nothing will be read; 0 if it will
	RetryNS     uint64 // kvf_retry_ns: when another offer makes sense, nanoseconds from now; 0 is unknown
	Stamps      Stamps // of the receiver
	// Delayed says that the receiver keeps remote entries: it has no pages for the chunks, has read
	// nothing, and will read when its engine asks. Without it, it reads at once. Beside a code it says that nothing
	// will come of the offer, but that a read of it may still be under way: the pages stay lent until a done.
	Delayed bool   // kvf_delayed
	Reason  []byte // kvf_reason: Code for people
}

// Fields of PullReadyDoneAck.
const (
	_ = iota // the tag
	pullAckAlreadySent
	pullAckFailed
	pullAckVersion
	pullAckIncarnation
	pullAckCode
	pullAckRetry
	pullAckClock
	pullAckEcho
	pullAckDelayed
	pullAckReason
)

var pullAckSchema = schema{
	name:   "PullReadyDoneAck",
	tagged: true,
	names: []string{
		tagField, "already_sent_indexes", "alloc_failed",
		"kvf_v", "kvf_inc", "kvf_code", "kvf_retry_ns", "kvf_clock_ns", "kvf_echo_ns", "kvf_delayed", "kvf_reason",
	},
	required: 1 << pullAckAlreadySent,
}

// Append appends the message to b.
func (m *PullReadyDoneAck) Append(b []byte) []byte {
	n := 2
	if m.HasExt {
		n += m.Ext.count()
	}
	b = appendTag(b, TagPullReadyDoneAck, n)
	b = appendInts(b, "already_sent_indexes", m.AlreadySent)
	b = appendBool(appendStr(b, "alloc_failed"), m.AllocFailed)
	if m.HasExt {
		b = m.Ext.append(b)
	}
	return b
}

// Decode fills m from b; see the package comment for what it keeps of both. The error is a
// *DecodeError.
func (m *PullReadyDoneAck) Decode(b []byte, lim *Limits) error {
	*m = PullReadyDoneAck{AlreadySent: m.AlreadySent[:0]}
	r := open(b, lim)
	r.expectTag(TagPullReadyDoneAck)
	w := fields{r: &r, schema: &pullAckSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case pullAckAlreadySent:
			m.AlreadySent = r.int64s(m.AlreadySent)
		case pullAckFailed:
			m.AllocFailed = r.boolean()
		default:
			m.Ext.decode(&r, w.at)
		}
	}
	w.close()
	r.end()
	if m.HasExt = w.has(pullAckVersion); !m.HasExt {
		m.Ext = PullAckExt{}
	}
	return r.result()
}

func (e *PullAckExt) decode(r *reader, field int) {
	switch field {
	case pullAckVersion:
		e.Version = r.uint32()
	case pullAckIncarnation:
		e.Incarnation = r.uuid()
	case pullAckCode:
		e.Code = r.uint32()
	case pullAckRetry:
		e.RetryNS = r.uint64()
	case pullAckDelayed:
		e.Delayed = r.boolean()
	case pullAckReason:
		e.Reason = r.text()
	default:
		e.Stamps.decode(r, field-pullAckClock)
	}
}

// count says how many fields append will write.
func (e *PullAckExt) count() int {
	return 1 + e.Stamps.count() + ones(e.Incarnation != UUID{}, e.Code != 0, e.RetryNS != 0, e.Delayed, len(e.Reason) > 0)
}

func (e *PullAckExt) append(b []byte) []byte {
	b = appendUint(appendStr(b, "kvf_v"), uint64(e.Version))
	b = appendNonZeroUUID(b, "kvf_inc", e.Incarnation)
	b = appendNonZero(b, "kvf_code", uint64(e.Code))
	b = appendNonZero(b, "kvf_retry_ns", e.RetryNS)
	b = e.Stamps.append(b)
	if e.Delayed {
		b = appendBool(appendStr(b, "kvf_delayed"), true)
	}
	return appendNonEmptyText(b, "kvf_reason", e.Reason)
}
