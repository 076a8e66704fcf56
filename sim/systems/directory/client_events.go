package directory

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// clientOracle checks that workers tell directories what they have, and ask them, within their settings: neither too
// early nor too late, and neither more nor less at a time. It judges during faults too.
var clientOracle = oracle.New("clients", oracle.Promise("L10"), func(l *oracle.Subscriptions[clientLedger]) {
	begin := func(b *clientLedger, c *oracle.Call) *client {
		x := b.clientOf(c)
		if x != nil {
			x.now, x.frozenNow = c.LocalTime(), c.FrozenTime()
			x.checkOwed(c)
		}
		return x
	}
	oracle.On(l, func(b *clientLedger, c *oracle.Call, _ *effects.Tick) { begin(b, c) })
	oracle.On(l, func(b *clientLedger, c *oracle.Call, e *effects.Command) {
		if x := begin(b, c); x != nil {
			x.handleCommand(e)
		}
	})
	oracle.On(l, func(b *clientLedger, c *oracle.Call, e *effects.Opened) {
		if x := begin(b, c); x != nil {
			x.handleOpened(e)
		}
	})
	oracle.On(l, func(b *clientLedger, c *oracle.Call, e *effects.ConnLost) {
		if x := begin(b, c); x != nil {
			if d, k := x.lineOfConn(e.Conn); d != nil {
				d.lines[k].lose()
			}
		}
	})
	oracle.On(l, func(b *clientLedger, c *oracle.Call, e *effects.Unanswered) {
		if x := begin(b, c); x != nil {
			x.handleUnanswered(e.Corr)
		}
	})
	oracle.On(l, func(b *clientLedger, c *oracle.Call, e *effects.SendDone) {
		if x := begin(b, c); x != nil {
			x.handleSendDone(e)
		}
	})
	oracle.On(l, func(b *clientLedger, c *oracle.Call, e *effects.Replied) {
		if x := begin(b, c); x != nil {
			x.handleReplied(e)
		}
	})
	effect := func(b *clientLedger, c *oracle.Call) *client {
		x := b.clientOf(c)
		if x != nil {
			x.now = c.LocalTime()
		}
		return x
	}
	oracle.On(l, func(b *clientLedger, c *oracle.Call, e *effects.Open) {
		if x := effect(b, c); x != nil {
			x.handleOpen(c, e)
		}
	})
	oracle.On(l, func(b *clientLedger, c *oracle.Call, e *effects.Close) {
		if x := effect(b, c); x != nil {
			x.handleClose(c, e)
		}
	})
	oracle.On(l, func(b *clientLedger, c *oracle.Call, e *effects.Send) {
		if x := effect(b, c); x != nil {
			x.handleSend(c, e)
		}
	})
	oracle.On(l, func(b *clientLedger, c *oracle.Call, e *effects.Post) {
		if x := effect(b, c); x != nil {
			x.handlePost(c, e)
		}
	})
	oracle.On(l, func(b *clientLedger, c *oracle.Call, e *effects.Deliver) {
		if x := effect(b, c); x != nil {
			x.handleDeliver(c, e)
		}
	})
	oracle.On(l, func(b *clientLedger, c *oracle.Call, _ oracle.StepEnded) {
		if x := effect(b, c); x != nil {
			x.endStep(c)
		}
	})
	oracle.On(l, func(b *clientLedger, c *oracle.Call, _ oracle.IncarnationEnded) {
		if n := int(c.Node()); n < len(b.clients) {
			b.clients[n] = nil
		}
	})
})

// handleCommand records a command of the engine.
func (x *client) handleCommand(e *effects.Command) {
	switch b := e.Body.(type) {
	case *admitBody:
		for _, k := range b.chunks {
			x.change(k, false)
		}
	case *evictBody:
		for _, k := range b.chunks {
			x.change(k, true)
		}
	case *lookupBody:
		x.lookups.begin(x, e.Ticket, b.chunks)
	case *finalLookupBody:
		x.lookups.begin(x, e.Ticket, b.chunks)
	case *leaveBody:
		if x.leaving {
			break
		}
		x.leaving, x.leaveAt, x.leaveTicket = true, x.now, e.Ticket
	}
}

// change records that a chunk is added or removed, unless that changes nothing.
func (x *client) change(chunk uint64, removed bool) {
	count := len(x.chunks)
	if removed {
		x.chunks = removeChunk(x.chunks, chunk)
	} else {
		x.chunks = addChunk(x.chunks, chunk)
	}
	if len(x.chunks) == count {
		return
	}
	x.changes = append(x.changes, chunkChange{x.now, chunk, removed})
	for _, d := range x.directories {
		if d.posting == postingReport {
			d.unmeasured = len(x.changes)
		}
	}
}

