package protocol

import "math"

// The messages between peers that share chunks. The requester wants chunks, the owner has them.

// A P2PInitSideMsg ends a handshake between peers that share: the requester asks on the init socket for the address of
// the lookup socket.
//
//wire:message
type P2PInitSideMsg struct{}

// A P2PInitSideRetMsg is the reply to a P2PInitSideMsg.
//
//wire:message
type P2PInitSideRetMsg struct {
	PeerLookupURL []byte `wire:"peer_lookup_url"` // host:port, without a scheme
}

// An AscendBatchedLookupAndGetMsg asks a peer for chunks: requester to owner, on the owner's lookup socket. The owner
// serves the longest prefix of the keys for which it has chunks.
//
// In push mode the requester names the pages into which the owner writes the chunks. In pull mode the owner replies
// with the pages from which the chunks may be read, and the pages that the requester names mean nothing.
//
//wire:message
type AscendBatchedLookupAndGetMsg struct {
	LookupID   []byte   `wire:"lookup_id"`   // the requester's name of the lookup; not unique among requesters
	ReceiverID []byte   `wire:"receiver_id"` // host:port of the requester's init socket, as in the handshake
	Keys       [][]byte `wire:"keys,as=keys"`
	// MemIndexes are, in push mode, the pages of the keys; the range is unchecked.
	MemIndexes  []int64 `wire:"mem_indexes"`
	BufferUUIDs []UUID  `wire:"buffer_uuids,optional,len=mem_indexes"` // the buffer of each page
	PullMode    bool    `wire:"pull_mode,optional"`

	HasExt bool      `wire:"-"`
	Ext    P2PGetExt `wire:",ext"`
}

// P2PGetExt is the extension of an AscendBatchedLookupAndGetMsg. In push mode the requester grants, and sends first:
// the requester's stamps tell the owner how long it may write.
type P2PGetExt struct {
	Version     uint32 `wire:"kvf_v"`            // version of these fields; its presence sets HasExt
	Incarnation UUID   `wire:"kvf_inc,omitzero"` // the requester's incarnation
	// To is the owner's incarnation, as far as the requester knows.
	To        UUID   `wire:"kvf_to,omitzero"`
	Operation uint64 `wire:"kvf_op,omitzero"`  // number of the lookup, the same in each attempt
	Attempt   uint32 `wire:"kvf_try,omitzero"` // number of the attempt
	// PatienceNS is the deadline budget: how long after receipt a reply is of use; nanoseconds.
	PatienceNS  uint64   `wire:"kvf_patience_ns,omitzero"`
	Grant       uint64   `wire:"kvf_grant,omitzero"`                  // push: the write grant over all pages; 0: none
	Generations []uint64 `wire:"kvf_gens,omitzero,len=mem_indexes|0"` // push: the granted generation of each page
	// GrantedNS is, in push mode, the time at which the grant began, on the requester's clock; not negative.
	GrantedNS int64 `wire:"kvf_granted_ns,omitzero"`
	// LeaseNS is, in push mode, how long the grant is in force from GrantedNS on; nanoseconds.
	LeaseNS uint64 `wire:"kvf_lease_ns,omitzero"`
	Stamps  Stamps `wire:",inline"`                             // the requester's
	Trace   []byte `wire:"kvf_trace,omitzero,bin=MessageBytes"` // the requester's span, as in AllocExt
}

// validate checks that a push names a page for each key.
func (m *AscendBatchedLookupAndGetMsg) validate(w *mapReader) {
	if !m.PullMode {
		w.checkSameLength("mem_indexes", len(m.MemIndexes), "keys", len(m.Keys))
	}
}

