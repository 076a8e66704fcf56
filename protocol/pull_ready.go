package protocol

import "slices"

// A PullReadyNotif offers a batch of chunks for reading: sender to receiver, on the channel of
// AllocRequest, answered by one PullReadyDoneAck. The pages are pinned before it leaves.
type PullReadyNotif struct {
	PullID PullID
	// Keys, SenderUUIDs and SenderIndexes have one entry per chunk, which Decode checks: the key as
	// text, as in AllocRequest; the registered buffer that holds it; the page there, range unchecked.
	Keys          [][]byte
	SenderUUIDs   []UUID
	SenderIndexes []int64
	SenderID      []byte // the sender's id; see HixlInitRequest.LocalID
	// SenderDoneURL is where the sender takes PullDoneSignal, host:port as ParseEndpoint reads it. It
	// is a peer's text, checked as such alone.
	SenderDoneURL []byte
	// Format, Shape, Dtype and LastChunkTokens are those of AllocRequest.
	Format          Format
	Shape           Shape
	Dtype           Dtype
	LastChunkTokens uint32

	HasExt bool
	Ext    PullReadyExt
}

// PullReadyExt is what kvferry adds to a PullReadyNotif. Without keys and with withdrawals the
// message is a request of its own, whose PullID is zero; it goes only to peers that announced CapPull.
// The other fields are required even then.
type PullReadyExt struct {
	Version     uint32   // kvf_v: of these fields; its presence is HasExt
	Incarnation UUID     // kvf_inc: the sender's, who owns the pages
	To          UUID     // kvf_to: the incarnation that the sender believes it talks to
	Operation   uint64   // kvf_op: the same for each attempt at one offer
	Attempt     uint32   // kvf_try
	PatienceNS  uint64   // kvf_patience_ns: how long after receipt an answer is of use, nanoseconds
	Request     []byte   // kvf_req: the proxy's id of the request, may be empty
	Grant       uint64   // kvf_grant: the one read grant over all pages of the offer; 0 is none
	Generations []uint64 // kvf_gens: the granted generation of each page, as long as Keys or empty
	// GrantedNS is when the grant began on the sender's clock, nanoseconds, never negative; 0 is unsaid.
	// The grant stands for LeaseNS from there, whenever the message arrives and whatever becomes of it.
	GrantedNS int64  // kvf_granted_ns
	LeaseNS   uint64 // kvf_lease_ns
	Stamps    Stamps // of the sender, when it wrote this attempt
	// kvf_renew: the sender's init socket, which takes RenewRequest, host:port; empty: it renews nothing
	Renew    []byte
	Withdraw []PullID // kvf_withdraw: offers that are withdrawn; no read of theirs may start any more
	Code     uint32   // kvf_code: why they are withdrawn; 0 is unsaid
	Reason   []byte   // kvf_reason: the same for people
}

// Fields of PullReadyNotif.
const (
	_ = iota // the tag
	pullID
	pullKeys
	pullUUIDs
	pullIndexes
	pullSenderID
	pullDoneURL
	pullFormat
	pullShape
	pullDtype
	pullLastTokens
	pullVersion
	pullIncarnation
	pullTo
	pullOperation
	pullAttempt
	pullPatience
	pullRequest
	pullGrant
	pullGenerations
	pullGranted
	pullLease
	pullClock
	pullEcho
	pullRenew
	pullWithdraw
	pullCode
	pullReason
)

var pullReadySchema = schema{
	name:   "PullReadyNotif",
	tagged: true,
	names: []string{
		tagField, "pull_id", "keys", "sender_buffer_uuids", "sender_mem_indexes", "sender_id", "sender_done_url",
		"fmt", "shape", "dtype", "last_chunk_toks",
		"kvf_v", "kvf_inc", "kvf_to", "kvf_op", "kvf_try", "kvf_patience_ns", "kvf_req", "kvf_grant", "kvf_gens",
		"kvf_granted_ns", "kvf_lease_ns", "kvf_clock_ns", "kvf_echo_ns", "kvf_renew", "kvf_withdraw",
		"kvf_code", "kvf_reason",
	},
	required: 1<<pullID | 1<<pullKeys | 1<<pullUUIDs | 1<<pullIndexes | 1<<pullSenderID | 1<<pullDoneURL |
		1<<pullFormat | 1<<pullShape | 1<<pullDtype | 1<<pullLastTokens,
}

// Layout returns the layout of the chunk that the message describes.
func (m *PullReadyNotif) Layout() Layout { return Layout{m.Format, m.Shape, m.Dtype} }

// Append appends the message to b.
func (m *PullReadyNotif) Append(b []byte) []byte {
	n := 10
	if m.HasExt {
		n += m.Ext.count()
	}
	b = appendTag(b, TagPullReadyNotif, n)
	b = appendPullID(appendStr(b, "pull_id"), m.PullID)
	b = appendStrs(b, "keys", m.Keys)
	b = appendUUIDs(b, "sender_buffer_uuids", m.SenderUUIDs)
	b = appendInts(b, "sender_mem_indexes", m.SenderIndexes)
	b = appendStr(appendStr(b, "sender_id"), m.SenderID)
	b = appendStr(appendStr(b, "sender_done_url"), m.SenderDoneURL)
	b = appendUint(appendStr(b, "fmt"), uint64(m.Format))
	b = appendShape(appendStr(b, "shape"), m.Shape)
	b = appendStr(appendStr(b, "dtype"), m.Dtype.String())
	b = appendUint(appendStr(b, "last_chunk_toks"), uint64(m.LastChunkTokens))
	if m.HasExt {
		b = m.Ext.append(b)
	}
	return b
}

