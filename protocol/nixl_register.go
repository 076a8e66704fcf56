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
)

var registrationSchema = schema{
	name: "PUSH_REG",
	names: []string{
		"request_id", "decode_engine_id", "decode_host", "decode_port", "decode_tp_size", "local_block_ids",
		"remote_engine_id", "remote_host", "remote_port", "remote_tp_size", "remote_pp_size",
	},
	required: 1<<(regBlocks+1) - 1,
}

// Append appends the notification to b, all eleven fields of it.
func (m *PushRegistration) Append(b []byte) []byte {
	b = appendMapHeader(append(b, registrationPrefix...), len(registrationSchema.names))
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
	return appendUint(appendStr(b, "remote_pp_size"), uint64(m.Remote.PPSize))
}

// Decode fills m from b; its names are views of it. A flat list of blocks is one group, as older senders write it. A
// name that CheckNixlRequest refuses is refused. The error is a *DecodeError.
func (m *PushRegistration) Decode(b []byte, lim *Limits) error {
	*m = PushRegistration{Blocks: m.Blocks[:0]}
	r := openAs(b, lim, registrationSchema.name, "PUSH_REG: and a map")
	if r.ok() && NixlNoteOf(b) != NixlRegistration {
		r.fail(DecodeWrongTag, 0, quote(b[:min(len(b), len(registrationPrefix))]), registrationPrefix)
	}
	r.off = len(registrationPrefix)
	w := fields{r: &r, schema: &registrationSchema, depth: 2}
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
		default:
			m.Remote.decode(&r, w.at)
		}
	}
	w.close()
	r.end()
	if !w.has(regRemotePPSize) {
		m.Remote.PPSize = 1
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

// portMax is the highest port of TCP.
const portMax = 1<<16 - 1

// requestName takes a name that notifications can have.
func (r *reader) requestName() []byte {
	at := r.off
	id := r.text()
	if r.ok() {
		if err := CheckNixlRequest(id, r.lim); err != nil {
			why := err.(*DecodeError) //nolint:errorlint // It is one.
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
