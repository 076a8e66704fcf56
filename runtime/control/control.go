// Package control is the border between a rank's event loop and whatever carries its control messages.
//
// A [Transport] carries out the effects Open, Close, Send, Post and Reply and tells a [Sink] how they
// ended and what peers sent. It knows frames and connections and no protocol: bodies are opaque. What
// each effect promises is written at the effect, in package effects; package controltest holds every
// Transport to it.
package control

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A Transport carries control messages. Its methods never block, may be called from any goroutine
// and copy what they are given before they return. Calls of one goroutine are carried out in order.
//
// Every Open, Send and Post gets exactly one completion at the Sink, also when its queue is full
// (Code TooMany, for Post Refused) and after Shutdown (Code Closed).
type Transport interface {
	Open(*effects.Open)

	// Close ends a Conn that Opened gave. Bytes that its peer sends from then on are dropped. A
	// completion that was posted before Close was carried out stays posted.
	Close(effects.Conn)

	Send(*effects.Send)
	Post(*effects.Post)

	// Reply answers one Received. What cannot reach the asker any more is dropped and counted.
	Reply(*effects.Reply)

	// Caller is the address that a peer's Conn came from, as of a Received. It is none once the Conn is gone, and for
	// those that Open made.
	Caller(effects.Conn) netip.Addr

	// Servers are the channels served, in the order asked for, with the ports really bound.
	Servers() []Server

	// Stats returns what was dropped since the start.
	Stats() Stats

	// Shutdown completes all that is outstanding with Closed, gives messages that were posted or
	// replied a bounded time to leave, and frees everything. It returns early with ctx's error; the
	// rest then ends by itself within that bounded time. Later calls wait for the same end.
	//
	// It waits for the Sink, so who calls it must not be the one that empties the Sink.
	Shutdown(ctx context.Context) error
}

// A Sink takes what a Transport has to tell. The event and its spans belong to the Sink from then on:
// the Transport never touches them again.
//
// Post is called from goroutines of the Transport and from within calls of it. It must not block on a
// completion; the machine's Limits say how many there can be. It may block on a *effects.Received, which
// never comes from within a call: then the Transport reads nothing more and pushes peers back.
//
// A Sink may be a stepper.Stepper, too: then the goroutine that read a message has the machine take it.
type Sink interface {
	Post(effects.Event)
}

// Server is one channel that a rank serves. ChannelInit and ChannelAlloc answer requests,
// ChannelProxy and ChannelDone take one-way messages.
type Server struct {
	Channel effects.Channel
	// Addr is where to bind. An empty host means every interface; port zero, one that is free.
	Addr effects.Addr
	// TellLost has a ConnLost posted when a client's connection ends on which a message was posted, after all of its
	// messages: for a machine that keeps something for each client.
	TellLost bool
}

// Env is what a Transport is made with.
type Env struct {
	Servers []Server // may be empty
	Sink    Sink
	Log     *slog.Logger // nil: slog.Default()
	// Poll is for how long a transport may poll for an answer before it sleeps, at the cost of a core; 0: it sleeps at
	// once. A transport that cannot poll sleeps.
	Poll time.Duration
	// GuestsMax bounds the connections of peers at a time, below the bound that the transport has itself; 0 leaves it at
	// that. A program with several transports shares its files among them by it.
	GuestsMax int
}

// Opener makes a Transport.
type Opener func(Env) (Transport, error)

// Stats counts what a Transport dropped, since its start.
type Stats struct {
	Malformed       uint64 // messages whose frames are not those of the channel
	Unrequested     uint64 // answers that no Send was waiting for
	RepliesDropped  uint64 // replies whose request is unknown, answered, or whose asker is gone or stuck
	RequestsEvicted uint64 // requests forgotten unanswered, to bound their table

	Guests        uint64 // connections of peers that are there now
	GuestsEvicted uint64 // connections closed to make room for others
	GuestsExpired uint64 // connections closed because they said nothing that makes sense in time
	GuestsRefused uint64 // connections that found no room, or no file
}
