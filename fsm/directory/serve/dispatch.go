package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// handleMessage dispatches a message. The handler depends only on the message's tag and channel. A client that proved an
// identity without a role for the channel is refused, whatever it says. Clients of other directories have been judged
// there.
func (m *Machine) handleMessage(h *receivedMessage) {
	if needed := h.Channel.ClientRoles(); h.directory == 0 && h.LacksRole(needed) {
		m.refuseMessage(h, effects.Forbidden, &effects.Why{
			Field: "security.policy", Theirs: h.Roles.String(), Ours: "one of " + needed.String(),
		})
		return
	}
	tag, err := protocol.PeekControllerTag(h.Body, &m.config.Wire)
	if err != nil {
		m.refuseUndecodable(h, err)
		return
	}
	switch isRequest, isFeed := h.Channel == effects.ChannelDirectory, h.Channel == effects.ChannelFeed; {
	case tag == protocol.TagHeartbeatMsg && (isRequest || h.Channel == effects.ChannelHeartbeat):
		m.handleHeartbeat(h)
	case tag == protocol.TagBatchedP2PLookupMsg && isRequest:
		m.handleLookup(h)
	case tag == protocol.TagRegisterMsg && isRequest:
		m.handleRegister(h)
	case tag == protocol.TagFullSyncStartMsg && isRequest:
		m.handleSyncBegin(h)
	case tag == protocol.TagFullSyncStatusMsg && isRequest:
		m.handleSyncStatus(h)
	case tag == protocol.TagBatchedKVOperationMsg && isFeed:
		m.handleOperations(h)
	case tag == protocol.TagKVAdmitMsg && isFeed, tag == protocol.TagKVEvictMsg && isFeed:
		m.handleOperation(h, tag)
	case tag == protocol.TagFullSyncBatchMsg && isFeed:
		m.handleSyncBatch(h)
	case tag == protocol.TagFullSyncEndMsg && isFeed:
		m.handleSyncEnd(h)
	case tag == protocol.TagDeRegisterMsg && isFeed:
		m.handleDeregister(h)
	default:
		m.refuseMessage(h, effects.Unsupported, &effects.Why{
			Field: tag.String() + " on " + h.Channel.String(), Remedy: "send it where LMCache's workers do",
		})
	}
}

// decodeMessage decodes a message. If that fails, decodeMessage refuses the message and returns false.
func (m *Machine) decodeMessage(h *receivedMessage, into protocol.Message) bool {
	if err := into.Decode(h.Body, &m.config.Wire); err != nil {
		m.refuseUndecodable(h, err)
		return false
	}
	return true
}

// refuseUndecodable refuses a message that cannot be decoded.
func (m *Machine) refuseUndecodable(h *receivedMessage, err error) {
	m.refuseMessage(h, effects.Malformed, &effects.Why{
		Field: effects.SanitizeText([]byte(err.Error())), Remedy: "send what LMCache's workers send to their controller",
	})
}

// refuseMessage records that a message was refused, and answers with an ErrorMsg if the sender expects a reply.
func (m *Machine) refuseMessage(h *receivedMessage, code effects.Code, why *effects.Why) {
	m.reportRefusal(h, code, why)
	if h.Request != 0 {
		e := protocol.ErrorMsg{Error: []byte(code.String() + ": " + why.Text(code))}
		h.sendReply(e.Append(h.out.Arena()))
	}
}

// reportRefusal emits a FactMalformed with the reason why a message was refused. For messages read from the log, only
// malformed ones are reported, once for each entry.
func (m *Machine) reportRefusal(h *receivedMessage, code effects.Code, why *effects.Why) {
	if h.directory != 0 {
		if code != effects.Malformed || m.malformedReported {
			return // The directory that forwarded the message may have different records.
		}
		m.malformedReported = true
	}
	h.out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: code, ID: uint64(h.Conn), Why: why})
}

// sendReply answers with the bytes that were just appended to the step's arena, if the sender expects a reply.
func (h *receivedMessage) sendReply(body []byte) {
	if body := h.out.Cut(body); h.Request != 0 {
		h.out.Reply(effects.Reply{Request: h.Request, Body: body})
	}
}

// describeRefusal describes a refused message of a worker: the instance, the kind of message and a remedy.
func describeRefusal(w *protocol.Worker, kind string, code effects.Code) *effects.Why {
	return &effects.Why{Name: effects.SanitizeText(w.InstanceID), Field: kind, Remedy: remedies[code]}
}

// remedies are hints for the operators of workers, by code.
//
//kvferry:table
var remedies = [effects.CodeCount]string{
	effects.NotFound: "register, or send a heartbeat",
	effects.Stale:    "register again: another process has that name",
	effects.Invalid:  "name an instance, a rank from 0 to 65535 and batches that were announced",

	effects.Forbidden: "prove the identity of the process that has the name, or wait until the directory has dropped it",
}
