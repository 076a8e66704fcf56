package protocol

import (
	"math/bits"
	"strconv"
)

// A CallOp is the operation of a call, named as in package runtime.
type CallOp uint8

// The operations. docs/protocol-agent.md lists the fields that each operation takes.
const (
	CallUnknown CallOp = iota // an operation that this version does not know
	CallStats
	CallReserve
	CallRelease
	CallAwaitReturn
	CallAbort
	CallPut
	CallTakeBack
	CallRecall
	CallBeginPrefill
	CallSaveLayer
	CallPreemptPrefill
	CallFinishPrefill
	CallDropPrefill
	CallGet
	CallContains
	CallFetch
	CallAbandon
	CallStore
	CallShare
	CallWithdraw
	CallLookup
	CallSharedGet
	CallKeep
	CallSharedFetch
	CallRegister
	CallExpect
	CallNotNeeded
	CallFinished
	CallAborted
	CallEnd
	CallDetach
	callOps
)

var callNames = [callOps]string{
	CallUnknown: "", CallStats: "stats", CallReserve: "reserve", CallRelease: "release",
	CallAwaitReturn: "await_return", CallAbort: "abort", CallPut: "put", CallTakeBack: "take_back", CallRecall: "recall",
	CallBeginPrefill: "begin_prefill", CallSaveLayer: "save_layer", CallPreemptPrefill: "preempt_prefill",
	CallFinishPrefill: "finish_prefill", CallDropPrefill: "drop_prefill", CallGet: "get", CallContains: "contains",
	CallFetch: "fetch", CallAbandon: "abandon", CallStore: "store", CallShare: "share", CallWithdraw: "withdraw",
	CallLookup: "lookup", CallSharedGet: "shared_get", CallKeep: "keep", CallSharedFetch: "shared_fetch",
	CallRegister: "register", CallExpect: "expect", CallNotNeeded: "not_needed", CallFinished: "finished",
	CallAborted: "aborted", CallEnd: "end", CallDetach: "detach",
}

// CallOps returns all operations that this version knows.
func CallOps() []CallOp {
	all := make([]CallOp, 0, callOps-1)
	for op := CallUnknown + 1; op < callOps; op++ {
		all = append(all, op)
	}
	return all
}

// String returns the operation as it stands on the wire.
func (o CallOp) String() string {
	if o >= callOps {
		return "CallOp(" + strconv.Itoa(int(o)) + ")"
	}
	return callNames[o]
}

// ParseCallOp returns the operation with a name, or CallUnknown if there is none.
func ParseCallOp(name []byte) CallOp {
	for op := CallUnknown + 1; op < callOps; op++ {
		if callNames[op] == string(name) {
			return op
		}
	}
	return CallUnknown
}

// An EngineCall requests an operation: engine to agent, answered by an EngineAnswer, and by an EngineReturned as well
// if memory is given back later than the answer. Each operation takes its own fields (callFields); the agent refuses a
// call with other fields.
//
//wire:message name=KvfCall given
type EngineCall struct {
	ID   uint64   `wire:"id"`            // above the numbers of all earlier calls of the session
	Done []uint64 `wire:"done,omitzero"` // calls that are complete for the engine
	Op   []byte   `wire:"op"`            // see ParseCallOp
	// Target is the number of the call whose result the operation is about: pages, or shared chunks. For some
	// operations Target is the number of a put, or of any call.
	Target  uint64 `wire:"target,omitzero"`
	Prefill uint64 `wire:"prefill,omitzero"` // number of the call that began the prefill

	Keys     [][]byte `wire:"keys,omitzero,as=keys"`
	Domain   []byte   `wire:"domain,omitzero"` // the trust domain whose chunks are accepted (runtime.Get); empty: the agent's own
	Request  []byte   `wire:"request,omitzero"`
	Transfer []byte   `wire:"transfer,omitzero"`
	Engine   []byte   `wire:"engine,omitzero"` // the engine whose blocks are registered

	// The address of the peer.
	Host      []byte `wire:"host,omitzero"`
	InitPort  uint32 `wire:"init_port,omitzero,as=port"`
	AllocPort uint32 `wire:"alloc_port,omitzero,as=port"`
	QueryPort uint32 `wire:"query_port,omitzero,as=port"`

	First   uint32 `wire:"first,omitzero"`
	Count   uint32 `wire:"count,omitzero"`
	Tokens  uint32 `wire:"tokens,omitzero"`
	Layer   uint32 `wire:"layer,omitzero"`
	Skip    uint32 `wire:"skip,omitzero"`
	Last    bool   `wire:"last,omitzero"`
	Layered bool   `wire:"layered,omitzero"`
	// PatienceNS is the deadline budget, in nanoseconds, below 2^63. 0 is the node's default; for a get, 0 is no time
	// at all.
	PatienceNS uint64 `wire:"patience_ns,omitzero,as=instant"`
	LayerNS    uint64 `wire:"layer_ns,omitzero,as=instant"` // below 2^63
	// Trace is the engine's span in a distributed trace (effects.TraceContext). The agent ignores it if it does not have
	// the length of one.
	Trace []byte `wire:"trace,omitzero,bin=MessageBytes"`

	// Blocks that are registered, in lists by group.
	Ranks     uint32     `wire:"ranks,omitzero"`             // tensor-parallel size of the producer
	Stages    uint32     `wire:"stages,omitzero"`            // pipeline stages of the producer
	Producers [][]byte   `wire:"producers,omitzero"`         // each as host:init_port:port
	Groups    []uint64   `wire:"groups,omitzero,len=blocks"` // the group of each list of blocks
	Firsts    []uint64   `wire:"firsts,omitzero,len=blocks"` // the first position of each list, in kernel blocks
	Ends      []uint64   `wire:"ends,omitzero,len=blocks"`   // the position after the last block of each list
	Blocks    [][]uint64 `wire:"blocks,omitzero"`

	// The outcome of a request.
	Code   uint32 `wire:"code,omitzero"`   // 0: the request succeeded
	Reason []byte `wire:"reason,omitzero"` // Code as text
	Tenant []byte `wire:"tenant,omitzero"` // the tenant of its chunks, as effects.ParseTenant reads it; empty: the default tenant
}

