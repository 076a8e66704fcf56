package protocol

// A ReplyForm is one of the ways to answer an AllocRequest. Which one a receiver speaks is
// configuration: a sender of one family cannot decode the other family's tag.
type ReplyForm uint8

// The forms.
const (
	// FormAscend is LMCache-Ascend's: an AscendAllocResponse, which names a buffer for each page.
	FormAscend ReplyForm = iota
	// FormSync is the AllocResponse of LMCache 0.3 and of the synchronous backend.
	FormSync
	// FormAsync1 is the AllocResponse of the first asynchronous backend.
	FormAsync1
	// FormAsync2 is the AllocResponse of the later asynchronous backend.
	FormAsync2
	replyForms
)

var replyFormNames = [replyForms]string{"ascend", "sync", "async-1", "async-2"}

// Valid reports whether f is one of the forms above.
func (f ReplyForm) Valid() bool { return f < replyForms }

// String returns a word as configuration writes it.
func (f ReplyForm) String() string {
	if !f.Valid() {
		return "invalid reply form"
	}
	return replyFormNames[f]
}

// ParseReplyForm reads what String writes.
func ParseReplyForm(s string) (ReplyForm, bool) {
	for f, name := range replyFormNames {
		if s == name {
			return ReplyForm(f), true
		}
	}
	return FormAscend, false
}

// An AllocResponse answers an AllocRequest of N keys: receiver to sender.
//
// What the caller of Append supplies depends on the form; nothing is rearranged or checked here:
//
//	form    AlreadySent            RemoteIndexes                    RemoteUUIDs     on failure
//	Ascend  indexes of ready keys  one per other key, in key order  one per index   AllocFailed, the lists empty
//	Sync    indexes of ready keys  one per other key, in key order  none            RemoteIndexes empty: it has no word,
//	                                                                                but the peer's length check raises
//	Async1  empty                  one per key, all N               none            -1 at each key that got no page
//	Async2  indexes of ready keys  one per other key, in key order  none            all -1, max(N, 1) of them
//
// RemoteIndexes without a UUID mean the first buffer that the receiver registered.
type AllocResponse struct {
	// Form is set by Decode as far as the bytes tell: by the tag, and for AllocResponse by the order
	// of the fields. Both asynchronous forms decode as FormAsync2.
	Form          ReplyForm
	AlreadySent   []int64 // indexes into the request's keys; range unchecked
	RemoteIndexes []int64 // page indexes; range unchecked
	RemoteUUIDs   []UUID  // FormAscend only; as long as RemoteIndexes, which Decode checks
	// AllocFailed says that the batch did not get its pages. Only FormAscend has it on the wire; in
	// the others Decode sets it when any page index is negative.
	AllocFailed bool

	HasExt bool
	Ext    AllocReplyExt
}

// AllocReplyExt is what kvferry adds to the reply.
type AllocReplyExt struct {
	Version     uint32   // kvf_v: of these fields; its presence is HasExt
	Grant       uint64   // kvf_grant: the one write grant over all pages of the reply; 0 is none
	Generations []uint64 // kvf_gens: the granted generation of each page, as long as RemoteIndexes or empty
	LeaseNS     uint64   // kvf_lease_ns: how long the grant stands, nanoseconds
	Code        uint32   // kvf_code: why the allocation failed; 0 if it did not
	RetryNS     uint64   // kvf_retry_ns: when another try makes sense, nanoseconds from now; 0 is unknown
	Committed   []uint64 // kvf_committed: grants of the request's commit list that are in force as entries
	Gone        []uint64 // kvf_gone: grants of its lists that had ended before
	Reason      []byte   // kvf_reason: Code for people
	Taken       uint32   // kvf_taken: chunks that were taken from the request itself, beside those that were there; else 0
}

// Fields of AllocResponse. Those of the Ascend form are last, so that the upstream schema is a prefix.
const (
	_ = iota // the tag
	replyAlreadySent
	replyIndexes
	replyVersion
	replyGrant
	replyGenerations
	replyLease
	replyCode
	replyRetry
	replyCommitted
	replyGone
	replyReason
	replyTaken
	replyUUIDs
	replyFailed
)

var replyNames = []string{
	tagField, "already_sent_indexes", "remote_indexes",
	"kvf_v", "kvf_grant", "kvf_gens", "kvf_lease_ns", "kvf_code", "kvf_retry_ns", "kvf_committed", "kvf_gone",
	"kvf_reason", "kvf_taken", "remote_buffer_uuids", "alloc_failed",
}

var (
	ascendReplySchema = schema{
		name:     "AscendAllocResponse",
		tagged:   true,
		names:    replyNames,
		required: 1<<replyAlreadySent | 1<<replyIndexes | 1<<replyUUIDs,
	}
	upstreamReplySchema = schema{
		name:     "AllocResponse",
		tagged:   true,
		names:    replyNames[:replyUUIDs],
		required: 1 << replyIndexes, // The asynchronous forms may leave out the other.
	}
)

