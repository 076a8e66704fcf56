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

// replicateMessage appends an accepted message of a worker to the log. Refused messages are not appended. The appended
// bytes are encoded from the decoded message, so that additional bytes of the sender are not forwarded.
func (m *Machine) replicateMessage(h *receivedMessage, code effects.Code, x protocol.Message) {
	m.announceWorkers()
	if h.directory == 0 && m.log.IsEnabled() && (code == effects.OK || code == effects.Mismatch || code == effects.TooMany) {
		m.messages.messageBytes = x.Append(m.messages.messageBytes[:0])
		r := sharedlog.Report{Origin: uint64(h.Origin), Body: m.messages.messageBytes}
		m.messages.names = r.Append(m.messages.names[:0])
		m.queueFrame(sharedlog.FrameReport, h.Principal, m.messages.names)
	}
}

// queueFrame appends a frame to the log. If a worker proved an identity, the frame is sent inside a frame that states the
// identity. Older directories ignore that kind: they do not know whose a name is.
func (m *Machine) queueFrame(k sharedlog.FrameKind, p effects.Principal, body []byte) {
	if p != 0 {
		x := sharedlog.Proven{Principal: uint64(p), Kind: k, Body: body}
		m.messages.frame = x.Append(m.messages.frame[:0])
		k, body = sharedlog.FrameProven, m.messages.frame
	}
	m.log.QueueFrame(k, body)
}

// announceWorkers notifies the replicas about workers that this directory does not hear any more, and about workers
// that it hears from now on. The notifications precede all messages of these workers.
func (m *Machine) announceWorkers() {
	for _, w := range m.directory.Replication().DrainGone() {
		m.appendSubject(sharedlog.FrameUnfollowed, &w)
	}
	for _, w := range m.directory.Replication().DrainTaken() {
		m.appendSubject(sharedlog.FrameFollowed, &w)
	}
}

// appendSubject appends a frame about a worker to the log.
func (m *Machine) appendSubject(k sharedlog.FrameKind, w *directory.WorkerRef) {
	s := sharedlog.Subject{Follower: w.Directory, Rank: w.Worker, Instance: []byte(w.Instance)}
	m.messages.names = s.Append(m.messages.names[:0])
	m.queueFrame(k, w.Principal, m.messages.names)
}

// Limits for the frames that a step reads from the log. Further frames wait for the next step, and requests of
// workers are handled in between.
const (
	followFrames = 256
	followBytes  = 64 << 10 // plus the rest of the frame that exceeds the limit
)

// followLog handles frames that were read from the log, within the limits of a step.
func (m *Machine) followLog(now effects.Time, out *effects.Effects) {
	if !m.log.IsEnabled() {
		return
	}
	for n, bytes := 0, 0; n < followFrames && bytes < followBytes; n++ {
		f, ok := m.log.Next()
		if !ok {
			break
		}
		bytes += len(f.Body)
		m.malformedReported = m.malformedReported && !f.FirstOfEntry
		m.handleFrame(&receivedMessage{
			Received: &effects.Received{Body: f.Body}, now: now, out: out, directory: f.Author, gaps: f.Gaps,
		}, f.Kind)
	}
	if m.log.CaughtUp() {
		m.directory.Replication().RecordCaughtUp(now)
	}
}

// handleFrame handles a frame of another directory. Unknown kinds are ignored.
func (m *Machine) handleFrame(h *receivedMessage, kind sharedlog.FrameKind) {
	if kind == sharedlog.FrameProven {
		var x sharedlog.Proven
		if x.Decode(h.Body) != nil {
			return
		}
		kind, h.Principal, h.Body = x.Kind, effects.Principal(x.Principal), x.Body
	}
	if kind == sharedlog.FrameReport {
		var r sharedlog.Report
		if r.Decode(h.Body) == nil {
			h.Origin, h.Body = effects.Origin(r.Origin), r.Body
			m.handleReplicated(h)
		}
		return
	}
	var x sharedlog.Subject
	if x.Decode(h.Body) != nil {
		return
	}
	s := directory.Sender{Instance: x.Instance, Worker: int64(x.Rank), Principal: h.Principal, Directory: h.directory, Gaps: h.gaps}
	switch {
	case kind == sharedlog.FrameUnfollowed:
		m.directory.Replication().ForgetWorker(s)
	case kind == sharedlog.FrameFollowed:
		m.directory.Replication().ReassignWorker(h.now, s)
	case kind == sharedlog.FrameMissing && x.Follower == m.log.Incarnation() && m.directory.Replication().RequestSync(s) != effects.OK:
		m.log.QueueFrame(sharedlog.FrameUnfollowed, h.Body)
	}
}

// handleReplicated handles a worker's message that another directory received.
func (m *Machine) handleReplicated(h *receivedMessage) {
	tag, err := protocol.PeekControllerTag(h.Body, &m.config.Wire)
	if err != nil {
		m.refuseUndecodable(h, err)
		return
	}
	switch {
	case slices.Contains(requestTags, tag):
		h.Channel = effects.ChannelDirectory
	case slices.Contains(feedTags, tag):
		h.Channel = effects.ChannelFeed
	default:
		return // Requests that change nothing are not replicated.
	}
	m.handleMessage(h)
}

// requestTags lists the replicated messages that workers send as requests, and posted the replicated messages of the
// feed.
//
//kvferry:table
var (
	requestTags = []protocol.Tag{protocol.TagRegisterMsg, protocol.TagHeartbeatMsg, protocol.TagFullSyncStartMsg}
	feedTags    = []protocol.Tag{
		protocol.TagBatchedKVOperationMsg, protocol.TagKVAdmitMsg, protocol.TagKVEvictMsg, protocol.TagFullSyncBatchMsg,
		protocol.TagFullSyncEndMsg, protocol.TagDeRegisterMsg,
	}
)

// sendWants asks the directories that hear the workers to request full syncs of the workers of which operations are
// missing here.
func (m *Machine) sendWants(now effects.Time) {
	m.announceWorkers()
	if !m.log.IsEnabled() || m.log.IsDown() {
		return
	}
	shortest, longest := m.log.WantDelays()
	m.messages.wants = m.directory.Replication().CollectWanted(now, directory.WantBackoff{Min: shortest, Max: longest}, m.messages.wants[:0])
	for i := range m.messages.wants {
		m.appendSubject(sharedlog.FrameMissing, &m.messages.wants[i])
	}
}
