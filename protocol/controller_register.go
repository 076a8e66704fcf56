package protocol

import "strconv"

// A RegisterMsg registers a worker with its controller, on the controller's reply socket.
//
//wire:message json
type RegisterMsg struct {
	Worker   `wire:",inline"`
	Listener `wire:",inline"`
	// PeerInitURL is host:port of the worker's init socket; empty: the worker does not share.
	PeerInitURL []byte `wire:"peer_init_url,nil"`
	Incarnation UUID   `wire:"kvf_inc,omitzero"` // the worker's incarnation; zero: not stated
}

// A RegisterRetMsg is the reply to a RegisterMsg.
//
//wire:message json
type RegisterRetMsg struct {
	ExtraConfig `wire:"extra_config,optional"`
	// SilenceNS is the time without a heartbeat after which the worker is dropped; nanoseconds; 0: unknown.
	SilenceNS uint64 `wire:"kvf_silence_ns,omitzero"`
}

// ExtraConfig is the part of a controller's settings that workers use. Other settings are skipped.
//
//wire:map title=settings
type ExtraConfig struct {
	HeartbeatURL []byte `wire:"heartbeat_url,omitzero"` // host:port of the heartbeat socket; empty: no heartbeats
}

// A DeRegisterMsg ends a registration. There is no reply.
//
//wire:message json
type DeRegisterMsg struct {
	Worker      `wire:",inline"`
	Listener    `wire:",inline"`
	Incarnation UUID `wire:"kvf_inc,omitzero"` // the worker's incarnation; zero: not stated
}

// A HeartbeatMsg reports that a worker is alive, on the heartbeat socket. A heartbeat has the fields of a RegisterMsg,
// so that a controller that has dropped the worker can register the worker again.
//
//wire:message json
type HeartbeatMsg RegisterMsg

// HeartbeatsPerTimeout is the number of heartbeats that a worker sends within the time after which the directory drops
// a silent worker, so that the worker stays registered if a heartbeat is lost and the next heartbeat is late.
const HeartbeatsPerTimeout = 3

// A HeartbeatRetMsg is the reply to a HeartbeatMsg.
//
//wire:message json
type HeartbeatRetMsg struct {
	Commands  []Command `wire:"commands,optional,max=CommandCount"` // requests of the controller to the worker
	SilenceNS uint64    `wire:"kvf_silence_ns,omitzero"`            // as in a RegisterRetMsg
}

// A Command is a request of a controller to a worker.
//
//wire:map name=HeartbeatCommand title=a_command
type Command struct {
	Type   CommandType `wire:"command_type"`
	Reason []byte      `wire:"reason,optional,nil"` // for people; may be empty
	_      ignoredMap  `wire:"args,optional"`       // no known command has arguments
}

// The type ignoredMap stands for a map with entries that are skipped.
type ignoredMap struct{}

// ReasonForgotten is LMCache's reason for a full sync when the controller did not know the worker.
const ReasonForgotten = "worker_re_registered"

// A CommandType is a kind of Command.
type CommandType uint8

// The types.
const (
	// CommandNone is LMCache's base class, which requests nothing.
	CommandNone CommandType = iota
	// CommandFullSync requests a new full sync.
	CommandFullSync
	commandTypes
)

var commandNames = [commandTypes]string{"HeartbeatCommand", "full_sync"}

// String returns the type as it stands on the wire.
func (c CommandType) String() string {
	if c >= commandTypes {
		return "CommandType(" + strconv.Itoa(int(c)) + ")"
	}
	return commandNames[c]
}

// readCommandType reads the name of a known type. A message with an unknown type is refused as a whole, as in LMCache.
func (r *reader) readCommandType() CommandType {
	at := r.off
	name := r.readText()
	for c := range commandTypes {
		if commandNames[c] == string(name) {
			return c
		}
	}
	r.fail(DecodeUnknownValue, at, quoteBytes(name), "full_sync or HeartbeatCommand")
	return CommandNone
}

// skipIgnoredMap skips a map at depth, or nil.
func (r *reader) skipIgnoredMap(depth int) {
	if c, ok := r.peekByte(); ok && c != nilByte && typeName(c) != "map" {
		r.failType(r.off, "map")
		return
	}
	r.skipValue(depth)
}
