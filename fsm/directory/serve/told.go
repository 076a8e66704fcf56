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
func (m *Machine) tells(h *heard, code effects.Code) {
	m.took()
	if h.by == 0 && (code == effects.OK || code == effects.Mismatch || code == effects.TooMany) {
		m.log.Tell(sharedlog.Message, h.Body)
	}
}

// took tells whom this directory hears from now on: before what it heard.
func (m *Machine) took() {
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

// follow hears what was read of the log.
func (m *Machine) follow(now effects.Time, a *sharedlog.Answer, out *effects.Effects) {
	for i := range a.Entries {
		e, gaps, ok := m.log.Follow(a.Entries[i].Entry)
		if !ok {
			continue
		}
		for rest := e.Frames; len(rest) > 0; {
			var kind sharedlog.Kind
			var body []byte
			kind, body, rest, _ = sharedlog.CutFrame(rest)
			m.frame(&heard{
				Received: &effects.Received{Body: body}, now: now, out: out, by: e.Teller, gaps: gaps,
			}, kind)
		}
	}
	if m.log.Caught(a) {
		m.known.Others().CaughtUp(now)
	}
}

// frame hears one of another directory. Kinds that nobody knows yet are left alone.
func (m *Machine) frame(h *heard, kind sharedlog.Kind) {
	if kind == sharedlog.Message {
		m.message(h)
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
		h.unread(err)
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
