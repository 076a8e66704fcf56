package protocol

// A ReplyForm is the form of the reply to an AllocRequest. Which form a receiver sends is configuration, because a
// sender of one implementation cannot decode the tag of the other implementation.
type ReplyForm uint8

// The forms.
const (
	// FormAscend is the AscendAllocResponse of LMCache-Ascend, which names a buffer for each page.
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

// String returns the name of the form as configuration writes it.
func (f ReplyForm) String() string {
	if !f.Valid() {
		return "invalid reply form"
	}
	return replyFormNames[f]
}

// ParseReplyForm returns the form with the name s, as String writes it.
func ParseReplyForm(s string) (ReplyForm, bool) {
	for f, name := range replyFormNames {
		if s == name {
			return ReplyForm(f), true
		}
	}
	return FormAscend, false
}

// An AllocResponse is the reply to an AllocRequest of N keys: receiver to sender.
//
// The form decides which lists the caller of Append fills in. Append neither rearranges nor checks the lists:
//
//	form    AlreadySent            RemoteIndexes                    RemoteUUIDs     on failure
//	Ascend  indexes of ready keys  one per other key, in key order  one per index   AllocFailed, empty lists
//	Sync    indexes of ready keys  one per other key, in key order  none            RemoteIndexes empty: there is no
//	                                                                                flag, the peer checks the length
//	Async1  empty                  one per key, all N               none            -1 for each key that got no page
//	Async2  indexes of ready keys  one per other key, in key order  none            all -1, max(N, 1) of them
//
// RemoteIndexes without a UUID are pages of the first buffer that the receiver registered.
//
// The codec is written by hand, because two tags and the order of two fields decide the form; only the extension is
// generated.
//
//wire:tag TagAllocResponse AllocResponse &upstreamReplySchema &AllocResponse{Form: FormSync}
//wire:tag TagAscendAllocResponse AscendAllocResponse &ascendReplySchema &AllocResponse{Form: FormAscend}
type AllocResponse struct {
	// Form is set by Decode as far as the bytes tell: by the tag, and for AllocResponse by the order of the fields.
	// Both asynchronous forms decode as FormAsync2.
	Form ReplyForm `wire:"-"`
	// AlreadySent is indexes into the request's keys; the range is unchecked.
	AlreadySent   []int64 `wire:"already_sent_indexes,optional"`
	RemoteIndexes []int64 `wire:"remote_indexes"`                         // page indexes; the range is unchecked
	RemoteUUIDs   []UUID  `wire:"remote_buffer_uuids,len=remote_indexes"` // FormAscend only
	// AllocFailed is true if the batch got no pages. Only FormAscend has the field on the wire; for the other forms
	// Decode sets AllocFailed if any page index is negative.
	AllocFailed bool `wire:"alloc_failed,optional"`

	HasExt bool          `wire:"-"`
	Ext    AllocReplyExt `wire:",ext"`
}

// AllocReplyExt is the extension of an AllocResponse.
//
//wire:part
type AllocReplyExt struct {
	Version uint32 `wire:"kvf_v"`              // version of these fields; its presence sets HasExt
	Grant   uint64 `wire:"kvf_grant,omitzero"` // the write grant over all pages of the reply; 0: none
	// Generations are the granted generations of the pages, as many as RemoteIndexes or none.
	Generations []uint64 `wire:"kvf_gens,omitzero"`
	LeaseNS     uint64   `wire:"kvf_lease_ns,omitzero"`  // how long the grant is in force; ns
	Code        uint32   `wire:"kvf_code,omitzero"`      // why the allocation failed; 0: it did not fail
	RetryNS     uint64   `wire:"kvf_retry_ns,omitzero"`  // when to try again, from receipt; ns; 0: unknown
	Committed   []uint64 `wire:"kvf_committed,omitzero"` // grants of the request's commit list that are committed
	Gone        []uint64 `wire:"kvf_gone,omitzero"`      // grants of the request's lists that had ended before
	Reason      []byte   `wire:"kvf_reason,omitzero"`    // Code as text for people
	// Taken is the number of chunks that the receiver copied out of the request (AllocExt.Carried).
	Taken uint32 `wire:"kvf_taken,omitzero"`
}

// Fields of AllocResponse. The fields of the Ascend form are last, so that the upstream schema is a prefix.
const (
	_ = iota // the tag
	replyAlreadySent
	replyIndexes
	replyExt // the first field of AllocReplyExt
)

var (
	ascendReplySchema = schema{
		name:     "AscendAllocResponse",
		tagged:   true,
		names:    append(upstreamReplySchema.names[:replyUUIDs:replyUUIDs], "remote_buffer_uuids", "alloc_failed"),
		required: 1<<replyAlreadySent | 1<<replyIndexes | 1<<replyUUIDs,
	}
	upstreamReplySchema = schema{
		name:     "AllocResponse",
		tagged:   true,
		names:    append([]string{tagField, "already_sent_indexes", "remote_indexes"}, allocReplyExtNames[:]...),
		required: 1 << replyIndexes, // The asynchronous forms may leave out already_sent_indexes.
	}
)

const (
	replyUUIDs  = replyExt + len(allocReplyExtNames)
	replyFailed = replyUUIDs + 1
)

// Append appends the message to b in m.Form.
func (m *AllocResponse) Append(b []byte) []byte {
	n := 2
	if m.HasExt {
		n += m.Ext.countFields()
	}
	sent := func(b []byte) []byte { return appendInts(appendStr(b, "already_sent_indexes"), m.AlreadySent) }
	pages := func(b []byte) []byte { return appendInts(appendStr(b, "remote_indexes"), m.RemoteIndexes) }
	switch m.Form {
	case FormAsync1, FormAsync2:
		b = sent(pages(appendTag(b, TagAllocResponse, n)))
	case FormSync:
		b = pages(sent(appendTag(b, TagAllocResponse, n)))
	case FormAscend:
		b = pages(sent(appendTag(b, TagAscendAllocResponse, n+2)))
		b = appendUUIDs(appendStr(b, "remote_buffer_uuids"), m.RemoteUUIDs)
		b = appendBool(appendStr(b, "alloc_failed"), m.AllocFailed)
	default:
		panic("BUG: an AllocResponse is encoded in an invalid form")
	}
	if m.HasExt {
		b = m.Ext.appendFields(b)
	}
	return b
}

// Decode fills m from b, whichever form b has. Texts are views of b. The error is a *DecodeError.
func (m *AllocResponse) Decode(b []byte, lim *Limits) error {
	*m = AllocResponse{
		AlreadySent:   m.AlreadySent[:0],
		RemoteIndexes: m.RemoteIndexes[:0],
		RemoteUUIDs:   m.RemoteUUIDs[:0],
		Ext:           m.Ext.recycleFields(),
	}
	r := newReader(b, lim)
	w := mapReader{r: &r, schema: m.readForm(&r), depth: 2}
	for w.readHeader(); w.nextField(); {
		switch w.at {
		case replyAlreadySent:
			m.AlreadySent = r.readInt64s(m.AlreadySent)
		case replyIndexes:
			if m.Form == FormSync && !w.hasField(replyAlreadySent) {
				m.Form = FormAsync2
			}
			m.RemoteIndexes = r.readInt64s(m.RemoteIndexes)
		case replyUUIDs:
			m.RemoteUUIDs = r.readUUIDs(m.RemoteUUIDs)
		case replyFailed:
			m.AllocFailed = r.readBool()
		default:
			m.Ext.decodeField(&w, w.at-replyExt)
		}
	}
	w.checkRequired()
	r.expectEnd()
	if m.Form == FormAscend {
		w.checkSameLength("remote_buffer_uuids", len(m.RemoteUUIDs), "remote_indexes", len(m.RemoteIndexes))
	} else {
		m.AllocFailed = hasNegative(m.RemoteIndexes)
	}
	m.HasExt = m.Ext.finishDecode(&w, replyExt)
	if len(m.Ext.Generations) > 0 {
		w.checkSameLength("kvf_gens", len(m.Ext.Generations), "remote_indexes", len(m.RemoteIndexes))
	}
	return r.result()
}

// readForm reads the tag, which decides between the two implementations and so which fields are declared.
func (m *AllocResponse) readForm(r *reader) *schema {
	if r.beginsWithTag(TagAscendAllocResponse) {
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

func hasNegative(vs []int64) bool {
	for _, v := range vs {
		if v < 0 {
			return true
		}
	}
	return false
}
