package effects

import "strconv"

// Channel is the kind of a control connection. The client opens every control connection.
type Channel uint8

// The channels. The Order and the Framing of a channel say how its messages are exchanged and framed.
const (
	ChannelInit      Channel = iota + 1 // handshake
	ChannelAlloc                        // allocation requests and commits
	ChannelProxy                        // notifications to the proxy
	ChannelDone                         // ends of offers, from a receiver to a sender
	ChannelLookup                       // queries for the chunks that a peer shares
	ChannelMeta                         // a description in several parts; no machine opens this channel yet
	ChannelQuery                        // queries for the chunks that may be recalled
	ChannelDirectory                    // requests of workers to a directory
	ChannelFeed                         // reports of workers to a directory
	ChannelHeartbeat                    // heartbeats of workers, and what the directory requests of them in return
	ChannelPeerDone                     // ends of read leases, from peers that send them apart from lookups
	ChannelLog                          // replication between directories, by a log that is kept for a limited time
	ChannelRegister                     // registrations of blocks that their producer is to write into

	// ChannelOther and all higher numbers are for machines outside this project. They carry requests; the Window of the
	// Open says how many may be outstanding.
	ChannelOther Channel = 32
)

// Order is the exchange pattern of a channel.
type Order uint8

// The exchange patterns.
const (
	Unordered Order = iota // not a channel
	Lockstep               // one request at a time, each with one reply
	Matched                // up to Open.Window outstanding requests, answered in any order
	OneWay                 // messages without a reply
)

// Framing says which frames surround a body on the wire, and which of them a server returns with its reply.
type Framing uint8

// The framings.
const (
	// Envelope is the framing of REQ and REP sockets: an empty frame, then the body. With a Window above 1, the
	// request's id (8 bytes) precedes the empty frame, and the server returns the frames before the empty frame
	// unchanged. A one-way message is the body alone.
	Envelope Framing = iota
	// BareID is the request's id (8 bytes), then the body. There is no empty frame, so a REP socket cannot answer.
	BareID
	// Parts is Envelope with any number of frames for a body, up to a bound of the driver. AppendPart and CutPart write
	// and read such a body.
	Parts
	// Several is for one-way messages: any number of frames, up to a bound of the driver, each of which is a message by
	// itself. LMCache's workers combine the messages that are waiting when they send; our drivers send one frame at a
	// time.
	Several
)

const engineRoles = RolePrefill | RoleDecode

//kvferry:table
var channels = [...]struct {
	name    string
	order   Order
	framing Framing
	// The roles of which a client and a server of the channel need at least one.
	clients, servers Roles
}{
	ChannelInit:   {"init", Lockstep, Envelope, engineRoles, engineRoles},
	ChannelAlloc:  {"alloc", Matched, Envelope, RolePrefill, RoleDecode},
	ChannelProxy:  {"proxy", OneWay, Envelope, engineRoles, RoleProxy},
	ChannelDone:   {"done", OneWay, Envelope, RoleDecode, RolePrefill},
	ChannelLookup: {"lookup", Matched, BareID, engineRoles, engineRoles},
	ChannelMeta:   {"meta", Lockstep, Parts, engineRoles, engineRoles},
	ChannelQuery:  {"query", Lockstep, Envelope, RolePrefill, RoleDecode},

	// LMCache's workers send one request at a time.
	ChannelDirectory: {"directory", Matched, Envelope, engineRoles, RoleDirectory},
	ChannelFeed:      {"feed", OneWay, Several, engineRoles, RoleDirectory},
	ChannelHeartbeat: {"heartbeat", Lockstep, Envelope, engineRoles, RoleDirectory},
	ChannelPeerDone:  {"peerdone", Lockstep, Envelope, engineRoles, engineRoles},
	ChannelLog:       {"log", Lockstep, Envelope, RoleDirectory, RoleDirectory},
	ChannelRegister:  {"register", Matched, Envelope, RoleDecode, RolePrefill},
}

// ClientRoles returns the roles of which a client of the channel needs at least one; all roles for the channels of
// machines outside this project.
func (c Channel) ClientRoles() Roles {
	if int(c) < len(channels) {
		return channels[c].clients
	}
	return AllRoles
}

// ServerRoles returns the roles of which a server of the channel needs at least one; all roles for the channels of
// machines outside this project.
func (c Channel) ServerRoles() Roles {
	if int(c) < len(channels) {
		return channels[c].servers
	}
	return AllRoles
}

// Order returns the exchange pattern of the channel, or Unordered if there is no such channel.
func (c Channel) Order() Order {
	switch {
	case int(c) < len(channels):
		return channels[c].order
	case c >= ChannelOther:
		return Matched
	}
	return Unordered
}

// Framing returns the framing of bodies on the wire; an unknown channel has Envelope.
func (c Channel) Framing() Framing {
	if int(c) < len(channels) {
		return channels[c].framing
	}
	return Envelope
}

// HasReplies reports whether requests with replies are sent on the channel.
func (c Channel) HasReplies() bool { return c.Order() == Lockstep || c.Order() == Matched }

// UnansweredMax returns the maximum number of unanswered requests of a connection. A driver that serves the channel reads
// nothing more from the connection until it has replied to one of them. Registrations are answered only when the prefill
// of their request has finished, so many wait.
func (c Channel) UnansweredMax() int {
	if c == ChannelRegister {
		return 256
	}
	return 16
}

// AllowsWindow reports whether a connection of this channel may be opened with the given window.
func (c Channel) AllowsWindow(window uint16) bool { return window <= 1 || c.Order() == Matched }

// String returns the channel's name in plans, transcripts and logs. A channel without a name is "channel" and its
// number.
func (c Channel) String() string {
	if int(c) < len(channels) && channels[c].name != "" {
		return channels[c].name
	}
	return "channel" + strconv.Itoa(int(c))
}

// ChannelNamed returns the channel whose String is name, and reports false if there is none.
func ChannelNamed(name string) (Channel, bool) {
	for c := range Channel(1<<8 - 1) {
		if (c + 1).String() == name {
			return c + 1, true
		}
	}
	return 0, false
}
