package protocol

import (
	"slices"
	"strconv"
)

// A HeartbeatMsg says that a worker lives, on the heartbeat socket. Its fields are those of a RegisterMsg, so that a
// controller that has forgotten the worker knows it again.
type HeartbeatMsg RegisterMsg

// HeartbeatsWithin is how many heartbeats a worker sends in the time after which its directory forgets a worker that is
// silent: one may be lost, and one be late.
const HeartbeatsWithin = 3

// A HeartbeatRetMsg answers it.
type HeartbeatRetMsg struct {
	Commands  []Command // what the controller wants done
	SilenceNS uint64    // kvf_silence_ns, as in a RegisterRetMsg
}

// A Command is one thing that a controller wants of a worker.
type Command struct {
	Type   CommandType
	Reason []byte // for people; may be empty
}

// ReasonForgotten is LMCache's reason to want everything of a worker: the controller did not know it.
const ReasonForgotten = "worker_re_registered"

// A CommandType says what is wanted.
type CommandType uint8

// The commands.
const (
	// CommandNone is LMCache's base class, which wants nothing.
	CommandNone CommandType = iota
	// CommandFullSync wants everything that the worker has, anew.
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

// Fields of a command.
const (
	commandType = iota
	commandReason
	commandArgs
)

// Fields of HeartbeatRetMsg.
const (
	_ = iota
	heartbeatRetCommands
	heartbeatRetSilence
)

var heartbeatRetNames = []string{tagField, "commands", "kvf_silence_ns"}

var (
	heartbeatSchema = schema{
		name:     "HeartbeatMsg",
		tagged:   true,
		names:    registerNames,
		required: registerSchema.required,
	}
	heartbeatRetSchema = schema{name: "HeartbeatRetMsg", tagged: true, names: heartbeatRetNames}
	commandSchema      = schema{
		name:     "HeartbeatCommand",
		names:    []string{"command_type", "reason", "args"},
		required: 1 << commandType,
	}
)

// Append appends the message to b.
func (m *HeartbeatMsg) Append(b []byte) []byte { return (*RegisterMsg)(m).append(b, TagHeartbeatMsg) }

// Decode fills m from b, which may be JSON; texts are views. The error is a *DecodeError.
func (m *HeartbeatMsg) Decode(b []byte, lim *Limits) error {
	return (*RegisterMsg)(m).decode(b, lim, TagHeartbeatMsg, &heartbeatSchema)
}

// Append appends the message to b. Commands are written without arguments, of which none is known.
func (m *HeartbeatRetMsg) Append(b []byte) []byte {
	b = appendTag(b, TagHeartbeatRetMsg, 1+ones(m.SilenceNS != 0))
	b = appendArrayHeader(appendStr(b, "commands"), len(m.Commands))
	for _, c := range m.Commands {
		b = appendMapHeader(b, len(commandSchema.names))
		b = appendStr(appendStr(b, "command_type"), c.Type.String())
		b = appendTextOrNil(appendStr(b, "reason"), c.Reason)
		b = append(appendStr(b, "args"), 0xc0)
	}
	return appendNonZero(b, "kvf_silence_ns", m.SilenceNS)
}

// Decode fills m from b, which may be JSON; texts are views. Arguments are skipped. The error is a *DecodeError.
func (m *HeartbeatRetMsg) Decode(b []byte, lim *Limits) error {
	*m = HeartbeatRetMsg{Commands: m.Commands[:0]}
	r, from := openEither(b, lim)
	r.expectTag(TagHeartbeatRetMsg)
	w := fields{r: &r, schema: &heartbeatRetSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case heartbeatRetCommands:
			m.Commands = r.commands(m.Commands)
		case heartbeatRetSilence:
			m.SilenceNS = r.uint64()
		}
	}
	w.close()
	r.end()
	return from.result(&r)
}

// commands appends a list to vs.
func (r *reader) commands(vs []Command) []Command {
	message, field := r.message, r.field
	n := r.arrayUpTo(r.lim.CommandCount, "CommandCount")
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.command())
		r.message, r.field = message, field
	}
	return vs
}

func (r *reader) command() (c Command) {
	w := fields{r: r, schema: &commandSchema, depth: 4}
	for w.open(); w.next(); {
		switch w.at {
		case commandType:
			c.Type = r.commandType()
		case commandReason:
			c.Reason = r.textOrNil()
		case commandArgs:
			r.mapOrNil(w.depth)
		}
	}
	w.close()
	return c
}

// commandType takes a type that is known; the message of a controller that wants something else means nothing, as in
// LMCache.
func (r *reader) commandType() CommandType {
	at := r.off
	name := r.text()
	for c := range commandTypes {
		if commandNames[c] == string(name) {
			return c
		}
	}
	r.fail(DecodeUnknownValue, at, quote(name), "full_sync or HeartbeatCommand")
	return CommandNone
}

// mapOrNil passes a map at depth, or nil.
func (r *reader) mapOrNil(depth int) {
	if c, ok := r.lead(); ok && c != 0xc0 && typeName(c) != "map" {
		r.failType(r.off, "map")
		return
	}
	r.skip(depth)
}
