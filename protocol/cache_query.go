package protocol

// A CacheQueryRequest asks which of these chunks a prefill rank may read back: prefill rank to decode rank, on the
// decode rank's query port, answered by a CacheQueryResponse. The query does not consume the chunks.
//
//wire:message
type CacheQueryRequest struct {
	Keys [][]byte `wire:"keys,as=keys"` // as text, in the order of the request's tokens

	HasExt bool          `wire:"-"`
	Ext    CacheQueryExt `wire:",ext"`
}

// CacheQueryExt is the extension of a CacheQueryRequest. A message without keys and with a Done list is a request of
// its own, which ends grants; only peers that announced CapRecall receive such a message.
type CacheQueryExt struct {
	Version     uint32 `wire:"kvf_v"`            // version of these fields; its presence sets HasExt
	Incarnation UUID   `wire:"kvf_inc,omitzero"` // the prefill rank's incarnation
	// To is the decode rank's incarnation, as far as the prefill rank knows.
	To        UUID   `wire:"kvf_to,omitzero"`
	Operation uint64 `wire:"kvf_op,omitzero"`  // number of the query, the same in each attempt
	Attempt   uint32 `wire:"kvf_try,omitzero"` // number of the attempt
	// PatienceNS is the deadline budget: how long after receipt a reply is of use; nanoseconds.
	PatienceNS uint64   `wire:"kvf_patience_ns,omitzero"`
	Request    []byte   `wire:"kvf_req,omitzero"`  // the proxy's id of the request, may be empty
	Done       []uint64 `wire:"kvf_done,omitzero"` // grants that end: the prefill rank no longer reads the pages
	// Trace is the prefill rank's span, as in AllocExt.
	Trace []byte `wire:"kvf_trace,omitzero,bin=MessageBytes"`
}

// A CacheQueryResponse is the reply to a CacheQueryRequest. Between kvferry nodes the chunks are the longest prefix of
// the query's keys that the decode rank has, and the grant keeps the pages of the chunks unchanged. A vanilla decode
// rank promises nothing: the pages may hold other chunks by the time the reply arrives.
//
//wire:message
type CacheQueryResponse struct {
	CachedKeys [][]byte `wire:"cached_keys,as=keys"` // the keys of the chunks, as in the query
	// CachedIndexes are the pages of the chunks in the first registered buffer; the range is unchecked.
	CachedIndexes []int64 `wire:"cached_indexes,len=cached_keys"`

	HasExt bool          `wire:"-"`
	Ext    CacheReplyExt `wire:",ext"`
}

// CacheReplyExt is the extension of a CacheQueryResponse.
type CacheReplyExt struct {
	Version     uint32 `wire:"kvf_v"`            // version of these fields; its presence sets HasExt
	Incarnation UUID   `wire:"kvf_inc,omitzero"` // the decode rank's incarnation
	// Grant is the read grant over all pages of the reply; 0: none.
	Grant       uint64   `wire:"kvf_grant,omitzero"`
	Generations []uint64 `wire:"kvf_gens,omitzero,len=cached_keys|0"` // the granted generation of each page
	// Lengths are the valid bytes of each chunk; empty if each chunk fills its page.
	Lengths []uint64 `wire:"kvf_lengths,omitzero,len=cached_keys|0"`
	// Sums are the checksums of the chunks' valid bytes, as in AllocExt.
	Sums []uint64 `wire:"kvf_sums,omitzero,len=cached_keys|0"`
	// LeaseNS is how long the grant is in force, in nanoseconds. For the prefill rank the lease begins when the rank
	// sends the query, and for the decode rank when that rank sends the reply, which is later.
	LeaseNS uint64   `wire:"kvf_lease_ns,omitzero"`
	Code    uint32   `wire:"kvf_code,omitzero"`     // why nothing can be read; 0 if the list is complete
	RetryNS uint64   `wire:"kvf_retry_ns,omitzero"` // when to query again, from receipt; ns; 0: unknown
	Done    []uint64 `wire:"kvf_done,omitzero"`     // grants that ended by the query's Done, now or before
	Reason  []byte   `wire:"kvf_reason,omitzero"`   // Code as text for people
}
