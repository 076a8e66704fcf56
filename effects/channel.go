package effects

import "strconv"

// Channel is the kind of a control connection. All are opened by the client.
type Channel uint8

// Channels. What goes on each, and in which frames, its Order and Framing say.
const (
	ChannelInit      Channel = iota + 1 // handshake
	ChannelAlloc                        // allocation and commit
	ChannelProxy                        // notifications to the proxy
	ChannelDone                         // ends of offers, from a receiver to a sender
	ChannelLookup                       // which chunks a peer shares
	ChannelMeta                         // a description in several parts; nobody opens one yet
	ChannelQuery                        // which chunks may be read back
	ChannelDirectory                    // what workers ask a directory
	ChannelFeed                         // what they tell it
	ChannelHeartbeat                    // that they live, and what it wants of them
	ChannelPeerDone                     // ends of loans, from peers that say them apart from lookups
	ChannelLog                          // what directories tell each other, by a log that keeps it for a while
	ChannelRegister                     // registrations of blocks that their producer is to write into

	// ChannelOther, and all above it, are for machines of others: questions, as many at a time as their Open says.
	ChannelOther Channel = 32
)

// Order says how messages go on a channel.
type Order uint8

// Orders.
const (
	Unordered Order = iota // of no channel
	Lockstep               // one question at a time, each with one answer
	Matched                // as many questions at a time as Open.Window says, answered in any order
	OneWay                 // nobody answers
)

// Framing says what stands around a body on the wire, and which of it a server gives back with its answer.
type Framing uint8

// Framings.
const (
	// Envelope is that of REQ and REP: an empty frame, then the body. With a Window above 1 the question's id, 8 bytes,
	// stands before the empty frame: who answers gives back whatever stood there. One-way messages are the body alone.
	Envelope Framing = iota
	// BareID is the question's id, 8 bytes, then the body. There is no empty frame, so no REP can answer.
	BareID
	// Parts is Envelope with any number of frames for a body, up to a bound of the driver's. AppendPart and CutPart
	// make and read such a body.
	Parts
	// Several is for what nobody answers: any number of frames, up to a bound of the driver's, each of them a message by
	// itself. LMCache's workers put together what waits when they send; who sends here puts one.
	Several
)

//kvferry:table
var channels = [...]struct {
	name    string
	order   Order
	framing Framing
}{
	ChannelInit:   {"init", Lockstep, Envelope},
	ChannelAlloc:  {"alloc", Matched, Envelope},
	ChannelProxy:  {"proxy", OneWay, Envelope},
	ChannelDone:   {"done", OneWay, Envelope},
	ChannelLookup: {"lookup", Matched, BareID},
	ChannelMeta:   {"meta", Lockstep, Parts},
	ChannelQuery:  {"query", Lockstep, Envelope},

	ChannelDirectory: {"directory", Matched, Envelope}, // LMCache's workers ask one question at a time.
	ChannelFeed:      {"feed", OneWay, Several},
	ChannelHeartbeat: {"heartbeat", Lockstep, Envelope},
	ChannelPeerDone:  {"peerdone", Lockstep, Envelope},
	ChannelLog:       {"log", Lockstep, Envelope},
	ChannelRegister:  {"register", Matched, Envelope},
}

// Order says how messages go on a channel; Unordered if there is no such channel.
func (c Channel) Order() Order {
	switch {
	case int(c) < len(channels):
		return channels[c].order
	case c >= ChannelOther:
		return Matched
	}
	return Unordered
}

// Framing says what stands around a body on the wire.
func (c Channel) Framing() Framing {
	if int(c) < len(channels) {
		return channels[c].framing
	}
	return Envelope
}

// Asks says whether questions are asked on a channel.
func (c Channel) Asks() bool { return c.Order() == Lockstep || c.Order() == Matched }

// Takes says whether a connection of a channel may be opened with a window.
func (c Channel) Takes(window uint16) bool { return window <= 1 || c.Order() == Matched }

// String returns the channel's name in plans, transcripts and logs: one that has none is called by its number.
func (c Channel) String() string {
	if int(c) < len(channels) && channels[c].name != "" {
		return channels[c].name
	}
	return "channel" + strconv.Itoa(int(c))
}

// ChannelNamed is the opposite of String.
func ChannelNamed(name string) (Channel, bool) {
	for c := range Channel(1<<8 - 1) {
		if (c + 1).String() == name {
			return c + 1, true
		}
	}
	return 0, false
}
