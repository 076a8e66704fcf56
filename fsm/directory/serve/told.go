package serve

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// What workers tell this directory it tells the others, as it came; and what others tell it hears as if it came from
// the worker, but for whose word that is.

// tells has other directories be told of a message, if it is one that they should know of: what was refused is not.
// They are told what was read of it, and nothing that a sender puts beside that.
func (m *Machine) tells(h *heard, code effects.Code, x protocol.Message) {
	m.took()
	if h.by == 0 && m.log.On() && (code == effects.OK || code == effects.Mismatch || code == effects.TooMany) {
		m.read.message = x.Append(m.read.message[:0])
		r := sharedlog.Report{Origin: uint64(h.Origin), Body: m.read.message}
		m.read.names = r.Append(m.read.names[:0])
		m.log.Tell(sharedlog.Message, m.read.names)
	}
}

// took tells whom this directory hears from now on, before what it heard, and whom it does not hear any more.
func (m *Machine) took() {
	for _, w := range m.known.Others().Gone() {
		m.subject(sharedlog.Gone, &w)
	}
	for _, w := range m.known.Others().Taken() {
		m.subject(sharedlog.Taken, &w)
	}
}

// subject tells of a worker.
func (m *Machine) subject(k sharedlog.Kind, w *directory.Want) {
	s := sharedlog.Subject{By: w.By, Rank: w.Worker, Instance: []byte(w.Instance)}
	m.read.names = s.Append(m.read.names[:0])
	m.log.Tell(k, m.read.names)
}

// What one step hears of the log at the most. The rest waits for the next step, and questions of workers are heard in
// between.
const (
	followFrames = 256
	followBytes  = 64 << 10 // and the rest of the frame that is beyond
)

// follow hears what was read of the log, as much of it as one step may.
func (m *Machine) follow(now effects.Time, out *effects.Effects) {
	if !m.log.On() {
		return
	}
	for n, bytes := 0, 0; n < followFrames && bytes < followBytes; n++ {
		f, ok := m.log.Next()
		if !ok {
			break
		}
		bytes += len(f.Body)
		m.blamed = m.blamed && !f.First
		m.frame(&heard{
			Received: &effects.Received{Body: f.Body}, now: now, out: out, by: f.Teller, gaps: f.Gaps,
		}, f.Kind)
	}
	if m.log.Caught() {
		m.known.Others().CaughtUp(now)
	}
}

// frame hears one of another directory. Kinds that nobody knows yet are left alone.
func (m *Machine) frame(h *heard, kind sharedlog.Kind) {
	if kind == sharedlog.Message {
		var r sharedlog.Report
		if r.Decode(h.Body) == nil {
			h.Origin, h.Body = effects.Origin(r.Origin), r.Body
			m.message(h)
		}
		return
	}
	var x sharedlog.Subject
	if x.Decode(h.Body) != nil {
		return
	}
	s := directory.Sender{Instance: x.Instance, Worker: int64(x.Rank), By: h.by, Gaps: h.gaps}
	switch {
	case kind == sharedlog.Gone:
		m.known.Others().Forget(s)
	case kind == sharedlog.Taken:
		m.known.Others().Take(h.now, s)
	case kind == sharedlog.Want && x.By == m.log.Life() && m.known.Others().Ask(s) != effects.OK:
		m.log.Tell(sharedlog.Gone, h.Body)
	}
}

// message hears what a worker told another directory.
func (m *Machine) message(h *heard) {
	tag, err := protocol.PeekControllerTag(h.Body, &m.config.Wire)
	if err != nil {
		m.unread(h, err)
		return
	}
	switch {
	case slices.Contains(asked, tag):
		h.Channel = effects.ChannelDirectory
	case slices.Contains(posted, tag):
		h.Channel = effects.ChannelFeed
	default:
		return // Questions change nothing.
	}
	m.hear(h)
}

// What workers tell by a question, and what they tell on the feed.
//
//kvferry:table
var (
	asked  = []protocol.Tag{protocol.TagRegisterMsg, protocol.TagHeartbeatMsg, protocol.TagFullSyncStartMsg}
	posted = []protocol.Tag{
		protocol.TagBatchedKVOperationMsg, protocol.TagKVAdmitMsg, protocol.TagKVEvictMsg, protocol.TagFullSyncBatchMsg,
		protocol.TagFullSyncEndMsg, protocol.TagDeRegisterMsg,
	}
)

// wants tells whoever hears them of which workers something is missing here.
func (m *Machine) wants(now effects.Time) {
	m.took()
	if !m.log.On() || m.log.Down() {
		return
	}
	least, most := m.log.Again()
	m.read.wants = m.known.Others().Wanted(now, directory.Pace{Least: least, Most: most}, m.read.wants[:0])
	for i := range m.read.wants {
		m.subject(sharedlog.Want, &m.read.wants[i])
	}
}
