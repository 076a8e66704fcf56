package protocol

// Words about registrations that are kvferry's own. They go on the channel on which a registration is a question, to
// producers whose hello told a geometry; no plain peer is ever sent one. Each begins as notifications do.

const (
	endPrefix      = "PUSH_END:"
	withdrawPrefix = "PUSH_OFF:"
	keepPrefix     = "PUSH_KEEP:"
)

// A PushWord says what a message on that channel is.
type PushWord uint8

// What a message is.
const (
	PushUnknown PushWord = iota
	PushRegisters
	PushWithdraws
	PushKeeps
)

// PushWordOf says what a question is by how it begins.
func PushWordOf(b []byte) PushWord {
	for _, of := range [...]struct {
		prefix string
		word   PushWord
	}{{registrationPrefix, PushRegisters}, {withdrawPrefix, PushWithdraws}, {keepPrefix, PushKeeps}} {
		if len(b) >= len(of.prefix) && string(b[:len(of.prefix)]) == of.prefix {
			return of.word
		}
	}
	return PushUnknown
}

// A PushEnd answers a registration, a withdrawal or a word on requests: producer to consumer. It comes when nothing of
// that operation writes any more, whatever became of it. Code 0 says that all that was registered has been written.
type PushEnd struct {
	Version     uint32 // kvf_v
	Incarnation UUID   // kvf_inc: the producer's
	Operation   uint64 // kvf_op: of the registration; 0 is of none
	Code        uint32 // kvf_code
	Reason      []byte // kvf_reason: Code for people
	Stamps      Stamps // of the producer
}

// Fields of PushEnd.
const (
	endVersion = iota
	endIncarnation
	endOperation
	endCode
	endReason
	endClock // the first field of Stamps
	_
)

var pushEndSchema = schema{
	name:     "PUSH_END",
	names:    []string{"kvf_v", "kvf_inc", "kvf_op", "kvf_code", "kvf_reason", "kvf_clock_ns", "kvf_echo_ns"},
	required: 1 << endVersion,
}

// Append appends the message to b.
func (m *PushEnd) Append(b []byte) []byte {
	b = appendMapHeader(append(b, endPrefix...), 1+m.Stamps.count()+
		ones(m.Incarnation != UUID{}, m.Operation != 0, m.Code != 0, len(m.Reason) > 0))
	b = appendUint(appendStr(b, "kvf_v"), uint64(m.Version))
	b = appendNonZeroUUID(b, "kvf_inc", m.Incarnation)
	b = appendNonZero(b, "kvf_op", m.Operation)
	b = appendNonZero(b, "kvf_code", uint64(m.Code))
	b = appendNonEmptyText(b, "kvf_reason", m.Reason)
	return m.Stamps.append(b)
}

// Decode fills m from b; Reason is a view of it. The error is a *DecodeError.
func (m *PushEnd) Decode(b []byte, lim *Limits) error {
	*m = PushEnd{}
	r := openWord(b, lim, pushEndSchema.name, endPrefix)
	w := fields{r: &r, schema: &pushEndSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case endVersion:
			m.Version = r.uint32()
		case endIncarnation:
			m.Incarnation = r.uuid()
		case endOperation:
			m.Operation = r.uint64()
		case endCode:
			m.Code = r.uint32()
		case endReason:
			m.Reason = r.text()
		default:
			m.Stamps.decode(&r, w.at-endClock)
		}
	}
	w.close()
	r.end()
	return r.result()
}

// openWord begins to read what begins so.
func openWord(b []byte, lim *Limits, name, prefix string) reader {
	r := openAs(b, lim, name, prefix+" and a map")
	if r.ok() && (len(b) < len(prefix) || string(b[:len(prefix)]) != prefix) {
		r.fail(DecodeWrongTag, 0, quote(b[:min(len(b), len(prefix))]), prefix)
	}
	r.off = min(len(b), len(prefix))
	return r
}

// A PushWithdrawal says that a consumer wants its blocks back: no write of that registration is to begin any more. It
// is answered by a PushEnd when none is under way either, and so is the registration itself.
type PushWithdrawal struct {
	Version     uint32 // kvf_v
	Incarnation UUID   // kvf_inc: the consumer's
	To          UUID   // kvf_to: the producer's
	Operation   uint64 // kvf_op: of the registration
}

