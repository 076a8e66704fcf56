// Package control is the boundary between the event loop of a rank, or of another machine like a directory, and the
// library that carries the control messages between processes.
//
// A [Transport] carries out the effects Open, Close, Send, Post and Reply. The transport reports to a [Sink] how each
// effect ended and what peers sent. A transport knows frames and connections and no protocol: bodies are opaque bytes.
// The promise that belongs to each effect is written at the effect, in package effects, and package controltest holds
// every Transport to these promises.
//
// Two packages implement Transport: control/zmq (the default, written in Go, an implementation of ZeroMQ's wire
// protocol) and control/libzmq (the same messages over the C library). Package runtime receives either package as an
// [Opener].
//
// A request and the reply, from the side of the client:
//
//	transport.Open(&effects.Open{Corr: 1, Channel: effects.ChannelAlloc, Addr: peer})
//	    // sink: Opened{Corr: 1, Conn: 7, Code: OK}
//	transport.Send(&effects.Send{Corr: 2, Conn: 7, Body: request})
//	    // sink: Replied{Corr: 2, Body: reply}, or Unanswered{Corr: 2, Code: PeerLost}
//	transport.Close(7)
package control

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/secure"
)

// A Transport carries control messages. The methods never block, may be called from any goroutine and copy the
// arguments before returning. The calls of a goroutine are carried out in order.
//
// Every Open, Send and Post gets exactly one completion at the Sink, even if the queue is full (Code TooMany; Refused
// for a Post) and even after Shutdown (Code Closed).
type Transport interface {
	Open(*effects.Open)

	// Close ends a Conn that an Opened event reported. Bytes that the peer sends after that are dropped. A completion
	// that was posted before Close was carried out stays posted.
	Close(effects.Conn)

	Send(*effects.Send)
	Post(*effects.Post)

	// Reply answers a Received. A reply is dropped and counted if the peer that sent the request cannot be reached any
	// more.
	Reply(*effects.Reply)

	// Caller returns the address of the peer behind a Conn that a Received event named. The result is the zero Addr
	// once the connection has ended, and for a Conn that Open made.
	Caller(effects.Conn) netip.Addr

	// Servers returns the channels that are served, in the order of Env.Servers, with the ports that were really bound.
	Servers() []Server

	// Stats returns the counts of dropped messages and refused connections since the start.
	Stats() Stats

	// Shutdown completes everything that is outstanding with Closed, gives messages that were posted or replied a
	// bounded time to leave, and frees all resources. If ctx ends first, Shutdown returns the error of ctx, and the
	// rest ends by itself within that bounded time. Later calls wait for the same end.
	//
	// Shutdown waits for the Sink, so the goroutine that empties the Sink must not call Shutdown.
	Shutdown(ctx context.Context) error
}

// A Sink receives the events of a Transport: completions and received messages. The event, with all slices, belongs to
// the Sink from then on; the Transport does not touch the memory again.
//
// Post is called from goroutines of the Transport and from within calls of the Transport's methods. Post must not
// block on a completion; the machine's Limits bound how many completions there can be. Post may block on an
// *effects.Received, which is never posted from within a call: meanwhile the Transport reads nothing more, so peers
// feel backpressure.
//
// A Sink may implement stepper.Stepper, too. Then the goroutine that read a message also steps the machine with the
// message.
type Sink interface {
	Post(effects.Event)
}

// Server describes a channel that a machine serves. Whether the messages are requests that need a reply or one-way
// messages follows from the channel (effects.Channel.HasReplies).
type Server struct {
	Channel effects.Channel
	// Addr is the address to bind. An empty host means every interface; port zero lets the system choose a free port.
	Addr effects.Addr
	// ReportLost makes the transport post a ConnLost when a client's connection ends, after all messages of that
	// connection, if at least one message was posted. For machines that keep state for each client.
	ReportLost bool
}

// Env holds what a Transport is made with.
type Env struct {
	Servers []Server // may be empty
	Sink    Sink
	Log     *slog.Logger // nil: slog.Default()
	// Poll limits the time for which a transport may poll for the next message before going to sleep, which costs a
	// core meanwhile. Zero: no polling. A transport that cannot poll ignores the field.
	Poll time.Duration
	// Guard authenticates the peers of all connections; nil: connections are plain. A transport that cannot use a guard
	// fails to open if there is one. The guard outlives the transport.
	Guard *secure.Guard
	// MaxInbound bounds the inbound connections that are open at a time, below the transport's own bound; zero leaves
	// that bound alone. A program with several transports divides the file descriptors of the process in this way.
	MaxInbound int
}

// Opener makes a Transport.
type Opener func(Env) (Transport, error)

// Stats counts what a Transport dropped since the start.
type Stats struct {
	Malformed       uint64 // messages with frames that do not fit the channel
	Unrequested     uint64 // replies that no Send was waiting for
	RepliesDropped  uint64 // replies to an unknown or answered request, or to a peer that is gone or does not read
	RequestsEvicted uint64 // unanswered requests that were dropped because their table was full

	InboundConns   uint64 // inbound connections that are open now
	InboundEvicted uint64 // inbound connections closed to make room for new connections
	InboundExpired uint64 // inbound connections closed because they completed no handshake, or no message, in time
	InboundRefused uint64 // inbound connections refused because a bound was reached or no file was left
}
