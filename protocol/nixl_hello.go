package protocol

import (
	"bytes"
	"math"
)

// The side channel of vLLM's NIXL connector: a REQ socket asks a ROUTER for the metadata of one rank and receives two
// parts, a NixlHello and a NixlClock. The reference's listener terminates when it cannot decode a request.

// A NixlMetadataRequest asks for the metadata of one rank.
type NixlMetadataRequest struct {
	PPRank, TPRank uint32
}

var getMetadataText = []byte("get_meta_msg")

// Append appends the question to b.
func (m *NixlMetadataRequest) Append(b []byte) []byte {
	b = appendBin(appendArrayHeader(b, 3), getMetadataText)
	return appendUint(appendUint(b, uint64(m.PPRank)), uint64(m.TPRank))
}

// Decode fills m from b. The first element may be a str or a bin, because the reference accepts both types. The error
// is a *DecodeError.
func (m *NixlMetadataRequest) Decode(b []byte, lim *Limits) error {
	*m = NixlMetadataRequest{}
	r := newReaderFor(b, lim, "GET_META", "an array")
	if n := r.readArrayHeaderUpTo(3, ""); r.ok() && n != 3 {
		r.fail(DecodeLengthMismatch, 0, "fewer elements", "3: what is asked for, and ranks of its stage and within it")
	}
	r.field = "what is asked for"
	at, what := r.off, []byte(nil)
	if c, ok := r.peekByte(); ok && typeName(c) == "str" {
		what = r.readText()
	} else {
		what = r.readBin(r.lim.BlobBytes, "BlobBytes")
	}
	if r.ok() && !bytes.Equal(what, getMetadataText) {
		r.fail(DecodeWrongTag, at, quoteBytes(what), string(getMetadataText))
	}
	r.field = "pp_rank"
	m.PPRank = r.readUint32()
	r.field = "tp_rank"
	m.TPRank = r.readUint32()
	r.expectEnd()
	if !r.ok() {
		*m = NixlMetadataRequest{}
	}
	return r.result()
}

// A NixlHello is the first part of the reply to a NixlMetadataRequest. Receivers compare Hash before they decode
// Metadata: if the hash differs, the metadata may have another meaning.
//
//wire:untagged name=NixlHandshakePayload
type NixlHello struct {
	Hash     []byte `wire:"compatibility_hash"`                    // SHA-256 in hex of the settings in common
	Metadata []byte `wire:"agent_metadata_bytes,bin=MessageBytes"` // a NixlMetadata
}

// A NixlClock is the second part of the reply: the server's monotonic clock when it replied.
type NixlClock struct {
	Seconds float64
}

// Append appends the part to b.
func (m *NixlClock) Append(b []byte) []byte { return appendFloat(b, m.Seconds) }

// Decode fills m from b and refuses infinite values and NaN. The error is a *DecodeError.
func (m *NixlClock) Decode(b []byte, lim *Limits) error {
	*m = NixlClock{}
	r := newReaderFor(b, lim, "clock", "a float")
	r.field = "seconds"
	s := r.readFloat()
	if r.ok() && (math.IsNaN(s) || math.IsInf(s, 0)) {
		r.fail(DecodeOutOfRange, 0, "a float that is no number", "a finite one")
	}
	r.expectEnd()
	if r.ok() {
		m.Seconds = s
	}
	return r.result()
}
