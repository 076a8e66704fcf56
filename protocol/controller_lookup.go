package protocol

import (
	"slices"
	"strconv"
)

// A BatchedP2PLookupMsg asks a controller which workers have the first chunks of a request, on the reply socket.
//
//wire:message json
type BatchedP2PLookupMsg struct {
	Hashes []ChunkHash      `wire:"hashes"` // in the order of the request's tokens
	Worker `wire:",inline"` // the worker that asks
}

// A BatchedP2PLookupRetMsg is the reply to a BatchedP2PLookupMsg. LMCache's controller names one holder, and LMCache's
// workers read only the first holder.
//
//wire:message json
type BatchedP2PLookupRetMsg struct {
	// Holders are the workers that have chunks; an empty list is a miss. Decode drops entries that are misses
	// (Holder.IsMiss). If there are no holders, Append writes an entry that is a miss, because LMCache expects at least
	// one entry.
	Holders []Holder `wire:"layout_info"`
}

// A Holder is a worker that has chunks. LMCache writes a holder as an array.
type Holder struct {
	InstanceID  []byte
	Location    []byte // the backend that has the chunks
	HitChunks   uint32 // number of the lookup's chunks that the worker has, from the first chunk on
	PeerInitURL []byte // host:port of the worker's init socket
}

// IsMiss reports whether the entry is LMCache's way to write that no worker has a chunk.
func (h *Holder) IsMiss() bool { return len(h.InstanceID) == 0 || h.HitChunks == 0 }

// holderFields is the number of elements in the array of a Holder.
const holderFields = 4

func (h *Holder) appendMap(b []byte) []byte {
	b = appendArrayHeader(b, holderFields)
	b = appendStr(b, h.InstanceID)
	b = appendStr(b, h.Location)
	b = appendUint(b, uint64(h.HitChunks))
	return appendStr(b, h.PeerInitURL)
}

func appendHolders(b []byte, vs []Holder) []byte {
	b = appendArrayHeader(b, max(len(vs), 1))
	if len(vs) == 0 {
		return (&Holder{}).appendMap(b)
	}
	for i := range vs {
		b = vs[i].appendMap(b)
	}
	return b
}

// readHolders appends a list to vs, without entries that are misses.
func (r *reader) readHolders(vs []Holder) []Holder {
	n := r.readArrayHeaderUpTo(r.lim.HolderCount, "HolderCount")
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		if h := r.readHolder(); !h.IsMiss() {
			vs = append(vs, h)
		}
	}
	return vs
}

func (r *reader) readHolder() (h Holder) {
	at := r.off
	if n := r.readArrayHeaderUpTo(holderFields, ""); r.ok() && n != holderFields {
		r.fail(DecodeLengthMismatch, at, strconv.Itoa(n)+" elements", strconv.Itoa(holderFields))
	}
	h.InstanceID, h.Location = r.readText(), r.readText()
	h.HitChunks = r.readUint32()
	h.PeerInitURL = r.readText()
	return h
}
