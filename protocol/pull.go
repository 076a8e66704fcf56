package protocol

// A PullReadyNotif offers a batch of chunks for reading: sender to receiver, on the channel of AllocRequest, answered
// by a PullReadyDoneAck. The sender pins the pages before it sends the message.
//
//wire:message
type PullReadyNotif struct {
	PullID        PullID   `wire:"pull_id"`
	Keys          [][]byte `wire:"keys,as=keys"`                 // one per chunk, as in AllocRequest
	SenderUUIDs   []UUID   `wire:"sender_buffer_uuids,len=keys"` // the registered buffer that holds each chunk
	SenderIndexes []int64  `wire:"sender_mem_indexes,len=keys"`  // the chunk's page in that buffer; the range is unchecked
	SenderID      []byte   `wire:"sender_id"`                    // the sender's id, see HixlInitRequest.LocalID
	// SenderDoneURL is the sender's socket for PullDoneSignal, host:port in the form of ParseEndpoint. Decode checks only
	// the encoding of the text.
	SenderDoneURL []byte `wire:"sender_done_url"`
	// Format, Shape, Dtype and LastChunkTokens have the meaning that they have in an AllocRequest.
	Format          Format `wire:"fmt"`
	Shape           Shape  `wire:"shape"`
	Dtype           Dtype  `wire:"dtype"`
	LastChunkTokens uint32 `wire:"last_chunk_toks"`

	HasExt bool         `wire:"-"`
	Ext    PullReadyExt `wire:",ext"`
}

// PullReadyExt is the extension of a PullReadyNotif. A message without keys and with withdrawals is a request of its
// own, whose PullID is zero; only peers that announced CapPull receive such a message. The other fields are required
// even then.
type PullReadyExt struct {
	Version     uint32 `wire:"kvf_v"`            // version of these fields; its presence sets HasExt
	Incarnation UUID   `wire:"kvf_inc,omitzero"` // the incarnation of the sender, which owns the pages
	To          UUID   `wire:"kvf_to,omitzero"`  // the receiver's incarnation, as far as the sender knows
	Operation   uint64 `wire:"kvf_op,omitzero"`  // number of the offer, the same in each attempt
	Attempt     uint32 `wire:"kvf_try,omitzero"` // number of the attempt
	// PatienceNS is the deadline budget: how long after receipt a reply is of use; nanoseconds.
	PatienceNS  uint64   `wire:"kvf_patience_ns,omitzero"`
	Request     []byte   `wire:"kvf_req,omitzero"`             // the proxy's id of the request, may be empty
	Grant       uint64   `wire:"kvf_grant,omitzero"`           // the read grant over all pages of the offer; 0: none
	Generations []uint64 `wire:"kvf_gens,omitzero,len=keys|0"` // the granted generation of each page
	// Sums are the checksums of the chunks' valid bytes, as in AllocExt.
	Sums  []uint64 `wire:"kvf_sums,omitzero,len=keys|0"`
	Trace []byte   `wire:"kvf_trace,omitzero,bin=MessageBytes"` // as in AllocExt
	// GrantedNS is when the grant began on the sender's clock, in nanoseconds, never negative; 0: not stated. The grant
	// is in force for LeaseNS from that time on, regardless of when the message arrives.
	GrantedNS int64  `wire:"kvf_granted_ns,omitzero"`
	LeaseNS   uint64 `wire:"kvf_lease_ns,omitzero"`
	Stamps    Stamps `wire:",inline"` // the sender's, as of this attempt
	// Renew is host:port of the socket for RenewRequests; empty: no renewal.
	Renew    []byte   `wire:"kvf_renew,omitzero"`
	Withdraw []PullID `wire:"kvf_withdraw,omitzero"` // withdrawn offers: no read of such an offer may start any more
	Code     uint32   `wire:"kvf_code,omitzero"`     // why the offers are withdrawn; 0: not stated
	Reason   []byte   `wire:"kvf_reason,omitzero"`   // Code as text for people
}

// Layout returns the layout of the chunk that the message describes.
func (m *PullReadyNotif) Layout() Layout { return Layout{m.Format, m.Shape, m.Dtype} }

// A PullReadyDoneAck is the reply to a PullReadyNotif: receiver to sender. It says which chunks of the offer the
// receiver will read; a PullDoneSignal says that the reads have ended. Vanilla receivers send no PullDoneSignal for an
// offer that they answered with AllocFailed.
//
//wire:message
type PullReadyDoneAck struct {
	// AlreadySent are the indexes of keys that the receiver has already; the range is unchecked.
	AlreadySent []int64 `wire:"already_sent_indexes"`
	// AllocFailed is true if the receiver has no pages for the other chunks; then it reads no chunk.
	AllocFailed bool `wire:"alloc_failed,optional"`

	HasExt bool       `wire:"-"`
	Ext    PullAckExt `wire:",ext"`
}

// PullAckExt is the extension of a PullReadyDoneAck.
type PullAckExt struct {
	Version     uint32 `wire:"kvf_v"`                 // version of these fields; its presence sets HasExt
	Incarnation UUID   `wire:"kvf_inc,omitzero"`      // the receiver's incarnation
	Code        uint32 `wire:"kvf_code,omitzero"`     // why nothing will be read; 0 if the receiver will read
	RetryNS     uint64 `wire:"kvf_retry_ns,omitzero"` // when to offer again, from receipt; ns; 0: unknown
	Stamps      Stamps `wire:",inline"`               // the receiver's
	// Delayed is true if the receiver keeps remote entries: the receiver has allocated no pages and read nothing, and
	// will read when its engine asks for the chunks. Otherwise the receiver reads at once. With a Code, Delayed means
	// that the offer has failed but that a read may still be in flight, so the pages stay pinned until the
	// PullDoneSignal.
	Delayed bool   `wire:"kvf_delayed,omitzero"`
	Reason  []byte `wire:"kvf_reason,omitzero"` // Code as text for people
}

// A PullDoneSignal ends an offer: receiver to sender, on the sender's own PULL socket, never answered. No read of the
// offer's pages is in flight any more and none will start. The signal may overtake the acknowledgement of the offer,
// because signals and acknowledgements are sent on different connections, and the signal may be lost; RenewRequest.Done
// repeats the signal where a loss matters.
//
//wire:message
type PullDoneSignal struct {
	PullID PullID `wire:"pull_id"`

	HasExt bool        `wire:"-"`
	Ext    PullDoneExt `wire:",ext"`
}

// PullDoneExt is the extension of a PullDoneSignal.
type PullDoneExt struct {
	Version     uint32 `wire:"kvf_v"`                // version of these fields; its presence sets HasExt
	Incarnation UUID   `wire:"kvf_inc,omitzero"`     // the receiver's incarnation
	To          UUID   `wire:"kvf_to,omitzero"`      // the incarnation that made the offer
	Grant       uint64 `wire:"kvf_grant,omitzero"`   // the read grant that ends; 0: not stated
	Code        uint32 `wire:"kvf_code,omitzero"`    // 0 if every chunk was read and verified, otherwise why not
	Missing     uint32 `wire:"kvf_missing,omitzero"` // number of offered chunks that were not read
	Reason      []byte `wire:"kvf_reason,omitzero"`  // Code as text for people
}
