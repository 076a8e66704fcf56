// Package recall implements recalls: a prefill node asks a decode node which prefix of a request's chunks is
// still there, and reads that prefix into pages of its own. The [Source] runs at the prefill node, asks and
// reads. The [Target] runs at the decode node; it looks the chunks up, pins them, leases them and replies, all in
// one step.
//
// A caller may rely on this: a recall consumes nothing of the target's store, however the recall ends. A leased
// page keeps its contents and is given to nobody else until the reader's done message, the end of the lease's
// time, or the proof of a revocation; lost, late or duplicated messages do not change that. A recall is one
// operation: a retry is answered with the same pages under the same lease (M6). The right to read counts from
// when the answered attempt was sent, which precedes both the beginning of the lease and any later look at it
// (M4), so no comparison of the two clocks is needed.
//
// Example of a recall of three chunks, of which the target has the first two:
//
//	engine   ── Recall(k0, k1, k2) ────────► source
//	source   ── query: k0, k1, k2 ─────────► target   the right to read counts from here
//	target   ── k0, k1: pages 8, 9, lease ─► source   pinned and leased in the step that replies
//	source   ── reads pages 8, 9 ──────────► target's memory
//	source   ── Deliver(OK, Hits 2) ───────► engine
//	source   ── done message ──────────────► target   the lease ends
//
// The commands name keys, and the outcomes concern pages. The two messages are encoded and decoded only in
// source_query.go and target_reply.go.
package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// Peer is the address of a node that may have the chunks: its ports for handshakes and allocation requests, as
// for a put, and its port for queries.
type Peer struct {
	Host      string
	InitPort  uint16
	AllocPort uint16
	QueryPort uint16
}

func (p *Peer) linkAddr() link.PeerAddr {
	return link.PeerAddr{Host: p.Host, InitPort: p.InitPort, AllocPort: p.AllocPort}
}

// Recall is the command to read the longest prefix of Keys that the peer has into Pages, chunk i into Pages[i].
// The pages must belong to a Reserve and must not be in use by anything else. They belong to the command until
// its Deliver, or until its Return if the outcome was delivered as held (M8). Hits of the outcome is the number
// of chunks that were read, and the Length of each page is the chunk's length in bytes; the contents of the other
// pages are undefined. Either the whole prefix is read or none of it.
type Recall struct {
	Peer    Peer
	Request []byte // the id of the request, for logs of the peer; may be empty
	Keys    [][]byte
	Pages   []effects.Page
	Timeout effects.Duration     // how long the recall may take; 0: the configured default
	Trace   effects.TraceContext // the span of the recall, of which the peer is told
}

// IsCommand marks a Recall as a command body.
func (*Recall) IsCommand() {}

// CountFitting returns how many of the given chunks, from the first on, one Recall of the request can take: at most as
// many as one command may name, with all keys in one query, and with all keys and pages in its reply.
func CountFitting(cfg *flow.Config, request []byte, keys [][]byte) int {
	limit := min(len(keys), int(cfg.BatchMax))
	requestBytes, replyBytes := put.HeadBytes+len(request), put.HeadBytes
	for i, key := range keys[:limit] {
		requestBytes += len(key) + put.KeyHeadBytes
		replyBytes += len(key) + put.KeyHeadBytes + pageNameBytes
		if max(requestBytes, replyBytes) > cfg.Wire.MessageBytes {
			return i
		}
	}
	return limit
}

// pageNameBytes is an upper bound of the bytes that a reply has for each chunk beside its key: an index, a
// generation, a length and a checksum.
const pageNameBytes = 3*9 + 5

// Config is the configuration of a Source.
type Config struct {
	Settings
	RequestIDMax uint32
}

// The kinds of Refs of both flows.
const (
	kindQuery    uint8 = iota + 1 // the reply to a query
	kindDone                      // the reply to a done message
	kindTransfer                  // the transfer of a recall
	kindOpen                      // the connection of a connection
	timerRecall                   // the deadline of a recall; also the recall's ticket
	timerReply                    // the time at which a reply is overdue
	kindLease                     // a lease: the end of its time, and the proof of its revocation
)

func sourceRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerRecallSource, Kind: kind, Subject: h}
}
