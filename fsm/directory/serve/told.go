package serve

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// Replication: the messages that this directory accepts from workers are appended to the log. Messages that are read
// from the log are handled like messages of the worker, except that the fields by and gaps name the directory that
// received them.

// tells appends an accepted message of a worker to the log. Refused messages are not appended. The appended bytes are
// encoded from the decoded message, so that additional bytes of the sender are not forwarded.
func (m *Machine) tells(h *heard, code effects.Code, x protocol.Message) {
	m.took()
	if h.by == 0 && m.log.On() && (code == effects.OK || code == effects.Mismatch || code == effects.TooMany) {
		m.read.message = x.Append(m.read.message[:0])
		r := sharedlog.Report{Origin: uint64(h.Origin), Body: m.read.message}
		m.read.names = r.Append(m.read.names[:0])
		m.log.Tell(sharedlog.Message, m.read.names)
	}
}

// took notifies the replicas about workers that this directory does not hear any more, and about workers that it
// hears from now on. The notifications precede all messages of these workers.
func (m *Machine) took() {
	for _, w := range m.known.Others().Gone() {
		m.subject(sharedlog.Gone, &w)
	}
	for _, w := range m.known.Others().Taken() {
		m.subject(sharedlog.Taken, &w)
	}
}

// subject appends a frame about a worker to the log.
func (m *Machine) subject(k sharedlog.Kind, w *directory.Want) {
	s := sharedlog.Subject{By: w.By, Rank: w.Worker, Instance: []byte(w.Instance)}
	m.read.names = s.Append(m.read.names[:0])
	m.log.Tell(k, m.read.names)
}

// Limits for the frames that a step reads from the log. Further frames wait for the next step, and requests of
// workers are handled in between.
const (
	followFrames = 256
	followBytes  = 64 << 10 // plus the rest of the frame that exceeds the limit
)

// follow handles frames that were read from the log, within the limits of a step.
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

// frame handles a frame of another directory. Unknown kinds are ignored.
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

// message handles a worker's message that another directory received.
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
		return // Requests that change nothing are not replicated.
	}
	m.hear(h)
}

// asked lists the replicated messages that workers send as requests, and posted the replicated messages of the feed.
//
//kvferry:table
var (
	asked  = []protocol.Tag{protocol.TagRegisterMsg, protocol.TagHeartbeatMsg, protocol.TagFullSyncStartMsg}
	posted = []protocol.Tag{
		protocol.TagBatchedKVOperationMsg, protocol.TagKVAdmitMsg, protocol.TagKVEvictMsg, protocol.TagFullSyncBatchMsg,
		protocol.TagFullSyncEndMsg, protocol.TagDeRegisterMsg,
	}
)

// wants asks the directories that hear the workers to request full syncs of the workers of which operations are
// missing here.
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
