package protocol

import "slices"

// A PushRegistration asks a producer to write the KV of a request into blocks of a consumer's: consumer to producer,
// each rank to each, as a notification PUSH_REG:<map>. What is named remote is the producer as its asker knows it; the
// reference's producer looks at none of it.
type PushRegistration struct {
	RequestID []byte     // the consumer's own name of it; the completion brings it back
	EngineID  []byte     // decode_engine_id: whom the producer has to reach before it writes
	Host      []byte     // decode_host: of the consumer's side channel
	Port      uint32     // decode_port: at most 65,535
	TPSize    uint32     // decode_tp_size: 1 at least
	Blocks    [][]uint64 // local_block_ids: of each transfer group the logical blocks to write, none that is cached

	Remote PushProducer

	HasExt bool
	Ext    PushRegistrationExt
}

// PushRegistrationExt is what kvferry adds, as a question that is answered by a PushEnd. Who registers grants, and
// speaks first: its stamps say how long the producer may store.
type PushRegistrationExt struct {
	Version     uint32   // kvf_v: of these fields; its presence is HasExt
	Incarnation UUID     // kvf_inc: the consumer's
	To          UUID     // kvf_to: the incarnation that the consumer believes it talks to
	Operation   uint64   // kvf_op: the same for each attempt at one registration
	Attempt     uint32   // kvf_try
	Transfer    []byte   // kvf_transfer: what who routes the request calls the transfer at both ends; empty: nothing
	First       []uint64 // kvf_first: by group the absolute position of the first block listed, in kernel blocks
	Ends        []uint64 // kvf_ends: by group the position behind the last kernel block to be written; 0: all listed
	Grant       uint64   // kvf_grant: the one write grant over all pages; 0: there are none
	Generations []uint64 // kvf_gens: the granted generation of each page that this producer writes, in the plan's order
	GrantedNS   int64    // kvf_granted_ns: when the grant began, by the consumer's clock; not negative
	LeaseNS     uint64   // kvf_lease_ns: how long it stands from there, nanoseconds
	PatienceNS  uint64   // kvf_patience_ns: how long after receipt an answer is of use, nanoseconds
	// Tail is kvf_tail: who registers says no positions, as engines of vLLM do not: the lists are the last blocks of the
	// request, and First and Ends only say how many. There are no generations then.
	Tail   bool
	Caches uint64 // kvf_caches: a sum of both ends' kvf_geometry, as who registers heard it; 0: unsaid
	Stamps Stamps // of the consumer
}

// A PushProducer is the producer that a registration is meant for. An empty name says that its asker did not say.
type PushProducer struct {
	EngineID []byte // remote_engine_id
	Host     []byte // remote_host: of its side channel
	Port     uint32 // remote_port
	TPSize   uint32 // remote_tp_size
	PPSize   uint32 // remote_pp_size: 1 where it is absent
}

// Fields of PushRegistration.
const (
	regRequestID = iota
	regEngineID
	regHost
	regPort
	regTPSize
	regBlocks
	regRemoteEngineID
	regRemoteHost
	regRemotePort
	regRemoteTPSize
	regRemotePPSize
	regVersion
	regIncarnation
	regTo
	regOperation
	regAttempt
	regTransfer
	regFirst
	regEnds
	regGrant
	regGenerations
	regGranted
	regLease
	regPatience
	regClock // the first field of Stamps
	_
	regTail
	regCaches
)

var registrationSchema = schema{
	name: "PUSH_REG",
	names: []string{
		"request_id", "decode_engine_id", "decode_host", "decode_port", "decode_tp_size", "local_block_ids",
		"remote_engine_id", "remote_host", "remote_port", "remote_tp_size", "remote_pp_size", "kvf_v", "kvf_inc", "kvf_to",
		"kvf_op", "kvf_try", "kvf_transfer", "kvf_first", "kvf_ends", "kvf_grant", "kvf_gens", "kvf_granted_ns",
		"kvf_lease_ns", "kvf_patience_ns", "kvf_clock_ns", "kvf_echo_ns", "kvf_tail",
		"kvf_caches",
	},
	required: 1<<(regBlocks+1) - 1,
}

