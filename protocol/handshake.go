package protocol

import "strconv"

// A HixlInitRequest opens the handshake, step 1. The peer that wants to transfer sends the request.
//
//wire:message
type HixlInitRequest struct {
	LocalID  []byte `wire:"local_id"`  // the requester's id: LMCache's JoinedID, or host:port; "" from some old senders
	EngineID []byte `wire:"engine_id"` // the requester's transfer engine, ip:port

	HasExt bool     `wire:"-"`
	Ext    HelloExt `wire:",ext"`
}

// A HixlInitResponse is the reply to a HixlInitRequest.
//
//wire:message
type HixlInitResponse struct {
	EngineID []byte `wire:"engine_id"` // the server's transfer engine, ip:port

	HasExt bool     `wire:"-"`
	Ext    HelloExt `wire:",ext"`
}

// Capabilities of a peer, bits of HelloExt.Caps.
const (
	CapCommit uint64 = 1 << iota // accepts AllocRequests without keys, which commit and abort grants
	CapLease                     // grants for a stated time, and keeps to it
	CapPull                      // accepts PullReadyNotifs without keys, which withdraw offers
	CapRenew                     // accepts RenewRequests for the grants that it gave
	CapRecall                    // answers CacheQueryRequests with grants; requests without keys end grants
	CapLayers                    // accepts single layers of chunks; with Layers and without it, whole chunks only
)

// HelloExt is the extension of both messages of step 1, by which two kvferry nodes recognise each other.
type HelloExt struct {
	ProtoMin, ProtoMax uint32 `wire:"kvf_proto"` // the versions spoken, both included; their presence sets HasExt

	Incarnation UUID   `wire:"kvf_inc,omitzero"`  // names the incarnation for this peer only
	Caps        uint64 `wire:"kvf_caps,omitzero"` // Cap bits; unknown bits are kept
	// Window is the limit on requests in flight per connection to an alloc port; 0 means 1.
	Window    uint32 `wire:"kvf_window,omitzero"`
	PageBytes uint64 `wire:"kvf_page_bytes,omitzero"`              // page size of the pools; 0 if not stated
	Layout    Layout `wire:"kvf_fmt kvf_shape kvf_dtype,omitzero"` // layout of a chunk; zero if not stated
	// Planes are the names of data planes, in order of preference.
	Planes [][]byte `wire:"kvf_planes,omitzero,as=planes"`
	Blobs  [][]byte `wire:"kvf_blobs,omitzero,as=blobs,len=kvf_planes|0"` // what each plane sends to this peer only
	// Code is why the handshake is refused; 0: not refused.
	Code   uint32 `wire:"kvf_code,omitzero"`
	Reason []byte `wire:"kvf_reason,omitzero"` // Code as text for people
	Stamps Stamps `wire:",inline"`
	// Layers is the number of layers of a chunk, each in a page of its own; 0: a page holds a whole chunk.
	Layers uint32 `wire:"kvf_layers,omitzero"`
	// Geometry says which bytes lie in which page, for a node that registers blocks (fsm/rank/memory/geometry); else
	// empty.
	Geometry []uint64 `wire:"kvf_geometry,omitzero"`
	Carries  uint32   `wire:"kvf_carries,omitzero"` // limit on the chunk bytes that an AllocRequest may carry; 0: none
}

// validate checks that the smallest version is not above the largest version.
func (e *HelloExt) validate(w *mapReader) {
	if e.ProtoMin > e.ProtoMax {
		found := strconv.Itoa(int(e.ProtoMin)) + " to " + strconv.Itoa(int(e.ProtoMax))
		w.failField("kvf_proto", DecodeOutOfRange, found, "the smaller first")
	}
}

// A HixlReadyRequest asks whether the server's engine has connected back, step 2 of the handshake.
//
//wire:message
type HixlReadyRequest struct {
	LocalID []byte `wire:"local_id"` // as in HixlInitRequest
}

// A HixlReadyResponse is the reply to a HixlReadyRequest. With OK false the message is also the reply to any step that
// failed.
//
//wire:message
type HixlReadyResponse struct {
	OK bool `wire:"ok"`
	// Code is why the step failed; 0: no reason is stated. Vanilla peers never state a reason.
	Code   uint32 `wire:"kvf_code,omitzero"`
	Reason []byte `wire:"kvf_reason,omitzero"` // Code as text for people
}

// A HixlMemInfoRequest announces the requester's buffers, step 3 of the handshake.
//
//wire:message
type HixlMemInfoRequest struct {
	LocalID []byte       `wire:"local_id"` // as in HixlInitRequest
	Buffers []BufferInfo `wire:"buffers,max=BufferCount"`

	// HasExt is true if both stamps are on the wire.
	HasExt bool   `wire:"-"`
	Stamps Stamps `wire:",inline,with=HasExt"` // the requester's
	// Planes are the data planes by which the requester is read.
	Planes [][]byte `wire:"kvf_planes,omitzero,with=HasExt,as=planes"`
	// Blobs are the bytes that each plane sends to this server only.
	Blobs [][]byte `wire:"kvf_blobs,omitzero,with=HasExt,as=blobs,len=kvf_planes|0"`
}

// A HixlMemInfoResponse announces the server's buffers. The order matters: page indexes without a UUID are pages of the
// first buffer.
//
//wire:message
type HixlMemInfoResponse struct {
	Buffers []BufferInfo `wire:"buffers,max=BufferCount"`

	// HasExt is true if both stamps are on the wire.
	HasExt bool   `wire:"-"`
	Stamps Stamps `wire:",inline,with=HasExt"` // the server's
}

// readPlanes appends the names of data planes to vs.
func (r *reader) readPlanes(vs [][]byte) [][]byte {
	for n := r.readArrayHeaderUpTo(r.lim.PlaneCount, "PlaneCount"); n > 0 && r.ok(); n-- {
		vs = append(vs, r.readText())
	}
	return vs
}

// readBlobs appends the blobs of data planes to vs.
func (r *reader) readBlobs(vs [][]byte) [][]byte {
	for n := r.readArrayHeaderUpTo(r.lim.PlaneCount, "PlaneCount"); n > 0 && r.ok(); n-- {
		vs = append(vs, r.readBin(r.lim.BlobBytes, "BlobBytes"))
	}
	return vs
}

func appendBlobs(b []byte, blobs [][]byte) []byte {
	b = appendArrayHeader(b, len(blobs))
	for _, blob := range blobs {
		b = appendBin(b, blob)
	}
	return b
}
