package serve

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// sender returns the identity of the worker that sent the message.
func (h *heard) sender(w *protocol.Worker, is protocol.UUID) directory.Sender {
	return directory.Sender{
		Instance: w.InstanceID, Worker: int64(w.WorkerID), Incarnation: effects.Incarnation(is), Source: uint64(h.Conn),
		Origin: h.Origin,
		By:     h.by, Gaps: h.gaps,
	}
}

// register handles a registration.
func (m *Machine) register(h *heard) {
	var x protocol.RegisterMsg
	if !m.decode(h, &x) {
		return
	}
	code := m.known.Register(h.now, h.sender(&x.Worker, x.Incarnation), address(&x.Listener, x.PeerInitURL))
	if code != effects.OK {
		m.refuse(h, code, about(&x.Worker, "registration", code))
		return
	}
	m.tells(h, code, &x)
	answer := protocol.RegisterRetMsg{
		ExtraConfig: protocol.ExtraConfig{HeartbeatURL: []byte(m.config.Heartbeat)}, SilenceNS: m.silence(x.Incarnation),
	}
	h.reply(answer.Append(h.out.Arena()))
}

// silence returns the time after which a silent worker is dropped, for the reply to the worker. It returns 0 for
// workers without an incarnation: these are LMCache's, which do not know the field.
func (m *Machine) silence(is protocol.UUID) uint64 {
	if is == (protocol.UUID{}) {
		return 0
	}
	return uint64(m.config.Directory.Silence)
}

// heartbeat handles a heartbeat. The reply may request a full sync.
func (m *Machine) heartbeat(h *heard) {
	var x protocol.HeartbeatMsg
	if !m.decode(h, &x) {
		return
	}
	why, code := m.known.Heartbeat(h.now, h.sender(&x.Worker, x.Incarnation), address(&x.Listener, x.PeerInitURL))
	if code != effects.OK {
		m.refuse(h, code, about(&x.Worker, "heartbeat", code))
		return
	}
	m.tells(h, code, &x)
	answer := protocol.HeartbeatRetMsg{SilenceNS: m.silence(x.Incarnation)}
	if why != directory.NoSync {
		answer.Commands = []protocol.Command{{Type: protocol.CommandFullSync, Reason: []byte(why.String())}}
	}
	h.reply(answer.Append(h.out.Arena()))
}

// deregister handles a deregistration.
func (m *Machine) deregister(h *heard) {
	var x protocol.DeRegisterMsg
	if !m.decode(h, &x) {
		return
	}
	code := m.known.Deregister(h.now, h.sender(&x.Worker, x.Incarnation), address(&x.Listener, nil))
	if code != effects.OK {
		m.refuse(h, code, about(&x.Worker, "deregistration", code))
	}
	m.tells(h, code, &x)
}

func address(l *protocol.Listener, url []byte) directory.Address {
	return directory.Address{IP: l.IP, Port: int64(l.Port), URL: url}
}
