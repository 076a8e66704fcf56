package protocol

// An EndRequest reports the outcome of a request at its sender: sender to receiver, on the receiver's alloc channel,
// answered by an EndResponse. Only kvferry nodes send an EndRequest. The message needs no handshake, page or key, only
// the name of the request, so it can be delivered when no other message of the request can. Repeating the message
// changes nothing.
//
//wire:message name=KvfEndRequest
type EndRequest struct {
	Version     uint32 `wire:"kvf_v"`               // version of these fields
	Incarnation UUID   `wire:"kvf_inc,omitzero"`    // the sender's incarnation, zero before a handshake
	To          UUID   `wire:"kvf_to,omitzero"`     // the receiver's incarnation, zero before a handshake
	Operation   uint64 `wire:"kvf_op"`              // above the operations of all batches sent before
	Request     []byte `wire:"kvf_req"`             // the request, by the id of one attempt
	Code        uint32 `wire:"kvf_code,omitzero"`   // why no more of the request is sent; 0: all of it was sent
	Reason      []byte `wire:"kvf_reason,omitzero"` // Code as text for people
	Tenant      uint64 `wire:"kvf_tenant,omitzero"` // the tenant of the request's chunks, as in their keys; 0: the default tenant
}

// An EndResponse is the reply to an EndRequest: the receiver has recorded the outcome.
//
//wire:message name=KvfEndResponse
type EndResponse struct {
	Version uint32 `wire:"kvf_v"` // version of these fields
	// Code is not 0 if the receiver found a fault in what was sent. Example: its engine waits for chunks that the request
	// never had.
	Code   uint32 `wire:"kvf_code,omitzero"`
	Reason []byte `wire:"kvf_reason,omitzero"` // Code as text for people
}