// Fields of PushWithdrawal.
const (
	offVersion = iota
	offIncarnation
	offTo
	offOperation
)

var pushWithdrawalSchema = schema{
	name:     "PUSH_OFF",
	names:    []string{"kvf_v", "kvf_inc", "kvf_to", "kvf_op"},
	required: 1<<(offOperation+1) - 1,
}

// Append appends the message to b.
func (m *PushWithdrawal) Append(b []byte) []byte {
	b = appendMapHeader(append(b, withdrawPrefix...), len(pushWithdrawalSchema.names))
	b = appendUint(appendStr(b, "kvf_v"), uint64(m.Version))
	b = appendUUID(appendStr(b, "kvf_inc"), m.Incarnation)
	b = appendUUID(appendStr(b, "kvf_to"), m.To)
	return appendUint(appendStr(b, "kvf_op"), m.Operation)
}

// Decode fills m from b. The error is a *DecodeError.
func (m *PushWithdrawal) Decode(b []byte, lim *Limits) error {
	*m = PushWithdrawal{}
	r := openWord(b, lim, pushWithdrawalSchema.name, withdrawPrefix)
	w := fields{r: &r, schema: &pushWithdrawalSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case offVersion:
			m.Version = r.uint32()
		case offIncarnation:
			m.Incarnation = r.uuid()
		case offTo:
			m.To = r.uuid()
		case offOperation:
			m.Operation = r.uint64()
		}
	}
	w.close()
	r.end()
	return r.result()
}

// A PushKeep tells a producer of requests that no registration names yet: consumer to producer, every interval while
// they wait, and once for those that are not needed. It is answered by a PushEnd of no operation. What is unknown there
// is passed over, nothing is made by it, and no lease becomes shorter. A name is that of the transfer, or the
// producer's own of the request, or one that equals it but for the eight hexadecimal digits at its end.
type PushKeep struct {
	Version     uint32   // kvf_v
	Incarnation UUID     // kvf_inc: the consumer's
	To          UUID     // kvf_to: the producer's
	Keep        [][]byte // kvf_keep: to be kept for longer
	Skip        [][]byte // kvf_skip: nobody will register for
}

// Fields of PushKeep.
const (
	keepVersion = iota
	keepIncarnation
	keepTo
	keepKeep
	keepSkip
)

var pushKeepSchema = schema{
	name:     "PUSH_KEEP",
	names:    []string{"kvf_v", "kvf_inc", "kvf_to", "kvf_keep", "kvf_skip"},
	required: 1<<(keepTo+1) - 1,
}

// Append appends the message to b.
func (m *PushKeep) Append(b []byte) []byte {
	b = appendMapHeader(append(b, keepPrefix...), 3+ones(len(m.Keep) > 0, len(m.Skip) > 0))
	b = appendUint(appendStr(b, "kvf_v"), uint64(m.Version))
	b = appendUUID(appendStr(b, "kvf_inc"), m.Incarnation)
	b = appendUUID(appendStr(b, "kvf_to"), m.To)
	if len(m.Keep) > 0 {
		b = appendStrs(b, "kvf_keep", m.Keep)
	}
	if len(m.Skip) > 0 {
		b = appendStrs(b, "kvf_skip", m.Skip)
	}
	return b
}

// Decode fills m from b; its names are views of it. The error is a *DecodeError.
func (m *PushKeep) Decode(b []byte, lim *Limits) error {
	*m = PushKeep{Keep: m.Keep[:0], Skip: m.Skip[:0]}
	r := openWord(b, lim, pushKeepSchema.name, keepPrefix)
	w := fields{r: &r, schema: &pushKeepSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case keepVersion:
			m.Version = r.uint32()
		case keepIncarnation:
			m.Incarnation = r.uuid()
		case keepTo:
			m.To = r.uuid()
		case keepKeep:
			m.Keep = r.texts(m.Keep)
		case keepSkip:
			m.Skip = r.texts(m.Skip)
		}
	}
	w.close()
	r.end()
	return r.result()
}

// NixlBase is a request's name without what an engine of vLLM puts behind it: one dash and eight hexadecimal digits, at
// the end, once. It is a view of id.
func NixlBase(id []byte) []byte {
	const tail = 9
	if len(id) < tail || id[len(id)-tail] != '-' {
		return id
	}
	for _, c := range id[len(id)-tail+1:] {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return id
		}
	}
	return id[:len(id)-tail]
}
