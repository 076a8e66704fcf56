package protocol

// An AscendBatchedLookupAndGetDoneMsg says that nothing of the requester's reads the chunks of a lookup any more, and
// none of its reads will start: requester to owner, on the owner's done socket or its lookup socket. A plain one names
// the lookup alone, and another requester may have one of that name.
type AscendBatchedLookupAndGetDoneMsg struct {
	LookupID []byte // as in the question

	HasExt bool
	Ext    P2PDoneExt
}

// P2PDoneExt is what kvferry adds to the done.
type P2PDoneExt struct {
	Version     uint32 // kvf_v: of these fields; its presence is HasExt
	Incarnation UUID   // kvf_inc: the requester's
	To          UUID   // kvf_to: the incarnation that it read from
	Operation   uint64 // kvf_op: of the question
	Attempt     uint32 // kvf_try: of the question whose answer was used
	Grant       uint64 // kvf_grant: the read grant that ends; 0 if no answer named one
}

// An AscendBatchedLookupAndGetDoneRetMsg answers it, also where nothing of that name is known.
type AscendBatchedLookupAndGetDoneRetMsg struct{}

// Fields of AscendBatchedLookupAndGetDoneMsg.
const (
	_ = iota // the tag
	gotDoneLookupID
	gotDoneVersion
	gotDoneIncarnation
	gotDoneTo
	gotDoneOperation
	gotDoneAttempt
	gotDoneGrant
)

var (
	p2pDoneSchema = schema{
		name:     "AscendBatchedLookupAndGetDoneMsg",
		tagged:   true,
		names:    []string{tagField, "lookup_id", "kvf_v", "kvf_inc", "kvf_to", "kvf_op", "kvf_try", "kvf_grant"},
		required: 1 << gotDoneLookupID,
	}
	p2pDoneReplySchema = schema{name: "AscendBatchedLookupAndGetDoneRetMsg", tagged: true, names: []string{tagField}}
)

// Append appends the message to b.
func (m *AscendBatchedLookupAndGetDoneMsg) Append(b []byte) []byte {
	n, e := 1, &m.Ext
	if m.HasExt {
		n += 1 + ones(e.Incarnation != UUID{}, e.To != UUID{}, e.Operation != 0, e.Attempt != 0, e.Grant != 0)
	}
	b = appendTag(b, TagAscendBatchedLookupAndGetDoneMsg, n)
	b = appendStr(appendStr(b, "lookup_id"), m.LookupID)
	if !m.HasExt {
		return b
	}
	b = appendUint(appendStr(b, "kvf_v"), uint64(e.Version))
	b = appendNonZeroUUID(b, "kvf_inc", e.Incarnation)
	b = appendNonZeroUUID(b, "kvf_to", e.To)
	b = appendNonZero(b, "kvf_op", e.Operation)
	b = appendNonZero(b, "kvf_try", uint64(e.Attempt))
	return appendNonZero(b, "kvf_grant", e.Grant)
}

// Decode fills m from b; LookupID is a view of it. The error is a *DecodeError.
func (m *AscendBatchedLookupAndGetDoneMsg) Decode(b []byte, lim *Limits) error {
	*m = AscendBatchedLookupAndGetDoneMsg{}
	r := open(b, lim)
	r.expectTag(TagAscendBatchedLookupAndGetDoneMsg)
	w := fields{r: &r, schema: &p2pDoneSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case gotDoneLookupID:
			m.LookupID = r.text()
		case gotDoneVersion:
			m.Ext.Version = r.uint32()
		case gotDoneIncarnation:
			m.Ext.Incarnation = r.uuid()
		case gotDoneTo:
			m.Ext.To = r.uuid()
		case gotDoneOperation:
			m.Ext.Operation = r.uint64()
		case gotDoneAttempt:
			m.Ext.Attempt = r.uint32()
		case gotDoneGrant:
			m.Ext.Grant = r.uint64()
		}
	}
	w.close()
	r.end()
	if m.HasExt = w.has(gotDoneVersion); !m.HasExt {
		m.Ext = P2PDoneExt{}
	}
	return r.result()
}

// Append appends the message to b.
func (m *AscendBatchedLookupAndGetDoneRetMsg) Append(b []byte) []byte {
	return appendTag(b, TagAscendBatchedLookupAndGetDoneRetMsg, 0)
}

// Decode checks that b is this message. The error is a *DecodeError.
func (m *AscendBatchedLookupAndGetDoneRetMsg) Decode(b []byte, lim *Limits) error {
	return decodeBare(b, lim, TagAscendBatchedLookupAndGetDoneRetMsg, &p2pDoneReplySchema)
}

// decodeBare reads a message that declares nothing but its tag.
func decodeBare(b []byte, lim *Limits, tag Tag, s *schema) error {
	r := open(b, lim)
	r.expectTag(tag)
	w := fields{r: &r, schema: s, depth: 2}
	for w.open(); w.next(); {
	}
	w.close()
	r.end()
	return r.result()
}
