package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// hear does what a message wants. Where each belongs is decided by its tag and its channel alone.
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

// decode reads a message, or refuses it.
func (m *Machine) decode(h *heard, into protocol.Message) bool {
	if err := into.Decode(h.Body, &m.config.Wire); err != nil {
		m.unread(h, err)
		return false
	}
	return true
}

// unread refuses what is no message.
func (m *Machine) unread(h *heard, err error) {
	m.refuse(h, effects.Malformed, &effects.Why{
		Field: effects.Words([]byte(err.Error())), Remedy: "send what LMCache's workers send to their controller",
	})
}

// refuse says that nothing comes of a message: to people, and to who asks.
func (m *Machine) refuse(h *heard, code effects.Code, why *effects.Why) {
	m.dropped(h, code, why)
	if h.Request != 0 {
		e := protocol.ErrorMsg{Error: []byte(code.String() + ": " + why.Text(code))}
		h.reply(e.Append(h.out.Arena()))
	}
}

// dropped tells people why: of an entry of the log once.
func (m *Machine) dropped(h *heard, code effects.Code, why *effects.Why) {
	if h.by != 0 {
		if code != effects.Malformed || m.blamed {
			return // Another directory told of it, of which more or less is known here.
		}
		m.blamed = true
	}
	h.out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: code, ID: uint64(h.Conn), Why: why})
}

// reply answers with what was appended to the arena, if anybody asks.
func (h *heard) reply(body []byte) {
	if body := h.out.Cut(body); h.Request != 0 {
		h.out.Reply(effects.Reply{Request: h.Request, Body: body})
	}
}

// about says of which worker's message a directory says that code.
func about(w *protocol.Worker, what string, code effects.Code) *effects.Why {
	return &effects.Why{Name: effects.Words(w.InstanceID), Field: what, Remedy: remedies[code]}
}

// remedies are for workers.
//
//kvferry:table
var remedies = [effects.CodeCount]string{
	effects.NotFound: "register, or send a heartbeat",
	effects.Stale:    "register again: another process has that name",
	effects.Invalid:  "name an instance, a rank from 0 to 65535 and batches that were announced",
}