// Decode fills m from b; see the package comment for what it keeps of both. The error is a
// *DecodeError.
func (m *PullReadyNotif) Decode(b []byte, lim *Limits) error {
	*m = PullReadyNotif{
		Keys:          m.Keys[:0],
		SenderUUIDs:   m.SenderUUIDs[:0],
		SenderIndexes: m.SenderIndexes[:0],
		Ext:           m.Ext.emptied(),
	}
	r := open(b, lim)
	r.expectTag(TagPullReadyNotif)
	w := fields{r: &r, schema: &pullReadySchema, depth: 2}
	uuidsAt, indexesAt, generationsAt := 0, 0, 0
	for w.open(); w.next(); {
		switch w.at {
		case pullID:
			m.PullID = r.pullID()
		case pullKeys:
			m.Keys = r.keys(m.Keys)
		case pullUUIDs:
			uuidsAt = r.off
			m.SenderUUIDs = r.uuids(m.SenderUUIDs)
		case pullIndexes:
			indexesAt = r.off
			m.SenderIndexes = r.int64s(m.SenderIndexes)
		case pullSenderID:
			m.SenderID = r.text()
		case pullDoneURL:
			m.SenderDoneURL = r.text()
		case pullFormat:
			m.Format = r.format()
		case pullShape:
			r.shape(&m.Shape)
		case pullDtype:
			m.Dtype = r.dtype()
		case pullLastTokens:
			m.LastChunkTokens = r.uint32()
		default:
			if w.at == pullGenerations {
				generationsAt = r.off
			}
			m.Ext.decode(&r, w.at)
		}
	}
	w.close()
	r.end()
	r.parallel("sender_buffer_uuids", uuidsAt, len(m.SenderUUIDs), "keys", len(m.Keys))
	r.parallel("sender_mem_indexes", indexesAt, len(m.SenderIndexes), "keys", len(m.Keys))
	if m.HasExt = w.has(pullVersion); !m.HasExt {
		m.Ext = m.Ext.emptied()
	} else if len(m.Ext.Generations) > 0 {
		r.parallel("kvf_gens", generationsAt, len(m.Ext.Generations), "keys", len(m.Keys))
	}
	return r.result()
}

// emptied returns no extension, and keeps the slices for the next.
func (e *PullReadyExt) emptied() PullReadyExt {
	return PullReadyExt{Generations: e.Generations[:0], Withdraw: e.Withdraw[:0]}
}

func (e *PullReadyExt) decode(r *reader, field int) {
	switch field {
	case pullVersion:
		e.Version = r.uint32()
	case pullIncarnation:
		e.Incarnation = r.uuid()
	case pullTo:
		e.To = r.uuid()
	case pullOperation:
		e.Operation = r.uint64()
	case pullAttempt:
		e.Attempt = r.uint32()
	case pullPatience:
		e.PatienceNS = r.uint64()
	case pullRequest:
		e.Request = r.text()
	case pullGrant:
		e.Grant = r.uint64()
	case pullGenerations:
		e.Generations = r.uint64s(e.Generations)
	case pullGranted:
		e.GrantedNS = r.instant()
	case pullLease:
		e.LeaseNS = r.uint64()
	case pullRenew:
		e.Renew = r.text()
	case pullWithdraw:
		n := r.arrayHeader()
		for e.Withdraw = slices.Grow(e.Withdraw, n); n > 0 && r.ok(); n-- {
			e.Withdraw = append(e.Withdraw, r.pullID())
		}
	case pullCode:
		e.Code = r.uint32()
	case pullReason:
		e.Reason = r.text()
	default:
		e.Stamps.decode(r, field-pullClock)
	}
}

// count says how many fields append will write.
func (e *PullReadyExt) count() int {
	return 1 + e.Stamps.count() + ones(e.Incarnation != UUID{}, e.To != UUID{}, e.Operation != 0, e.Attempt != 0,
		e.PatienceNS != 0, len(e.Request) > 0, e.Grant != 0, len(e.Generations) > 0, e.GrantedNS != 0, e.LeaseNS != 0,
		len(e.Renew) > 0, len(e.Withdraw) > 0, e.Code != 0, len(e.Reason) > 0)
}

func (e *PullReadyExt) append(b []byte) []byte {
	b = appendUint(appendStr(b, "kvf_v"), uint64(e.Version))
	b = appendNonZeroUUID(b, "kvf_inc", e.Incarnation)
	b = appendNonZeroUUID(b, "kvf_to", e.To)
	b = appendNonZero(b, "kvf_op", e.Operation)
	b = appendNonZero(b, "kvf_try", uint64(e.Attempt))
	b = appendNonZero(b, "kvf_patience_ns", e.PatienceNS)
	b = appendNonEmptyText(b, "kvf_req", e.Request)
	b = appendNonZero(b, "kvf_grant", e.Grant)
	b = appendNonEmpty(b, "kvf_gens", e.Generations)
	b = appendNonZero(b, "kvf_granted_ns", uint64(e.GrantedNS))
	b = appendNonZero(b, "kvf_lease_ns", e.LeaseNS)
	b = e.Stamps.append(b)
	b = appendNonEmptyText(b, "kvf_renew", e.Renew)
	if len(e.Withdraw) > 0 {
		b = appendArrayHeader(appendStr(b, "kvf_withdraw"), len(e.Withdraw))
		for _, id := range e.Withdraw {
			b = appendPullID(b, id)
		}
	}
	b = appendNonZero(b, "kvf_code", uint64(e.Code))
	return appendNonEmptyText(b, "kvf_reason", e.Reason)
}