func (x *client) handleOpened(e *effects.Opened) {
	d, k := x.lineOf(func(l *clientLine) bool { return l.opening == e.Corr })
	if d == nil {
		return
	}
	l := &d.lines[k]
	l.opening, l.idleSince = 0, x.now
	if e.Code == effects.OK {
		l.conn = e.Conn
		return
	}
	l.fail(x.now)
	x.abandon(d, k)
}

// abandon records that everything in flight on a connection has failed.
func (x *client) abandon(d *clientDirectory, k int) {
	plain := x.id.lacksExtensions
	switch k {
	case requestLine:
		if d.sync.stage == clientSyncRequested {
			d.sync.want(x.now)
		}
	case feedLine:
		d.posting = postingNothing
		d.reportFrom = x.now
		if d.known && (d.sync.stage > clientSyncRequested || plain && d.hasTold() && d.sync.stage == clientSyncNone) {
			d.sync.want(x.now)
		}
	case heartbeatLine:
		d.losses++
		if d.known && d.losses >= x.settings.HeartbeatsLost {
			d.known, d.changedAt = false, x.now
		}
	}
}

// hasTold reports whether a report or a sync was sent to the directory.
func (d *clientDirectory) hasTold() bool { return d.hasReported || d.sync.begun }

// handleUnanswered records that a request has no reply.
func (x *client) handleUnanswered(corr effects.Corr) {
	if d, k, _ := x.takeCall(corr); d != nil && d.lines[k].conn != 0 {
		d.lines[k].lose()
	}
}

func (x *client) handleSendDone(e *effects.SendDone) {
	d, k, _ := x.takeCall(e.Corr)
	if d == nil || d.lines[k].conn == 0 {
		return
	}
	if e.Code != effects.OK {
		d.lines[k].lose()
		return
	}
	kind := d.posting
	d.posting, d.lines[k].failures, d.reportFrom = postingNothing, 0, x.now
	switch kind {
	case postingReport:
		d.reported, d.hasReported = d.posted, true
	case postingReminder:
		d.hasReported = true
	case postingBatch:
		d.sync.completeBatch(x.now.Add(x.settings.SyncPause))
	case postingEnd:
		d.sync.stage, d.sync.nextAt = clientSyncSent, x.now.Add(x.settings.SyncPoll)
	case postingLeave:
		d.deregistered = true
	case postingNothing:
	}
}

func (x *client) handleReplied(e *effects.Replied) {
	d, k, call := x.takeCall(e.Corr)
	if d == nil || d.lines[k].conn == 0 {
		return
	}
	l := &d.lines[k]
	valid := false
	switch call.tag {
	case protocol.TagRegisterMsg:
		valid = x.handleRegisterReply(d, l, e.Body)
	case protocol.TagHeartbeatMsg:
		valid = x.handleHeartbeatReply(d, l, e.Body)
	case protocol.TagFullSyncStartMsg:
		valid = x.handleSyncReply(d, l, e.Body)
	case protocol.TagFullSyncStatusMsg:
		valid = x.handleStatusReply(d, e.Body)
	case protocol.TagBatchedP2PLookupMsg:
		valid = x.lookups.handleReply(x, l, &call, e.Body)
	default:
		valid = true
	}
	if !valid { // The worker closes the connection.
		l.ended = true
	}
}

// isRefusal reports whether a reply is an error message.
func isRefusal(body []byte) bool { return new(protocol.ErrorMsg).Decode(body, nil) == nil }

func (x *client) handleRegisterReply(d *clientDirectory, l *clientLine, body []byte) bool {
	var m protocol.RegisterRetMsg
	if m.Decode(body, nil) != nil {
		if isRefusal(body) {
			l.fail(x.now)
			d.registerAfter, d.registerBy = x.now.Add(x.backoff(l)/2), x.now.Add(x.backoff(l))
			return true
		}
		return false
	}
	l.failures = 0
	if d.known {
		return true
	}
	d.known, d.everRegistered, d.changedAt, d.losses, d.unanswered = true, true, x.now, 0, 0
	d.silence = effects.Duration(m.SilenceNS)
	d.nextHeartbeat, d.reportFrom = x.now.Add(x.heartbeatInterval(d)), x.now
	if x.id.lacksExtensions && d.hasTold() {
		d.sync.want(x.now)
	}
	return true
}

