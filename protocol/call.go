package protocol

import (
	"math/bits"
	"strconv"
)

// A CallOp is what a call asks for, by the words of package runtime.
type CallOp uint8

// What calls ask for. docs/protocol-agent.md has the fields that each takes.
const (
	CallUnknown CallOp = iota // nothing that this version knows
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

// CallOps are all that there are.
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

// CallOpOf returns CallUnknown for a name it does not know.
func CallOpOf(name []byte) CallOp {
	for op := CallUnknown + 1; op < callOps; op++ {
		if callNames[op] == string(name) {
			return op
		}
	}
	return CallUnknown
}

// An EngineCall asks the agent for something: engine to agent, answered by one EngineAnswer, and where memory comes
// back later than that, by one EngineReturned. Which fields an operation takes is its own; what it does not take is
// refused. PatienceNS and LayerNS have 63 bits, ports 16.
type EngineCall struct {
	ID   uint64   // id: above those of all calls of the session before
	Done []uint64 // done: calls of which the engine has had everything
	Op   []byte   // op: see CallOpOf
	// Target is what it is about, by the number of the call that brought it: pages, what is shared; or a put, or any call.
	Target  uint64 // target
	Prefill uint64 // prefill: likewise

	Keys     [][]byte // keys
	Request  []byte   // request
	Transfer []byte   // transfer
	Engine   []byte   // engine: of whose blocks

	// The peer.
	Host                           []byte // host
	InitPort, AllocPort, QueryPort uint32 // init_port, alloc_port, query_port

	First, Count, Tokens, Layer, Skip uint32 // first, count, tokens, layer, skip
	Last, Layered                     bool   // last, layered
	PatienceNS                        uint64 // patience_ns: 0 is the node's own, but of a get, where it is none
	LayerNS                           uint64 // layer_ns

	// Blocks that are registered. Blocks, Groups, Firsts and Ends are as long as each other.
	Ranks, Stages uint32     // ranks, stages: of the producer
	Producers     [][]byte   // producers: each as host:init_port:port
	Groups        []uint64   // groups: of each list of blocks
	Firsts, Ends  []uint64   // firsts, ends: positions, in kernel blocks
	Blocks        [][]uint64 // blocks

	// How a request ended.
	Code   uint32 // code: 0 is well
	Reason []byte // reason: in words
}

// Fields of EngineCall.
const (
	_ = iota // the tag
	callID
	callDone
	callOp
	callTarget
	callPrefill
	callKeys
	callRequest
	callTransfer
	callEngine
	callHost
	callInitPort
	callAllocPort
	callQueryPort
	callFirst
	callCount
	callTokens
	callLayer
	callSkip
	callLast
	callLayered
	callPatience
	callLayerTime
	callRanks
	callStages
	callProducers
	callGroups
	callFirsts
	callEnds
	callBlocks
	callCode
	callReason
)

var engineCallSchema = schema{
	name: "KvfCall", tagged: true,
	names: []string{
		tagField, "id", "done", "op", "target", "prefill", "keys", "request", "transfer", "engine", "host", "init_port",
		"alloc_port", "query_port", "first", "count", "tokens", "layer", "skip", "last", "layered", "patience_ns", "layer_ns",
		"ranks", "stages", "producers", "groups", "firsts", "ends", "blocks",
		"code", "reason",
	},
	required: 1<<callID | 1<<callOp,
}

// given are the fields that the message has, as bits: the tag and those without a default, and what is not zero.
func (m *EngineCall) given() uint64 {
	return marks(true, true, len(m.Done) > 0, true, m.Target != 0, m.Prefill != 0, len(m.Keys) > 0,
		len(m.Request) > 0, len(m.Transfer) > 0, len(m.Engine) > 0, len(m.Host) > 0, m.InitPort != 0, m.AllocPort != 0,
		m.QueryPort != 0, m.First != 0, m.Count != 0, m.Tokens != 0, m.Layer != 0, m.Skip != 0, m.Last, m.Layered,
		m.PatienceNS != 0, m.LayerNS != 0, m.Ranks != 0, m.Stages != 0, len(m.Producers) > 0, len(m.Groups) > 0,
		len(m.Firsts) > 0, len(m.Ends) > 0, len(m.Blocks) > 0, m.Code != 0, len(m.Reason) > 0)
}

// Append appends the message to b.
func (m *EngineCall) Append(b []byte) []byte {
	b = appendTag(b, TagEngineCall, bits.OnesCount64(m.given())-1)
	b = appendUint(appendStr(b, "id"), m.ID)
	b = appendNonEmpty(b, "done", m.Done)
	b = appendStr(appendStr(b, "op"), m.Op)
	b = appendNonZero(b, "target", m.Target)
	b = appendNonZero(b, "prefill", m.Prefill)
	b = appendNonEmptyTexts(b, "keys", m.Keys)
	b = appendNonEmptyText(b, "request", m.Request)
	b = appendNonEmptyText(b, "transfer", m.Transfer)
	b = appendNonEmptyText(b, "engine", m.Engine)
	b = appendNonEmptyText(b, "host", m.Host)
	b = appendNonZero(b, "init_port", uint64(m.InitPort))
	b = appendNonZero(b, "alloc_port", uint64(m.AllocPort))
	b = appendNonZero(b, "query_port", uint64(m.QueryPort))
	b = appendNonZero(b, "first", uint64(m.First))
	b = appendNonZero(b, "count", uint64(m.Count))
	b = appendNonZero(b, "tokens", uint64(m.Tokens))
	b = appendNonZero(b, "layer", uint64(m.Layer))
	b = appendNonZero(b, "skip", uint64(m.Skip))
	b = appendTrue(b, "last", m.Last)
	b = appendTrue(b, "layered", m.Layered)
	b = appendNonZero(b, "patience_ns", m.PatienceNS)
	b = appendNonZero(b, "layer_ns", m.LayerNS)
	b = appendNonZero(b, "ranks", uint64(m.Ranks))
	b = appendNonZero(b, "stages", uint64(m.Stages))
	b = appendNonEmptyTexts(b, "producers", m.Producers)
	b = appendNonEmpty(b, "groups", m.Groups)
	b = appendNonEmpty(b, "firsts", m.Firsts)
	b = appendNonEmpty(b, "ends", m.Ends)
	if len(m.Blocks) > 0 {
		b = appendArrayHeader(appendStr(b, "blocks"), len(m.Blocks))
		for _, group := range m.Blocks {
			b = appendNumbers(b, group)
		}
	}
	b = appendNonZero(b, "code", uint64(m.Code))
	return appendNonEmptyText(b, "reason", m.Reason)
}

// Decode fills m from b; texts are views of it. The error is a *DecodeError.
func (m *EngineCall) Decode(b []byte, lim *Limits) error {
	*m = EngineCall{
		Done: m.Done[:0], Keys: m.Keys[:0], Producers: m.Producers[:0], Groups: m.Groups[:0], Firsts: m.Firsts[:0],
		Ends: m.Ends[:0], Blocks: m.Blocks[:0],
	}
	r := open(b, lim)
	r.expectTag(TagEngineCall)
	w := fields{r: &r, schema: &engineCallSchema, depth: 2}
	groupsAt, firstsAt, endsAt := 0, 0, 0
	for w.open(); w.next(); {
		switch w.at {
		case callGroups:
			groupsAt = r.off
		case callFirsts:
			firstsAt = r.off
		case callEnds:
			endsAt = r.off
		}
		switch {
		case w.at < callFirst:
			m.decodeSubject(&r, w.at)
		case w.at < callRanks:
			m.decodeNumber(&r, w.at)
		case w.at < callCode:
			m.decodeBlocks(&r, w.at)
		case w.at == callCode:
			m.Code = r.uint32()
		default:
			m.Reason = r.text()
		}
	}
	w.close()
	r.end()
	if r.ok() {
		r.parallel("groups", groupsAt, len(m.Groups), "blocks", len(m.Blocks))
		r.parallel("firsts", firstsAt, len(m.Firsts), "blocks", len(m.Blocks))
		r.parallel("ends", endsAt, len(m.Ends), "blocks", len(m.Blocks))
	}
	return r.result()
}

// decodeSubject reads what says what is called for, and about what.
func (m *EngineCall) decodeSubject(r *reader, field int) {
	switch field {
	case callID:
		m.ID = r.uint64()
	case callDone:
		m.Done = r.uint64s(m.Done)
	case callOp:
		m.Op = r.text()
	case callTarget:
		m.Target = r.uint64()
	case callPrefill:
		m.Prefill = r.uint64()
	case callKeys:
		m.Keys = r.keys(m.Keys)
	case callRequest:
		m.Request = r.text()
	case callTransfer:
		m.Transfer = r.text()
	case callEngine:
		m.Engine = r.text()
	case callHost:
		m.Host = r.text()
	case callInitPort:
		m.InitPort = uint32(r.uint(portMax))
	case callAllocPort:
		m.AllocPort = uint32(r.uint(portMax))
	case callQueryPort:
		m.QueryPort = uint32(r.uint(portMax))
	}
}

func (m *EngineCall) decodeNumber(r *reader, field int) {
	switch field {
	case callFirst:
		m.First = r.uint32()
	case callCount:
		m.Count = r.uint32()
	case callTokens:
		m.Tokens = r.uint32()
	case callLayer:
		m.Layer = r.uint32()
	case callSkip:
		m.Skip = r.uint32()
	case callLast:
		m.Last = r.boolean()
	case callLayered:
		m.Layered = r.boolean()
	case callPatience:
		m.PatienceNS = uint64(r.instant())
	case callLayerTime:
		m.LayerNS = uint64(r.instant())
	}
}

func (m *EngineCall) decodeBlocks(r *reader, field int) {
	switch field {
	case callRanks:
		m.Ranks = r.uint32()
	case callStages:
		m.Stages = r.uint32()
	case callProducers:
		m.Producers = r.texts(m.Producers)
	case callGroups:
		m.Groups = r.uint64s(m.Groups)
	case callFirsts:
		m.Firsts = r.uint64s(m.Firsts)
	case callEnds:
		m.Ends = r.uint64s(m.Ends)
	case callBlocks:
		m.Blocks = r.groups(m.Blocks)
	}
}