// Append appends the notification to b, all eleven fields of it, and ours if there are any.
func (m *PushRegistration) Append(b []byte) []byte {
	n := regRemotePPSize + 1
	if m.HasExt {
		n += m.Ext.count()
	}
	b = appendMapHeader(append(b, registrationPrefix...), n)
	b = appendStr(appendStr(b, "request_id"), m.RequestID)
	b = appendStr(appendStr(b, "decode_engine_id"), m.EngineID)
	b = appendStr(appendStr(b, "decode_host"), m.Host)
	b = appendUint(appendStr(b, "decode_port"), uint64(m.Port))
	b = appendUint(appendStr(b, "decode_tp_size"), uint64(m.TPSize))
	b = appendArrayHeader(appendStr(b, "local_block_ids"), len(m.Blocks))
	for _, group := range m.Blocks {
		b = appendNumbers(b, group)
	}
	b = appendStr(appendStr(b, "remote_engine_id"), m.Remote.EngineID)
	b = appendStr(appendStr(b, "remote_host"), m.Remote.Host)
	b = appendUint(appendStr(b, "remote_port"), uint64(m.Remote.Port))
	b = appendUint(appendStr(b, "remote_tp_size"), uint64(m.Remote.TPSize))
	b = appendUint(appendStr(b, "remote_pp_size"), uint64(m.Remote.PPSize))
	if m.HasExt {
		b = m.Ext.append(b)
	}
	return b
}

// Decode fills m from b; its names are views of it. A flat list of blocks is one group, as older senders write it. A
// name that CheckNixlRequest refuses is refused. The error is a *DecodeError.
func (m *PushRegistration) Decode(b []byte, lim *Limits) error {
	*m = PushRegistration{Blocks: m.Blocks[:0], Ext: m.Ext.emptied()}
	r := openAs(b, lim, registrationSchema.name, "PUSH_REG: and a map")
	if r.ok() && NixlNoteOf(b) != NixlRegistration {
		r.fail(DecodeWrongTag, 0, quote(b[:min(len(b), len(registrationPrefix))]), registrationPrefix)
	}
	r.off = len(registrationPrefix)
	w := fields{r: &r, schema: &registrationSchema, depth: 2}
	firstAt, endsAt := 0, 0
	for w.open(); w.next(); {
		switch w.at {
		case regRequestID:
			m.RequestID = r.requestName()
		case regEngineID:
			m.EngineID = r.text()
		case regHost:
			m.Host = r.text()
		case regPort:
			m.Port = uint32(r.uint(portMax))
		case regTPSize:
			m.TPSize = r.above0()
		case regBlocks:
			m.Blocks = r.groups(m.Blocks)
		case regFirst:
			firstAt = r.off
			m.Ext.First = r.uint64s(m.Ext.First)
		case regEnds:
			endsAt = r.off
			m.Ext.Ends = r.uint64s(m.Ext.Ends)
		default:
			if w.at < regVersion {
				m.Remote.decode(&r, w.at)
			} else {
				m.Ext.decode(&r, w.at)
			}
		}
	}
	w.close()
	r.end()
	if !w.has(regRemotePPSize) {
		m.Remote.PPSize = 1
	}
	if m.HasExt = w.has(regVersion); !m.HasExt {
		m.Ext = m.Ext.emptied()
	} else {
		r.parallel("kvf_first", firstAt, len(m.Ext.First), "local_block_ids", len(m.Blocks))
		r.parallel("kvf_ends", endsAt, len(m.Ext.Ends), "local_block_ids", len(m.Blocks))
	}
	return r.result()
}

func (p *PushProducer) decode(r *reader, at int) {
	switch at {
	case regRemoteEngineID:
		p.EngineID = r.text()
	case regRemoteHost:
		p.Host = r.text()
	case regRemotePort:
		p.Port = uint32(r.uint(portMax))
	case regRemoteTPSize:
		p.TPSize = r.uint32()
	case regRemotePPSize:
		p.PPSize = r.above0()
	}
}

// emptied returns no extension, and keeps the slices for the next.
func (e *PushRegistrationExt) emptied() PushRegistrationExt {
	return PushRegistrationExt{First: e.First[:0], Ends: e.Ends[:0], Generations: e.Generations[:0]}
}