// Append appends the message to b in m.Form.
func (m *AllocResponse) Append(b []byte) []byte {
	n := 2
	if m.HasExt {
		n += m.Ext.count()
	}
	switch m.Form {
	case FormAsync1, FormAsync2:
		b = appendTag(b, TagAllocResponse, n)
		b = appendInts(b, "remote_indexes", m.RemoteIndexes)
		b = appendInts(b, "already_sent_indexes", m.AlreadySent)
	case FormSync:
		b = appendTag(b, TagAllocResponse, n)
		b = appendInts(b, "already_sent_indexes", m.AlreadySent)
		b = appendInts(b, "remote_indexes", m.RemoteIndexes)
	case FormAscend:
		b = appendTag(b, TagAscendAllocResponse, n+2)
		b = appendInts(b, "already_sent_indexes", m.AlreadySent)
		b = appendInts(b, "remote_indexes", m.RemoteIndexes)
		b = appendUUIDs(b, "remote_buffer_uuids", m.RemoteUUIDs)
		b = appendBool(appendStr(b, "alloc_failed"), m.AllocFailed)
	default:
		panic("BUG: encoding a reply in an invalid form")
	}
	if m.HasExt {
		b = m.Ext.append(b)
	}
	return b
}

// Decode fills m from b, whichever form it has; see the package comment for what it keeps of both.
// The error is a *DecodeError.
func (m *AllocResponse) Decode(b []byte, lim *Limits) error {
	*m = AllocResponse{
		AlreadySent:   m.AlreadySent[:0],
		RemoteIndexes: m.RemoteIndexes[:0],
		RemoteUUIDs:   m.RemoteUUIDs[:0],
		Ext:           m.Ext.emptied(),
	}
	r := open(b, lim)
	w := fields{r: &r, schema: m.decodeForm(&r), depth: 2}
	uuidsAt, generationsAt := 0, 0
	for w.open(); w.next(); {
		switch w.at {
		case replyAlreadySent:
			m.AlreadySent = r.int64s(m.AlreadySent)
		case replyIndexes:
			if m.Form == FormSync && !w.has(replyAlreadySent) {
				m.Form = FormAsync2
			}
			m.RemoteIndexes = r.int64s(m.RemoteIndexes)
		case replyUUIDs:
			uuidsAt = r.off
			m.RemoteUUIDs = r.uuids(m.RemoteUUIDs)
		case replyFailed:
			m.AllocFailed = r.boolean()
		default:
			if w.at == replyGenerations {
				generationsAt = r.off
			}
			m.Ext.decode(&r, w.at)
		}
	}
	w.close()
	r.end()
	if m.Form == FormAscend {
		r.parallel("remote_buffer_uuids", uuidsAt, len(m.RemoteUUIDs), "remote_indexes", len(m.RemoteIndexes))
	} else {
		m.AllocFailed = anyNegative(m.RemoteIndexes)
	}
	if m.HasExt = w.has(replyVersion); !m.HasExt {
		m.Ext = m.Ext.emptied()
	} else if len(m.Ext.Generations) > 0 {
		r.parallel("kvf_gens", generationsAt, len(m.Ext.Generations), "remote_indexes", len(m.RemoteIndexes))
	}
	return r.result()
}

// decodeForm reads the tag, which decides between the two families and so which fields are known.
func (m *AllocResponse) decodeForm(r *reader) *schema {
	if r.begins(TagAscendAllocResponse) {
		return &ascendReplySchema
	}
	tag, at := r.findTag()
	if tag == TagAllocResponse {
		m.Form = FormSync
		return &upstreamReplySchema
	}
	if tag != TagAscendAllocResponse && r.ok() {
		r.message, r.field = "AllocResponse", tagField
		r.fail(DecodeWrongTag, at, tag.String(), "AscendAllocResponse or AllocResponse")
	}
	return &ascendReplySchema
}

func anyNegative(vs []int64) bool {
	for _, v := range vs {
		if v < 0 {
			return true
		}
	}
	return false
}

// emptied returns no extension, and keeps the slices for the next.
func (e *AllocReplyExt) emptied() AllocReplyExt {
	return AllocReplyExt{Generations: e.Generations[:0], Committed: e.Committed[:0], Gone: e.Gone[:0]}
}

func (e *AllocReplyExt) decode(r *reader, field int) {
	switch field {
	case replyVersion:
		e.Version = r.uint32()
	case replyGrant:
		e.Grant = r.uint64()
	case replyGenerations:
		e.Generations = r.uint64s(e.Generations)
	case replyLease:
		e.LeaseNS = r.uint64()
	case replyCode:
		e.Code = r.uint32()
	case replyRetry:
		e.RetryNS = r.uint64()
	case replyCommitted:
		e.Committed = r.uint64s(e.Committed)
	case replyGone:
		e.Gone = r.uint64s(e.Gone)
	case replyReason:
		e.Reason = r.text()
	case replyTaken:
		e.Taken = r.uint32()
	}
}

// count says how many fields append will write.
func (e *AllocReplyExt) count() int {
	return 1 + ones(e.Grant != 0, len(e.Generations) > 0, e.LeaseNS != 0, e.Code != 0, e.RetryNS != 0,
		len(e.Committed) > 0, len(e.Gone) > 0, len(e.Reason) > 0, e.Taken != 0)
}

func (e *AllocReplyExt) append(b []byte) []byte {
	b = appendUint(appendStr(b, "kvf_v"), uint64(e.Version))
	b = appendNonZero(b, "kvf_grant", e.Grant)
	b = appendNonEmpty(b, "kvf_gens", e.Generations)
	b = appendNonZero(b, "kvf_lease_ns", e.LeaseNS)
	b = appendNonZero(b, "kvf_code", uint64(e.Code))
	b = appendNonZero(b, "kvf_retry_ns", e.RetryNS)
	b = appendNonEmpty(b, "kvf_committed", e.Committed)
	b = appendNonEmpty(b, "kvf_gone", e.Gone)
	b = appendNonEmptyText(b, "kvf_reason", e.Reason)
	return appendNonZero(b, "kvf_taken", uint64(e.Taken))
}
