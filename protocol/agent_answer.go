package protocol

// An EngineAnswer is the outcome of a call: agent to engine, one for each call. After a resumption the agent may send
// an answer again.
//
//wire:message name=KvfAnswer
type EngineAnswer struct {
	ID   uint64 `wire:"id"`            // number of the call
	Code uint32 `wire:"code,omitzero"` // 0: the call succeeded
	// Held is true if the node may still access memory of the call: an EngineReturned follows, whatever Code is.
	Held bool `wire:"held,omitzero"`
	// The call's result is in Pages of the pool; Lengths are the valid bytes of each page. The pages belong to the
	// engine, under the number of the call, until the engine gives the pages back.
	Pages   []uint64 `wire:"pages,omitzero"`
	Lengths []uint64 `wire:"lengths,omitzero,len=pages"`
	Hits    uint32   `wire:"hits,omitzero"`    // chunks of the prefix
	Sent    uint32   `wire:"sent,omitzero"`    // chunks that a put wrote; of a lookup the hits at this node
	Skipped uint32   `wire:"skipped,omitzero"` // chunks that the receiver had already; of a lookup the hits at peers
	// Stats is JSON, for people and for metrics; nothing keeps the text.
	Stats []byte `wire:"stats,omitzero,bin=MessageBytes"`

	// Details of an error with this Code, as in the errors of package runtime.
	Count  uint32 `wire:"count,omitzero"`
	Peer   []byte `wire:"peer,omitzero"`
	Stage  []byte `wire:"stage,omitzero"`
	Field  []byte `wire:"field,omitzero"`
	Ours   []byte `wire:"ours,omitzero"`
	Theirs []byte `wire:"theirs,omitzero"`
	Said   []byte `wire:"said,omitzero"`
	Remedy []byte `wire:"remedy,omitzero"`
}

// An EngineShow lends chunks of a fetch to the engine, for reading: agent to engine, at most one of a fetch at a time,
// answered by an EngineShown, which ends the loan.
//
//wire:message name=KvfShow
type EngineShow struct {
	ID      uint64   `wire:"id"`             // number of the call
	First   uint32   `wire:"first,omitzero"` // index of the first chunk among the keys of the call
	Pages   []uint64 `wire:"pages"`
	Lengths []uint64 `wire:"lengths,len=pages"` // the valid bytes of each page
}

// An EngineShown reports that the engine has read the chunks of an EngineShow. A code means that the engine could not
// use the chunks.
//
//wire:message name=KvfShown
type EngineShown struct {
	ID    uint64 `wire:"id"`             // number of the call
	First uint32 `wire:"first,omitzero"` // as in the EngineShow
	Code  uint32 `wire:"code,omitzero"`  // 0 continues the fetch, any other ends it
}

// An EngineReturned reports that the node no longer accesses the memory of a call: agent to engine.
//
//wire:message name=KvfReturned
type EngineReturned struct {
	ID uint64 `wire:"id"` // number of the call
}