func (e *PushRegistrationExt) decode(r *reader, field int) {
	switch field {
	case regVersion:
		e.Version = r.uint32()
	case regIncarnation:
		e.Incarnation = r.uuid()
	case regTo:
		e.To = r.uuid()
	case regOperation:
		e.Operation = r.uint64()
	case regAttempt:
		e.Attempt = r.uint32()
	case regTransfer:
		e.Transfer = r.text()
	case regGrant:
		e.Grant = r.uint64()
	case regGenerations:
		e.Generations = r.blocks(e.Generations, r.lim.BlockCount)
	case regGranted:
		e.GrantedNS = r.instant()
	case regLease:
		e.LeaseNS = r.uint64()
	case regPatience:
		e.PatienceNS = r.uint64()
	case regTail:
		e.Tail = r.uint32() != 0
	case regCaches:
		e.Caches = r.uint64()
	default:
		e.Stamps.decode(r, field-regClock)
	}
}

// count says how many fields append will write.
func (e *PushRegistrationExt) count() int {
	return 1 + e.Stamps.count() + ones(e.Incarnation != UUID{}, e.To != UUID{}, e.Operation != 0, e.Attempt != 0,
		len(e.Transfer) > 0, len(e.First) > 0, len(e.Ends) > 0, e.Grant != 0, len(e.Generations) > 0, e.GrantedNS != 0,
		e.LeaseNS != 0, e.PatienceNS != 0, e.Tail, e.Caches != 0)
}

func (e *PushRegistrationExt) append(b []byte) []byte {
	b = appendUint(appendStr(b, "kvf_v"), uint64(e.Version))
	b = appendNonZeroUUID(b, "kvf_inc", e.Incarnation)
	b = appendNonZeroUUID(b, "kvf_to", e.To)
	b = appendNonZero(b, "kvf_op", e.Operation)
	b = appendNonZero(b, "kvf_try", uint64(e.Attempt))
	b = appendNonEmptyText(b, "kvf_transfer", e.Transfer)
	b = appendNonEmpty(b, "kvf_first", e.First)
	b = appendNonEmpty(b, "kvf_ends", e.Ends)
	b = appendNonZero(b, "kvf_grant", e.Grant)
	b = appendNonEmpty(b, "kvf_gens", e.Generations)
	b = appendNonZero(b, "kvf_granted_ns", uint64(e.GrantedNS))
	b = appendNonZero(b, "kvf_lease_ns", e.LeaseNS)
	b = appendNonZero(b, "kvf_patience_ns", e.PatienceNS)
	if b = e.Stamps.append(b); e.Tail {
		b = appendUint(appendStr(b, "kvf_tail"), 1)
	}
	return appendNonZero(b, "kvf_caches", e.Caches)
}

// portMax is the highest port of TCP.
const portMax = 1<<16 - 1

// requestName takes a name that notifications can have.
func (r *reader) requestName() []byte {
	at := r.off
	id := r.text()
	if r.ok() {
		if err := CheckNixlRequest(id, r.lim); err != nil {
			why := err.(*DecodeError) // It is one.
			r.fail(why.Code, at, why.Found, why.Want)
		}
	}
	return id
}

// above0 takes a number above 0.
func (r *reader) above0() uint32 {
	at := r.off
	n := r.uint32()
	if r.ok() && n == 0 {
		r.fail(DecodeOutOfRange, at, "0", "1 to 4294967295")
	}
	return n
}

// groups appends lists of blocks to vs, in the memory of those that it had. A flat list is one.
func (r *reader) groups(vs [][]uint64) [][]uint64 {
	from := r.off
	n := r.arrayUpTo(r.lim.BlockCount, "BlockCount")
	if n > 0 && r.ok() && typeName(r.b[r.off]) == "int" {
		r.off = from
		return append(vs, r.blocks(grown(vs), r.lim.BlockCount))
	}
	if n > r.lim.ArrayLen {
		r.fail(DecodeArrayTooLong, from, "too many groups", atMost(r.lim.ArrayLen, "ArrayLen"))
	}
	vs = slices.Grow(vs, n)
	for left := r.lim.BlockCount; n > 0 && r.ok(); n-- {
		group := r.blocks(grown(vs), left)
		left -= len(group)
		vs = append(vs, group)
	}
	return vs
}

// grown is the memory of the list that follows those in vs, if there was one.
func grown(vs [][]uint64) []uint64 {
	if len(vs) < cap(vs) {
		return vs[:len(vs)+1][len(vs)][:0]
	}
	return nil
}

// blocks takes a list of at most so many numbers of blocks.
func (r *reader) blocks(into []uint64, most int) []uint64 {
	n := r.arrayUpTo(most, "BlockCount")
	for into = slices.Grow(into, n); n > 0 && r.ok(); n-- {
		into = append(into, r.uint64())
	}
	return into
}
