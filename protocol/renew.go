package protocol

// A RenewRequest asks the grantor of read grants to extend grants, and ends grants that are no longer needed: lease
// holder to grantor, on the grantor's init channel, answered by a RenewResponse. Only peers that announced CapRenew
// receive it. Repeating the request changes only the time at which the leases expire.
//
//wire:message name=KvfRenewRequest
type RenewRequest struct {
	Version     uint32   `wire:"kvf_v"`               // version of these fields
	Incarnation UUID     `wire:"kvf_inc"`             // the lease holder's incarnation
	To          UUID     `wire:"kvf_to"`              // the incarnation that granted
	Operation   uint64   `wire:"kvf_op"`              // number of the request, the same in each attempt
	Grants      []uint64 `wire:"kvf_grants,omitzero"` // grants to be extended
	Done        []uint64 `wire:"kvf_done,omitzero"`   // grants that end: the lease holder no longer reads the pages
	Stamps      Stamps   `wire:",inline"`             // the lease holder's
}

// A RenewResponse is the reply to a RenewRequest. A grant of the request that is in none of the lists is unchanged.
//
//wire:message name=KvfRenewResponse
type RenewResponse struct {
	Version     uint32   `wire:"kvf_v"`                 // version of these fields
	Incarnation UUID     `wire:"kvf_inc"`               // the grantor's incarnation
	Extended    []uint64 `wire:"kvf_extended,omitzero"` // grants that are now in force for LeaseNS
	// LeaseNS is the length of the extended leases, in nanoseconds. For the lease holder the time begins when it sends
	// the request that this message answers, and for the grantor when the request arrives, which is never earlier.
	LeaseNS uint64   `wire:"kvf_lease_ns,omitzero"`
	Gone    []uint64 `wire:"kvf_gone,omitzero"` // grants that had ended before; they are never revived
	Done    []uint64 `wire:"kvf_done,omitzero"` // grants that ended by the request's Done, now or before
	Stamps  Stamps   `wire:",inline"`           // the grantor's
}
