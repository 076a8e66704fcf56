package protocol

import (
	"slices"
	"strconv"
)

// A BatchedP2PLookupMsg asks a controller who has the first chunks of a request, on the reply socket.
type BatchedP2PLookupMsg struct {
	Hashes []ChunkHash // in the order of the request's tokens
	Worker             // who asks
}

// A BatchedP2PLookupRetMsg answers it. LMCache's controller names one holder, which its workers take, whatever follows.
type BatchedP2PLookupRetMsg struct {
	Holders []Holder // at least one, where all is as LMCache has it: NoHolder is a miss
}

// A Holder is a worker that has chunks. LMCache writes it as an array.
type Holder struct {
	InstanceID  []byte
	Location    []byte // the backend that has them
	HitChunks   uint32 // how many of the question's chunks, from the first
	PeerInitURL []byte // host:port of the worker's init socket
}

// Miss says whether the entry is LMCache's way of saying that nobody has anything.
func (h *Holder) Miss() bool { return len(h.InstanceID) == 0 || h.HitChunks == 0 }

// holderFields is how many elements the array of a Holder has.
const holderFields = 4

// Fields of BatchedP2PLookupMsg.
const (
	_ = iota // the tag
	lookupHashes
	lookupWorker // the first field of Worker
	_
)

// Fields of BatchedP2PLookupRetMsg.
const (
	_ = iota // the tag
	lookupRetLayout
)

var (
	lookupSchema = schema{
		name:     "BatchedP2PLookupMsg",
		tagged:   true,
		names:    []string{tagField, "hashes", "instance_id", "worker_id"},
		required: 1<<lookupHashes | 3<<lookupWorker,
	}
	lookupRetSchema = schema{
		name:     "BatchedP2PLookupRetMsg",
		tagged:   true,
		names:    []string{tagField, "layout_info"},
		required: 1 << lookupRetLayout,
	}
)

// Append appends the message to b.
func (m *BatchedP2PLookupMsg) Append(b []byte) []byte {
	b = appendTag(b, TagBatchedP2PLookupMsg, 3)
	return m.appendWorker(appendHashes(b, "hashes", m.Hashes))
}

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *BatchedP2PLookupMsg) Decode(b []byte, lim *Limits) error {
	*m = BatchedP2PLookupMsg{Hashes: m.Hashes[:0]}
	r, from := openEither(b, lim)
	r.expectTag(TagBatchedP2PLookupMsg)
	w := fields{r: &r, schema: &lookupSchema, depth: 2}
	for w.open(); w.next(); {
		if w.at == lookupHashes {
			m.Hashes = r.hashes(m.Hashes)
		} else {
			m.decodeWorker(&r, w.at-lookupWorker)
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}

// Append appends the message to b. Without a holder it is LMCache's miss.
func (m *BatchedP2PLookupRetMsg) Append(b []byte) []byte {
	b = appendTag(b, TagBatchedP2PLookupRetMsg, 1)
	b = appendArrayHeader(appendStr(b, "layout_info"), max(len(m.Holders), 1))
	if len(m.Holders) == 0 {
		return (&Holder{}).append(b)
	}
	for i := range m.Holders {
		b = m.Holders[i].append(b)
	}
	return b
}

func (h *Holder) append(b []byte) []byte {
	b = appendArrayHeader(b, holderFields)
	b = appendStr(b, h.InstanceID)
	b = appendStr(b, h.Location)
	b = appendUint(b, uint64(h.HitChunks))
	return appendStr(b, h.PeerInitURL)
}

// Decode fills m from b, which may be JSON; texts are views. Entries that are misses are left out, and an empty list
// is one. The error is a *DecodeError.
func (m *BatchedP2PLookupRetMsg) Decode(b []byte, lim *Limits) error {
	*m = BatchedP2PLookupRetMsg{Holders: m.Holders[:0]}
	r, from := openEither(b, lim)
	r.expectTag(TagBatchedP2PLookupRetMsg)
	w := fields{r: &r, schema: &lookupRetSchema, depth: 2}
	for w.open(); w.next(); {
		n := r.arrayUpTo(r.lim.HolderCount, "HolderCount")
		for m.Holders = slices.Grow(m.Holders, n); n > 0 && r.ok(); n-- {
			if h := r.holder(); !h.Miss() {
				m.Holders = append(m.Holders, h)
			}
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}

func (r *reader) holder() (h Holder) {
	at := r.off
	if n := r.arrayUpTo(holderFields, ""); r.ok() && n != holderFields {
		r.fail(DecodeLengthMismatch, at, strconv.Itoa(n)+" elements", strconv.Itoa(holderFields))
	}
	h.InstanceID, h.Location = r.text(), r.text()
	h.HitChunks = r.uint32()
	h.PeerInitURL = r.text()
	return h
}
