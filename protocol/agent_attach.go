package protocol

// The messages between an engine's process and the agent of its host, on a Unix socket: docs/protocol-agent.md. Each
// message is one frame: four bytes of length (little-endian) and the msgpack bytes. The socket is a stream: messages
// arrive once and in order, or the connection ends.

// AttachVersion is the version of these messages. Both ends state their version first; the agent refuses an engine of
// another version.
const AttachVersion = 1

// An AttachRequest is the first message of a connection: engine to agent, answered by an AttachResponse. A request with
// a Session resumes that session, which only the process that began the session may do.
//
//wire:message name=KvfAttachRequest
type AttachRequest struct {
	Version     uint32 `wire:"v"`
	Name        []byte `wire:"name,omitzero"`    // the engine's name, for people; may be empty
	Session     uint64 `wire:"session,omitzero"` // the session to resume; 0 begins one
	Incarnation UUID   `wire:"life,omitzero"`    // the agent's incarnation in that session; zero without a session
	// Open lists the calls that the engine sent and that are not complete: the engine lacks the answer, or the return of
	// held memory. The agent drops what it keeps for all calls that are not in the list, lost answers included.
	Open []uint64 `wire:"open,omitzero"`
	// Process is the number by which the device's driver knows the engine's process; the agent gives this process access
	// to its memory. 0: the engine has no device.
	Process uint32 `wire:"device_process,omitzero"`
	// Adopts is true if the engine uses the pool as its own memory from now on. The pool then consists of blocks that the
	// engine names by number, and no other engine may have blocks in the pool at the same time.
	Adopts bool `wire:"adopts,omitzero"`
}

// An AttachResponse is the reply to an AttachRequest. If Code is 0 and not all pages are device memory (DeviceKey
// without DevicePages), the first byte of the frame carries a file descriptor: the memory that holds the pages, to be
// mapped for reading and writing. The file is the same throughout the agent's incarnation.
//
//wire:message name=KvfAttachResponse
type AttachResponse struct {
	Version     uint32 `wire:"v"`
	Session     uint64 `wire:"session,omitzero"` // the current session; call numbers belong to it
	Incarnation UUID   `wire:"life,omitzero"`    // the agent's incarnation
	// Resumed is true if the requested session goes on. Otherwise the agent has dropped everything of that session, and
	// the session's chunks are misses.
	Resumed bool   `wire:"resumed,omitzero"`
	Code    uint32 `wire:"code,omitzero"`   // why the engine is not attached; 0: the engine is attached
	Reason  []byte `wire:"reason,omitzero"` // Code as text for people, with the remedy
	// Page i begins at Offset + i*PageBytes of the file, or of the memory that DeviceKey imports.
	Offset    uint64   `wire:"offset,omitzero"`
	PageBytes uint64   `wire:"page_bytes,omitzero"`
	Pages     uint32   `wire:"pages,omitzero"`  // number of pages of the pool
	Layers    uint32   `wire:"layers,omitzero"` // pages of a chunk in a layerwise push; 1: no layerwise push
	Window    uint32   `wire:"window,omitzero"` // limit on calls in flight
	Keys      uint32   `wire:"keys,omitzero"`   // limit on the keys of one call
	Bytes     uint32   `wire:"bytes,omitzero"`  // limit on the bytes of one message to the agent
	Sides     [][]byte `wire:"sides,omitzero"`  // which of "sender", "receiver", "sharing", "blocks" the node has
	// Tenants is true if the pages of a tenant are limited (tenant_share_pct). A call that reserves pages then names a key
	// of the chunks that the pages are for, so that they count for the tenant of the key. Without it no such call has keys.
	Tenants bool `wire:"tenants,omitzero"`
	// Producer is the address at which a node with "blocks" accepts registrations, in the form of EngineCall.Producers.
	Producer []byte `wire:"producer,omitzero"`
	// DeviceKey is the key by which AscendCL in the engine's process imports the pool (aclrtIpcMemImportByKey) if the
	// pool is device memory; empty: the pool is a file.
	DeviceKey []byte `wire:"device_key,omitzero"`
	// Device is the device's number on the host, by which processes that see other devices find the device, and
	// DeviceBytes the number of bytes in use from the start of the imported memory. Both are present also if the engine
	// is refused, so that the next AttachRequest can state the number of the engine's process on that device.
	Device      uint32 `wire:"device,omitzero"`
	DeviceBytes uint64 `wire:"device_bytes,omitzero"`
	// DevicePages is the number of pages of a second pool, beside the file: page DeviceFrom + i begins at DeviceOffset +
	// i*PageBytes of the imported memory. 0: DeviceKey, if there is a key, imports all pages, and there is no file.
	DevicePages  uint32 `wire:"device_pages,omitzero"`
	DeviceFrom   uint32 `wire:"device_from,omitzero"`
	DeviceOffset uint64 `wire:"device_offset,omitzero"`
	// The layout of a whole chunk, as LMCache describes it.
	Format Format `wire:"fmt"`
	Shape  Shape  `wire:"shape"`
	Dtype  Dtype  `wire:"dtype"`
}
