package protocol

import "slices"

// A PushRegistration asks a producer to write the KV of a request into blocks of a consumer: consumer to producer, each
// rank to each rank, as a notification PUSH_REG:<map>. The fields named remote describe the producer as the consumer
// knows it; the reference's producer reads none of these fields.
//
//wire:untagged name=PUSH_REG prefix=registrationPrefix
type PushRegistration struct {
	RequestID []byte `wire:"request_id,as=request"` // the consumer's id of the request; the completion returns it
	EngineID  []byte `wire:"decode_engine_id"`      // the engine that the producer must reach before it writes
	Host      []byte `wire:"decode_host"`           // host of the consumer's side channel
	Port      uint32 `wire:"decode_port,as=port"`
	TPSize    uint32 `wire:"decode_tp_size,as=positive"`
	// Blocks are, for each transfer group, the logical blocks to write, without the blocks that are cached.
	Blocks [][]uint64 `wire:"local_block_ids"`

	Remote PushProducer `wire:",inline"`

	HasExt bool                `wire:"-"`
	Ext    PushRegistrationExt `wire:",ext"`
}

// PushRegistrationExt is the extension of a PushRegistration, which makes the registration a request that is answered
// by a PushEnd. The consumer grants, and sends first: the consumer's stamps tell the producer how long it may write.
type PushRegistrationExt struct {
	Version     uint32 `wire:"kvf_v"`                 // version of these fields; its presence sets HasExt
	Incarnation UUID   `wire:"kvf_inc,omitzero"`      // the consumer's incarnation
	To          UUID   `wire:"kvf_to,omitzero"`       // the producer's incarnation, as far as the consumer knows
	Operation   uint64 `wire:"kvf_op,omitzero"`       // number of the registration, the same in each attempt
	Attempt     uint32 `wire:"kvf_try,omitzero"`      // number of the attempt
	Transfer    []byte `wire:"kvf_transfer,omitzero"` // the router's name of the transfer at both ends; empty: no name
	// First and Ends are absolute positions by group, in kernel blocks: First is the position of the first listed
	// block, and Ends is the position after the last block to be written. An End of 0 means all listed blocks.
	First []uint64 `wire:"kvf_first,omitzero,len=local_block_ids"`
	Ends  []uint64 `wire:"kvf_ends,omitzero,len=local_block_ids"`
	Grant uint64   `wire:"kvf_grant,omitzero"` // the write grant over all pages; 0: no pages
	// Generations are the granted generations of this producer's pages, in the plan's order.
	Generations []uint64 `wire:"kvf_gens,omitzero,as=blocks"`
	// GrantedNS is the time at which the grant began, on the consumer's clock; not negative.
	GrantedNS int64  `wire:"kvf_granted_ns,omitzero"`
	LeaseNS   uint64 `wire:"kvf_lease_ns,omitzero"` // how long the grant is in force from there; ns
	// PatienceNS is the deadline budget: how long after receipt a reply is of use; nanoseconds.
	PatienceNS uint64 `wire:"kvf_patience_ns,omitzero"`
	Stamps     Stamps `wire:",inline"` // the consumer's
	// Tail is true if the consumer states no positions, as engines of vLLM do not: the lists are the last blocks of the
	// request, First and Ends state only how many, and there are no generations.
	Tail bool `wire:"kvf_tail,omitzero,as=flag"`
	// Caches is a checksum of both ends' kvf_geometry as the consumer received it; 0: not stated.
	Caches uint64 `wire:"kvf_caches,omitzero"`
	Trace  []byte `wire:"kvf_trace,omitzero,bin=MessageBytes"` // the consumer's span, as in AllocExt
}

// A PushProducer is the producer for which a registration is meant. The names are empty if the consumer does not state
// them.
type PushProducer struct {
	EngineID []byte `wire:"remote_engine_id,optional"`
	Host     []byte `wire:"remote_host,optional"` // host of its side channel
	Port     uint32 `wire:"remote_port,optional,as=port"`
	TPSize   uint32 `wire:"remote_tp_size,optional"`
	PPSize   uint32 `wire:"remote_pp_size,as=positive,default=1"`
}

// portMax is the highest port of TCP.
const portMax = 1<<16 - 1

// readRequestID reads the id of a request that notifications can carry.
func (r *reader) readRequestID() []byte {
	at := r.off
	id := r.readText()
	if r.ok() {
		if err := CheckNixlRequest(id, r.lim); err != nil {
			why := err.(*DecodeError) // CheckNixlRequest returns no other type.
			r.fail(why.Code, at, why.Found, why.Want)
		}
	}
	return id
}

// readPositive reads a number above 0.
func (r *reader) readPositive() uint32 {
	at := r.off
	n := r.readUint32()
	if r.ok() && n == 0 {
		r.fail(DecodeOutOfRange, at, "0", "1 to 4294967295")
	}
	return n
}

// readGroups appends lists of blocks to vs, and reuses the memory of lists that vs held before. A flat list is read as
// a single group, because older senders write flat lists.
func (r *reader) readGroups(vs [][]uint64) [][]uint64 {
	from := r.off
	n := r.readArrayHeaderUpTo(r.lim.BlockCount, "BlockCount")
	if n > 0 && r.ok() && typeName(r.b[r.off]) == "int" {
		r.off = from
		return append(vs, r.readBlocks(reusableList(vs), r.lim.BlockCount))
	}
	if n > r.lim.ArrayLen {
		r.fail(DecodeArrayTooLong, from, "too many groups", atMost(r.lim.ArrayLen, "ArrayLen"))
	}
	vs = slices.Grow(vs, n)
	for left := r.lim.BlockCount; n > 0 && r.ok(); n-- {
		group := r.readBlocks(reusableList(vs), left)
		left -= len(group)
		vs = append(vs, group)
	}
	return vs
}

// reusableList returns an empty list whose memory is that of the list after the last element of vs, or nil if there is
// none.
func reusableList(vs [][]uint64) []uint64 {
	if len(vs) < cap(vs) {
		return vs[:len(vs)+1][len(vs)][:0]
	}
	return nil
}

// readBlocks reads a list of at most limit block numbers.
func (r *reader) readBlocks(into []uint64, limit int) []uint64 {
	n := r.readArrayHeaderUpTo(limit, "BlockCount")
	for into = slices.Grow(into, n); n > 0 && r.ok(); n-- {
		into = append(into, r.readUint64())
	}
	return into
}

func appendGroups(b []byte, groups [][]uint64) []byte {
	b = appendArrayHeader(b, len(groups))
	for _, group := range groups {
		b = appendUints(b, group)
	}
	return b
}