// An AscendBatchedLookupAndGetRetMsg is the reply to an AscendBatchedLookupAndGetMsg. In push mode the owner replies
// when the chunks are written, in pull mode when the chunks may be read. Zero hits is a miss, and also the reply of a
// vanilla owner that has reached its limit.
//
//wire:message
type AscendBatchedLookupAndGetRetMsg struct {
	HitChunks uint32 `wire:"num_hit_chunks"` // number of the request's keys that are served, from the first key on
	// RemoteUUIDs and RemoteIndexes are the owner's pages in pull mode, one per hit; otherwise empty. The range of the
	// indexes is unchecked.
	RemoteUUIDs   []UUID  `wire:"remote_buffer_uuids,optional,len=remote_mem_indexes"`
	RemoteIndexes []int64 `wire:"remote_mem_indexes,optional"`
	// LeaseSeconds is how long the pages may be read; 0: not stated. The range is unchecked, see LeaseNS.
	LeaseSeconds float64 `wire:"lease_ttl_s,optional"`

	HasExt bool           `wire:"-"`
	Ext    P2PGetReplyExt `wire:",ext"`
}

// P2PGetReplyExt is the extension of an AscendBatchedLookupAndGetRetMsg. The lease over all pages is LeaseSeconds; for
// the requester the lease begins when it sends the request that this message answers.
type P2PGetReplyExt struct {
	// Version is the version of these fields; its presence sets HasExt.
	Version     uint32 `wire:"kvf_v"`
	Incarnation UUID   `wire:"kvf_inc,omitzero"` // the owner's incarnation
	// Grant is, in pull mode, the read grant over all pages; 0: none.
	Grant       uint64   `wire:"kvf_grant,omitzero"`
	Generations []uint64 `wire:"kvf_gens,omitzero,len=remote_mem_indexes|0"` // pull: the granted generation of each page
	// Sums are the checksums of the chunks' bytes, as in AllocExt: one for each hit, or none. In push mode they are
	// stated here, after the write, because the requester does not know them when it grants its pages.
	Sums []uint64 `wire:"kvf_sums,omitzero"`
	// Code is why nothing is served; 0 if the hits are complete.
	Code uint32 `wire:"kvf_code,omitzero"`
	// RetryNS is the time after receipt at which to ask again; nanoseconds; 0: unknown.
	RetryNS uint64 `wire:"kvf_retry_ns,omitzero"`
	// Reason is Code as text; without a code, why there are no more hits.
	Reason []byte `wire:"kvf_reason,omitzero"`
	Stamps Stamps `wire:",inline"` // the owner's
}

// validate checks that there is a page for each hit, if there are pages, and a checksum for each hit, if there are any.
func (m *AscendBatchedLookupAndGetRetMsg) validate(w *mapReader) {
	if n := len(m.RemoteIndexes); n > 0 {
		w.checkSameLength("remote_mem_indexes", n, "num_hit_chunks", int(m.HitChunks))
	}
	if n := len(m.Ext.Sums); n > 0 {
		w.checkSameLength("kvf_sums", n, "num_hit_chunks", int(m.HitChunks))
	}
}

// LeaseNS returns the lease in nanoseconds, rounded down. It returns 0 if LeaseSeconds is negative or not a number, and
// the longest time span if LeaseSeconds exceeds that.
func (m *AscendBatchedLookupAndGetRetMsg) LeaseNS() int64 {
	const second = 1e9
	switch ns := m.LeaseSeconds * second; {
	case !(ns > 0):
		return 0
	case ns >= math.MaxInt64:
		return math.MaxInt64
	default:
		return int64(ns)
	}
}

// SetLeaseNS sets LeaseSeconds to a lease in nanoseconds. Rounding never makes the lease longer: LeaseNS returns at
// most ns.
func (m *AscendBatchedLookupAndGetRetMsg) SetLeaseNS(ns int64) {
	const second = 1e9
	for m.LeaseSeconds = float64(ns) / second; m.LeaseNS() > max(ns, 0); {
		m.LeaseSeconds = math.Nextafter(m.LeaseSeconds, 0)
	}
}

