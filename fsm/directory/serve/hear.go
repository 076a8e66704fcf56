package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// hear dispatches a message. The handler depends only on the message's tag and channel.
func (m *Machine) hear(h *heard) {
	tag, err := protocol.PeekControllerTag(h.Body, &m.config.Wire)
	if err != nil {
		m.unread(h, err)
		return
	}
	switch asks, tells := h.Channel == effects.ChannelDirectory, h.Channel == effects.ChannelFeed; {
	case tag == protocol.TagHeartbeatMsg && (asks || h.Channel == effects.ChannelHeartbeat):
		m.heartbeat(h)
	case tag == protocol.TagBatchedP2PLookupMsg && asks:
		m.lookup(h)
	case tag == protocol.TagRegisterMsg && asks:
		m.register(h)
	case tag == protocol.TagFullSyncStartMsg && asks:
		m.syncBegins(h)
	case tag == protocol.TagFullSyncStatusMsg && asks:
		m.syncStatus(h)
	case tag == protocol.TagBatchedKVOperationMsg && tells:
		m.operations(h)
	case tag == protocol.TagKVAdmitMsg && tells, tag == protocol.TagKVEvictMsg && tells:
		m.operation(h, tag)
	case tag == protocol.TagFullSyncBatchMsg && tells:
		m.syncBatch(h)
	case tag == protocol.TagFullSyncEndMsg && tells:
		m.syncEnds(h)
	case tag == protocol.TagDeRegisterMsg && tells:
		m.deregister(h)
	default:
		m.refuse(h, effects.Unsupported, &effects.Why{
			Field: tag.String() + " on " + h.Channel.String(), Remedy: "send it where LMCache's workers do",
		})
	}
}

// decode decodes a message. If that fails, decode refuses the message and returns false.
func (m *Machine) decode(h *heard, into protocol.Message) bool {
	if err := into.Decode(h.Body, &m.config.Wire); err != nil {
		m.unread(h, err)
		return false
	}
	return true
}

// unread refuses a message that cannot be decoded.
func (m *Machine) unread(h *heard, err error) {
	m.refuse(h, effects.Malformed, &effects.Why{
		Field: effects.Words([]byte(err.Error())), Remedy: "send what LMCache's workers send to their controller",
	})
}

// refuse records that a message was refused, and answers with an ErrorMsg if the sender expects a reply.
func (m *Machine) refuse(h *heard, code effects.Code, why *effects.Why) {
	m.dropped(h, code, why)
	if h.Request != 0 {
		e := protocol.ErrorMsg{Error: []byte(code.String() + ": " + why.Text(code))}
		h.reply(e.Append(h.out.Arena()))
	}
}

// dropped emits a FactMalformed with the reason why a message was refused. For messages read from the log, only
// malformed ones are reported, once for each entry.
func (m *Machine) dropped(h *heard, code effects.Code, why *effects.Why) {
	if h.by != 0 {
		if code != effects.Malformed || m.blamed {
			return // The directory that forwarded the message may have different records.
		}
		m.blamed = true
	}
	h.out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: code, ID: uint64(h.Conn), Why: why})
}

// reply answers with the bytes that were just appended to the step's arena, if the sender expects a reply.
func (h *heard) reply(body []byte) {
	if body := h.out.Cut(body); h.Request != 0 {
		h.out.Reply(effects.Reply{Request: h.Request, Body: body})
	}
}

// about describes a refused message of a worker: the instance, the kind of message and a remedy.
func about(w *protocol.Worker, what string, code effects.Code) *effects.Why {
	return &effects.Why{Name: effects.Words(w.InstanceID), Field: what, Remedy: remedies[code]}
}

// remedies are hints for the operators of workers, by code.
//
//kvferry:table
var remedies = [effects.CodeCount]string{
	effects.NotFound: "register, or send a heartbeat",
	effects.Stale:    "register again: another process has that name",
	effects.Invalid:  "name an instance, a rank from 0 to 65535 and batches that were announced",
}