// callFields holds the fields that each operation takes, as EngineCall.fieldMask returns them; all take id, done and
// op.
var callFields = func() (of [callOps]uint64) {
	const (
		peer     = engineCallHost | engineCallInitPort | engineCallAllocPort
		chunks   = engineCallTarget | engineCallFirst | engineCallKeys
		patience = engineCallPatienceNS
		named    = engineCallRequest | engineCallTransfer
		blocks   = engineCallBlocks | engineCallGroups | engineCallFirsts | engineCallEnds
		shared   = engineCallKeys | engineCallRequest | engineCallHost | engineCallInitPort | patience
	)
	of = [callOps]uint64{
		CallReserve:        engineCallCount | engineCallKeys | patience,
		CallRelease:        engineCallTarget,
		CallAwaitReturn:    engineCallTarget | patience,
		CallAbort:          engineCallTarget,
		CallPut:            chunks | peer | patience | engineCallRequest | engineCallTokens | engineCallLast | engineCallTrace,
		CallTakeBack:       engineCallTarget,
		CallRecall:         chunks | peer | patience | engineCallRequest | engineCallQueryPort | engineCallTrace,
		CallBeginPrefill:   peer | engineCallKeys | engineCallRequest | engineCallSkip | engineCallLayerNS | engineCallTrace,
		CallSaveLayer:      engineCallPrefill | engineCallTarget | engineCallLayer | engineCallTokens,
		CallPreemptPrefill: engineCallPrefill,
		CallFinishPrefill:  engineCallPrefill | patience,
		CallDropPrefill:    engineCallPrefill,
		CallGet:            engineCallKeys | engineCallDomain | engineCallRequest | engineCallLayered | patience | engineCallTrace,
		CallContains:       engineCallKeys | engineCallDomain,
		CallFetch:          engineCallKeys | engineCallDomain | engineCallRequest | patience | engineCallTrace,
		CallAbandon:        engineCallRequest | engineCallReason | engineCallTenant,
		CallStore:          chunks,
		CallShare:          chunks,
		CallWithdraw:       engineCallTarget | patience,
		CallLookup:         engineCallKeys,
		CallSharedGet:      shared | engineCallTrace,
		CallKeep:           shared,
		CallSharedFetch:    shared | engineCallTrace,
		CallRegister: named | blocks | patience | engineCallEngine | engineCallProducers | engineCallRanks |
			engineCallStages | engineCallTrace,
		CallExpect:    named | patience | engineCallProducers,
		CallNotNeeded: named | patience | engineCallProducers,
		CallFinished:  named | blocks | patience | engineCallTrace,
		CallAborted:   named,
		CallEnd:       peer | patience | engineCallRequest | engineCallCode | engineCallReason | engineCallTenant,
	}
	for op := range of {
		of[op] |= engineCallID | engineCallDone | engineCallOp | 1 // The tag.
	}
	return of
}()

// UnexpectedField returns the name of a field that is set and that the call's operation does not take, or "" if there
// is none.
func (m *EngineCall) UnexpectedField() string {
	if extra := m.fieldMask() &^ callFields[ParseCallOp(m.Op)]; extra != 0 {
		return engineCallSchema.names[bits.TrailingZeros64(extra)]
	}
	return ""
}