// An AscendBatchedLookupAndGetDoneMsg reports that the requester no longer reads the chunks of a lookup and will not
// start another read of the chunks: requester to owner, on the owner's done socket or lookup socket. A vanilla message
// names only the lookup, and the names of lookups are not unique among requesters.
//
//wire:message
type AscendBatchedLookupAndGetDoneMsg struct {
	LookupID []byte `wire:"lookup_id"` // as in the request

	HasExt bool       `wire:"-"`
	Ext    P2PDoneExt `wire:",ext"`
}

// P2PDoneExt is the extension of an AscendBatchedLookupAndGetDoneMsg.
type P2PDoneExt struct {
	Version     uint32 `wire:"kvf_v"`              // version of these fields; its presence sets HasExt
	Incarnation UUID   `wire:"kvf_inc,omitzero"`   // the requester's incarnation
	To          UUID   `wire:"kvf_to,omitzero"`    // the incarnation whose pages were read
	Operation   uint64 `wire:"kvf_op,omitzero"`    // number of the lookup
	Attempt     uint32 `wire:"kvf_try,omitzero"`   // number of the attempt whose reply was used
	Grant       uint64 `wire:"kvf_grant,omitzero"` // the read grant that ends; 0 if no reply named one
}

// An AscendBatchedLookupAndGetDoneRetMsg is the reply to an AscendBatchedLookupAndGetDoneMsg, also if the owner knows
// no such lookup.
//
//wire:message
type AscendBatchedLookupAndGetDoneRetMsg struct{}

// An AscendQueryDonePortMsg asks an owner for the address of the done socket, on the owner's lookup socket.
//
//wire:message
type AscendQueryDonePortMsg struct{}

// An AscendQueryDonePortRetMsg is the reply to an AscendQueryDonePortMsg.
//
//wire:message
type AscendQueryDonePortRetMsg struct {
	DoneURL []byte `wire:"done_url"` // host:port, without a scheme; changes with each start of the owner
}

// A BatchedLookupAndGetMsg is the request for chunks of an LMCache peer that is not LMCache-Ascend. The request is
// always a push: the owner writes into the requester's first buffer.
//
//wire:message
type BatchedLookupAndGetMsg struct {
	LookupID   []byte   `wire:"lookup_id"`
	ReceiverID []byte   `wire:"receiver_id"` // host:port of the requester's init socket
	Keys       [][]byte `wire:"keys,as=keys"`
	MemIndexes []int64  `wire:"mem_indexes,len=keys"` // the page of each key; the range is unchecked
}

// A BatchedLookupAndGetRetMsg is the reply to a BatchedLookupAndGetMsg when the chunks are written.
//
//wire:message
type BatchedLookupAndGetRetMsg struct {
	HitChunks uint32 `wire:"num_hit_chunks"` // number of the request's keys that are served, from the first key on
}

// An AscendBatchedLookupAndPutMsg offers a peer chunks that the peer did not ask for. LMCache-Ascend declares the
// message and serves it nowhere; the reply is a P2PErrorMsg with P2PServerError.
//
//wire:message
type AscendBatchedLookupAndPutMsg struct {
	BatchedLookupAndPutMsg `wire:",inline"`
	BufferUUIDs            []UUID `wire:"buffer_uuids,optional,len=mem_indexes|0"` // the buffer of each page
}

// A BatchedLookupAndPutMsg is the same offer of a peer that is not LMCache-Ascend.
//
//wire:message
type BatchedLookupAndPutMsg struct {
	SenderID []byte   `wire:"sender_id"` // host:port of the offering peer's init socket
	Keys     [][]byte `wire:"keys,as=keys"`
	Offsets  []int64  `wire:"offsets,len=keys"` // the number of tokens of each chunk; the range is unchecked
	// MemIndexes are the pages of the chunks at the offering peer; the range is unchecked.
	MemIndexes []int64 `wire:"mem_indexes,len=keys"`
}

// A BatchedLookupAndPutRetMsg is the reply to either offer.
//
//wire:message
type BatchedLookupAndPutRetMsg struct {
	ReadChunks uint32 `wire:"num_read_chunks"`
}