func (x *client) handleHeartbeatReply(d *clientDirectory, l *clientLine, body []byte) bool {
	var m protocol.HeartbeatRetMsg
	if m.Decode(body, nil) != nil {
		if !isRefusal(body) {
			d.unanswered-- // Nor does the worker count it as lost.
			return false
		}
		if d.known { // The worker registers again, after a pause.
			d.known, d.changedAt = false, x.now
			d.registerAfter = x.now.Add(x.settings.BackoffMin / 2)
			d.registerBy = x.now.Add(x.settings.BackoffMin)
		}
		return true
	}
	d.losses, d.unanswered, l.failures, d.silence = 0, 0, 0, effects.Duration(m.SilenceNS)
	d.nextHeartbeat = min(d.nextHeartbeat, x.now.Add(x.heartbeatInterval(d)))
	for _, command := range m.Commands {
		if command.Type == protocol.CommandFullSync && d.known {
			if d.sync.stage == clientSyncNone {
				d.sync.want(x.now)
			}
			if string(command.Reason) == protocol.ReasonForgotten {
				d.sync.forgetFailures(x.settings)
			}
		}
	}
	return true
}

func (x *client) handleSyncReply(d *clientDirectory, l *clientLine, body []byte) bool {
	var m protocol.FullSyncStartRetMsg
	if d.sync.stage != clientSyncRequested {
		return true
	}
	d.reportFrom = x.now
	switch {
	case m.Decode(body, nil) != nil:
		d.sync.want(x.now)
		return isRefusal(body)
	case !bytes.Equal(m.SyncID, d.sync.id):
		d.sync.want(x.now)
		return false
	case !m.Accepted:
		d.sync.want(x.now)
	default:
		l.failures = 0
		d.sync.stage, d.sync.nextAt = clientSyncSending, x.now
		d.reported = max(d.reported, d.sync.covered)
	}
	return true
}

func (x *client) handleStatusReply(d *clientDirectory, body []byte) bool {
	var m protocol.FullSyncStatusRetMsg
	y := &d.sync
	switch {
	case y.stage != clientSyncSent:
	case m.Decode(body, nil) != nil:
		return isRefusal(body)
	case !bytes.Equal(m.SyncID, y.id):
		return false
	case m.IsComplete:
		y.stage, y.failures, d.reportFrom = clientSyncNone, 0, x.now
	case m.CanExitFreeze && len(m.MissingBatches) == 0: // The directory does not know the sync.
		y.want(x.now)
	default:
		for _, n := range m.MissingBatches[:min(len(m.MissingBatches), x.settings.SyncResendMax)] {
			if n >= 0 && n < int64(y.batches) {
				y.resend = append(y.resend, uint32(n))
			}
		}
		y.stage, y.nextAt = clientSyncSending, x.now
	}
	return true
}

func (x *client) handleOpen(c *oracle.Call, e *effects.Open) {
	k := 0
	switch e.Channel {
	case effects.ChannelFeed:
		k = feedLine
	case effects.ChannelHeartbeat:
		k = heartbeatLine
	case effects.ChannelDirectory:
		k = requestLine
		if e.Window > 0 {
			k = lookupLine
		}
	default:
		return
	}
	d := x.directoryAt(e.Addr.Host)
	l := &d.lines[k]
	l.opening, l.window = e.Corr, e.Window
	if k == lookupLine {
		x.checkWindow(c, d, e.Window)
	}
	if l.failures == 0 {
		return
	}
	c.CountJudged(checkBackoff)
	if wait, least := x.now.Sub(l.failedAt), x.backoff(l)/2; wait < least {
		c.FailCheck(checkBackoff, "%s opens a connection to %s again %d ns after failure %d in sequence, and at least %d ns are required",
			c.NodeName(), d.host, wait, l.failures, least)
	}
}

func (x *client) handleClose(c *oracle.Call, e *effects.Close) {
	d, k := x.lineOfConn(e.Conn)
	if d == nil {
		return
	}
	l := &d.lines[k]
	if inFlight := len(l.calls) > 0; inFlight && !l.ended {
		x.checkGivenUp(c, d, k)
		l.lost = true
	}
	l.conn = 0
	l.fail(x.now)
	if len(l.calls) == 0 {
		l.idleSince = x.now
	}
	if l.lost {
		x.abandon(d, k)
	}
	if k == lookupLine {
		x.lookups.closeLine(l)
	}
}

// endStep computes what the worker owes from now on.
func (x *client) endStep(c *oracle.Call) {
	x.frozen = c.FrozenTime()
	for _, d := range x.directories {
		for k := range d.lines {
			d.lines[k].ended, d.lines[k].lost = false, false
		}
		if l := &d.lines[lookupLine]; l.conn == 0 || len(l.calls) >= int(l.window) {
			l.fullAt = x.now
		}
	}
	x.lookups.endStep(x, c)
	x.owed = owed{}
	x.computeOwed()
}
