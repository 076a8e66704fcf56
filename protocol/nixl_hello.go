package protocol

import (
	"bytes"
	"math"
)

// The side channel of vLLM's NIXL connector: a REQ socket asks a ROUTER for the metadata of one rank, and has two parts
// back, a NixlHello and the server's clock. The reference's listener ends for good at a question that it cannot read.

// A NixlQuestion asks for what one rank says of itself.
type NixlQuestion struct {
	PPRank, TPRank uint32
}

var getMeta = []byte("get_meta_msg")

// Append appends the question to b.
func (m *NixlQuestion) Append(b []byte) []byte {
	b = appendBin(appendArrayHeader(b, 3), getMeta)
	return appendUint(appendUint(b, uint64(m.PPRank)), uint64(m.TPRank))
}

// Decode fills m from b. What it asks for may be a str or bytes, as the reference's reader takes both. The error is a
// *DecodeError.
func (m *NixlQuestion) Decode(b []byte, lim *Limits) error {
	*m = NixlQuestion{}
	r := openAs(b, lim, "GET_META", "an array")
	if n := r.arrayUpTo(3, ""); r.ok() && n != 3 {
		r.fail(DecodeLengthMismatch, 0, "fewer elements", "3: what is asked for, and ranks of its stage and within it")
	}
	r.field = "what is asked for"
	at, what := r.off, []byte(nil)
	if c, ok := r.lead(); ok && typeName(c) == "str" {
		what = r.text()
	} else {
		what = r.bin()
	}
	if r.ok() && !bytes.Equal(what, getMeta) {
		r.fail(DecodeWrongTag, at, quote(what), string(getMeta))
	}
	r.field = "pp_rank"
	m.PPRank = r.uint32()
	r.field = "tp_rank"
	m.TPRank = r.uint32()
	r.end()
	if !r.ok() {
		*m = NixlQuestion{}
	}
	return r.result()
}

// A NixlHello answers it. Hash is compared before anything of Metadata is read: what differs in it may differ in its
// meaning.
type NixlHello struct {
	Hash     []byte // compatibility_hash: SHA-256 in hex, of what both ends must have in common
	Metadata []byte // agent_metadata_bytes: a NixlMetadata
}

// Fields of NixlHello.
const (
	nixlHelloHash = iota
	nixlHelloMetadata
)

var nixlHelloSchema = schema{
	name:     "NixlHandshakePayload",
	names:    []string{"compatibility_hash", "agent_metadata_bytes"},
	required: 1<<nixlHelloHash | 1<<nixlHelloMetadata,
}

// Append appends the message to b.
func (m *NixlHello) Append(b []byte) []byte {
	b = appendStr(appendStr(appendMapHeader(b, 2), "compatibility_hash"), m.Hash)
	return appendBin(appendStr(b, "agent_metadata_bytes"), m.Metadata)
}

// Decode fills m from b; both fields are views of it. The error is a *DecodeError.
func (m *NixlHello) Decode(b []byte, lim *Limits) error {
	*m = NixlHello{}
	r := open(b, lim)
	w := fields{r: &r, schema: &nixlHelloSchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == nixlHelloHash {
			m.Hash = r.text()
		} else {
			m.Metadata = r.binUpTo(r.lim.MessageBytes, "MessageBytes")
		}
	}
	w.close()
	r.end()
	return r.result()
}

// A NixlClock is the second part of the answer: the server's monotonic clock when it answered.
type NixlClock struct {
	Seconds float64
}

// Append appends the part to b.
func (m *NixlClock) Append(b []byte) []byte { return appendFloat(b, m.Seconds) }

// Decode fills m from b. It is finite. The error is a *DecodeError.
func (m *NixlClock) Decode(b []byte, lim *Limits) error {
	*m = NixlClock{}
	r := openAs(b, lim, "clock", "a float")
	r.field = "seconds"
	s := r.float()
	if r.ok() && (math.IsNaN(s) || math.IsInf(s, 0)) {
		r.fail(DecodeOutOfRange, 0, "a float that is no number", "a finite one")
	}
	r.end()
	if r.ok() {
		m.Seconds = s
	}
	return r.result()
}
