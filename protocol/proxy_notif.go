package protocol

// A ProxyNotif notifies the proxy that a prefill rank has sent the last batch of a request, or has given the request
// up: sender to proxy, never answered. The proxy counts one notification per rank.
//
//wire:message
type ProxyNotif struct {
	RequestID []byte `wire:"req_id"` // the proxy's id of the request

	// HasExt is true if both fields below are on the wire.
	HasExt bool   `wire:"-"`
	Failed uint32 `wire:"kvf_failed,with=HasExt"` // number of chunks known to be missing at the receiver
	Rank   uint32 `wire:"kvf_rank,with=HasExt"`   // the sender's rank
}
