package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// senderOf returns the identity of the worker that sent the message.
func (h *receivedMessage) senderOf(w *protocol.Worker, incarnation protocol.UUID) directory.Sender {
	return directory.Sender{
		Instance: w.InstanceID, Worker: int64(w.WorkerID), Incarnation: effects.Incarnation(incarnation), Source: uint64(h.Conn),
		Origin: h.Origin, Principal: h.Principal,
		Directory: h.directory, Gaps: h.gaps,
	}
}

// handleRegister handles a registration.
func (m *Machine) handleRegister(h *receivedMessage) {
	var x protocol.RegisterMsg
	if !m.decodeMessage(h, &x) {
		return
	}
	code := m.directory.Register(h.now, h.senderOf(&x.Worker, x.Incarnation), addressOf(&x.Listener, x.PeerInitURL))
	if code != effects.OK {
		m.refuseMessage(h, code, describeRefusal(&x.Worker, "registration", code))
		return
	}
	m.replicateMessage(h, code, &x)
	answer := protocol.RegisterRetMsg{
		ExtraConfig: protocol.ExtraConfig{HeartbeatURL: []byte(m.config.Heartbeat)}, SilenceNS: m.silenceFor(x.Incarnation),
	}
	h.sendReply(answer.Append(h.out.Arena()))
}

// silenceFor returns the time after which a silent worker is dropped, for the reply to the worker. It returns 0 for
// workers without an incarnation: these are LMCache's, which do not know the field.
func (m *Machine) silenceFor(incarnation protocol.UUID) uint64 {
	if incarnation == (protocol.UUID{}) {
		return 0
	}
	return uint64(m.config.Directory.Silence)
}

// handleHeartbeat handles a heartbeat. The reply may request a full sync.
func (m *Machine) handleHeartbeat(h *receivedMessage) {
	var x protocol.HeartbeatMsg
	if !m.decodeMessage(h, &x) {
		return
	}
	why, code := m.directory.Heartbeat(h.now, h.senderOf(&x.Worker, x.Incarnation), addressOf(&x.Listener, x.PeerInitURL))
	if code != effects.OK {
		m.refuseMessage(h, code, describeRefusal(&x.Worker, "heartbeat", code))
		return
	}
	m.replicateMessage(h, code, &x)
	answer := protocol.HeartbeatRetMsg{SilenceNS: m.silenceFor(x.Incarnation)}
	if why != directory.NoSync {
		answer.Commands = []protocol.Command{{Type: protocol.CommandFullSync, Reason: []byte(why.String())}}
	}
	h.sendReply(answer.Append(h.out.Arena()))
}

// handleDeregister handles a deregistration.
func (m *Machine) handleDeregister(h *receivedMessage) {
	var x protocol.DeRegisterMsg
	if !m.decodeMessage(h, &x) {
		return
	}
	code := m.directory.Deregister(h.now, h.senderOf(&x.Worker, x.Incarnation), addressOf(&x.Listener, nil))
	if code != effects.OK {
		m.refuseMessage(h, code, describeRefusal(&x.Worker, "deregistration", code))
	}
	m.replicateMessage(h, code, &x)
}

func addressOf(l *protocol.Listener, url []byte) directory.Address {
	return directory.Address{IP: l.IP, Port: int64(l.Port), URL: url}
}
