package protocol

// Messages about registrations that only kvferry nodes exchange. These messages use the channel on which a registration
// is a request, and only producers that stated a geometry in the handshake receive them. Each message begins with a
// prefix, as the notifications of vLLM's connector do.

const (
	endPrefix      = "PUSH_END:"
	withdrawPrefix = "PUSH_OFF:"
	keepPrefix     = "PUSH_KEEP:"
)

// A PushKind is a kind of request on that channel.
type PushKind uint8

// The kinds.
const (
	PushKindUnknown PushKind = iota
	PushKindRegistration
	PushKindWithdrawal
	PushKindKeep
)

// PushKindOf returns the kind of a request by its prefix.
func PushKindOf(b []byte) PushKind {
	for _, of := range [...]struct {
		prefix string
		word   PushKind
	}{{registrationPrefix, PushKindRegistration}, {withdrawPrefix, PushKindWithdrawal}, {keepPrefix, PushKindKeep}} {
		if hasPrefix(b, of.prefix) {
			return of.word
		}
	}
	return PushKindUnknown
}

func hasPrefix(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix
}

// newPrefixedReader opens a message that begins with a prefix and continues with a map.
func newPrefixedReader(b []byte, lim *Limits, name, prefix string) reader {
	r := newReaderFor(b, lim, name, prefix+" and a map")
	if r.ok() && !hasPrefix(b, prefix) {
		r.fail(DecodeWrongTag, 0, quoteBytes(b[:min(len(b), len(prefix))]), prefix)
	}
	r.off = min(len(b), len(prefix))
	return r
}

// A PushEnd is the reply to a registration, a withdrawal or a PushKeep: producer to consumer. The producer sends the
// reply when no write of the operation is in flight any more, whatever the outcome. Code 0 means that all registered
// blocks are written.
//
//wire:untagged name=PUSH_END prefix=endPrefix
type PushEnd struct {
	Version     uint32 `wire:"kvf_v"`
	Incarnation UUID   `wire:"kvf_inc,omitzero"` // the producer's incarnation
	Operation   uint64 `wire:"kvf_op,omitzero"`  // number of the registration; 0 for a PushKeep
	Code        uint32 `wire:"kvf_code,omitzero"`
	Reason      []byte `wire:"kvf_reason,omitzero"` // Code as text for people
	Stamps      Stamps `wire:",inline"`             // the producer's
}

// A PushWithdrawal revokes a registration: no write of the registration may begin any more. When no write is in flight
// either, the producer answers both the withdrawal and the registration by a PushEnd.
//
//wire:untagged name=PUSH_OFF prefix=withdrawPrefix
type PushWithdrawal struct {
	Version     uint32 `wire:"kvf_v"`
	Incarnation UUID   `wire:"kvf_inc"` // the consumer's incarnation
	To          UUID   `wire:"kvf_to"`  // the producer's incarnation
	Operation   uint64 `wire:"kvf_op"`  // number of the registration
}

// A PushKeep extends the leases of requests that no registration names yet: consumer to producer, every interval while
// the requests wait, and once for requests that are not needed. The reply is a PushEnd with operation 0. The producer
// ignores unknown requests, creates nothing, and shortens no lease. A request is named by its transfer, or by the
// producer's own id, or by an id that differs from the producer's id only in the eight hexadecimal digits at the end.
//
//wire:untagged name=PUSH_KEEP prefix=keepPrefix
type PushKeep struct {
	Version     uint32   `wire:"kvf_v"`
	Incarnation UUID     `wire:"kvf_inc"`           // the consumer's incarnation
	To          UUID     `wire:"kvf_to"`            // the producer's incarnation
	Keep        [][]byte `wire:"kvf_keep,omitzero"` // requests whose leases are extended
	Skip        [][]byte `wire:"kvf_skip,omitzero"` // requests that no consumer will register for
}

// TrimRequestSuffix returns the id of a request without the suffix that an engine of vLLM appends: a dash and eight
// hexadecimal digits, once. The result is a view of id.
func TrimRequestSuffix(id []byte) []byte {
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
