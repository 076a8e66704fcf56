package protocol

// A PullDoneSignal ends an offer: receiver to sender, on the sender's own PULL socket, never
// answered. No read of the offer's pages is under way any more, and none will start. It may overtake
// the acknowledgement of the offer, because they travel on different connections, and it may get lost;
// RenewRequest.Done says the same where that matters.
type PullDoneSignal struct {
	PullID PullID

	HasExt bool
	Ext    PullDoneExt
}

// PullDoneExt is what kvferry adds to the signal.
type PullDoneExt struct {
	Version     uint32 // kvf_v: of these fields; its presence is HasExt
	Incarnation UUID   // kvf_inc: the receiver's
	To          UUID   // kvf_to: the incarnation that made the offer
	Grant       uint64 // kvf_grant: the read grant that ends; 0 is unsaid
	Code        uint32 // kvf_code: 0 if every chunk was read and verified, else why not
	Missing     uint32 // kvf_missing: how many of the offer's chunks were not read
	Reason      []byte // kvf_reason: Code for people
}

// Fields of PullDoneSignal.
const (
	_ = iota // the tag
	pullDoneID
	pullDoneVersion
	pullDoneIncarnation
	pullDoneTo
	pullDoneGrant
	pullDoneCode
	pullDoneMissing
	pullDoneReason
)

var pullDoneSchema = schema{
	name:   "PullDoneSignal",
	tagged: true,
	names: []string{
		tagField, "pull_id", "kvf_v", "kvf_inc", "kvf_to", "kvf_grant", "kvf_code", "kvf_missing", "kvf_reason",
	},
	required: 1 << pullDoneID,
}

// Append appends the message to b.
func (m *PullDoneSignal) Append(b []byte) []byte {
	n := 1
	if m.HasExt {
		n += m.Ext.count()
	}
	b = appendTag(b, TagPullDoneSignal, n)
	b = appendPullID(appendStr(b, "pull_id"), m.PullID)
	if m.HasExt {
		b = m.Ext.append(b)
	}
	return b
}

// Decode fills m from b; Ext.Reason is a view of it. The error is a *DecodeError.
func (m *PullDoneSignal) Decode(b []byte, lim *Limits) error {
	*m = PullDoneSignal{}
	r := open(b, lim)
	r.expectTag(TagPullDoneSignal)
	w := fields{r: &r, schema: &pullDoneSchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == pullDoneID {
			m.PullID = r.pullID()
		} else {
			m.Ext.decode(&r, w.at)
		}
	}
	w.close()
	r.end()
	if m.HasExt = w.has(pullDoneVersion); !m.HasExt {
		m.Ext = PullDoneExt{}
	}
	return r.result()
}

func (e *PullDoneExt) decode(r *reader, field int) {
	switch field {
	case pullDoneVersion:
		e.Version = r.uint32()
	case pullDoneIncarnation:
		e.Incarnation = r.uuid()
	case pullDoneTo:
		e.To = r.uuid()
	case pullDoneGrant:
		e.Grant = r.uint64()
	case pullDoneCode:
		e.Code = r.uint32()
	case pullDoneMissing:
		e.Missing = r.uint32()
	case pullDoneReason:
		e.Reason = r.text()
	}
}

// count says how many fields append will write.
func (e *PullDoneExt) count() int {
	return 1 + ones(e.Incarnation != UUID{}, e.To != UUID{}, e.Grant != 0, e.Code != 0, e.Missing != 0, len(e.Reason) > 0)
}

func (e *PullDoneExt) append(b []byte) []byte {
	b = appendUint(appendStr(b, "kvf_v"), uint64(e.Version))
	b = appendNonZeroUUID(b, "kvf_inc", e.Incarnation)
	b = appendNonZeroUUID(b, "kvf_to", e.To)
	b = appendNonZero(b, "kvf_grant", e.Grant)
	b = appendNonZero(b, "kvf_code", uint64(e.Code))
	b = appendNonZero(b, "kvf_missing", uint64(e.Missing))
	return appendNonEmptyText(b, "kvf_reason", e.Reason)
}
