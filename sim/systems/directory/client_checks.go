package directory

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// The checks of clientOracle.
var (
	checkTimeout    = oracle.NewCheck("L10", "requests to directories that are given up in time")
	checkBackoff    = oracle.NewCheck("L10", "delays before a directory is connected again")
	checkRegister   = oracle.NewCheck("L10", "registrations of workers, when the directory does not know them")
	checkHeartbeat  = oracle.NewCheck("L10", "times of heartbeats")
	checkIdentity   = oracle.NewCheck("L10", "addresses and stores that workers state")
	checkReport     = oracle.NewCheck("L10", "operations of a report")
	checkReportTime = oracle.NewCheck("L10", "times of reports")
	checkSyncBegin  = oracle.NewCheck("L10", "begins of full syncs")
	checkSyncBatch  = oracle.NewCheck("L10", "batches of full syncs")
	checkSyncTime   = oracle.NewCheck("L10", "times between the batches of a full sync")
	checkSyncPoll   = oracle.NewCheck("L10", "status requests of full syncs")
	checkLeave      = oracle.NewCheck("L10", "deregistrations of workers")
)

// clientGrace is the time by which a driver may be late with a deadline.
const clientGrace = 3 * effects.Millisecond

// A clientSync is the state of a full sync of a directory.
type clientSync struct {
	stage     clientSyncStage
	wantedAt  effects.Time
	begun     bool // a sync was begun
	beganAt   effects.Time
	id        []byte
	earliest  effects.Time // earliest begin of the next sync
	failures  uint32       // consecutive syncs that did not complete, with the present sync
	covered   int          // changes that the sync covers
	batches   uint32
	nextBatch uint32
	resend    []uint32     // batches that the directory misses
	nextAt    effects.Time // earliest instant of the next message
	polls     uint32
}

// A clientSyncStage is the progress of a full sync.
type clientSyncStage uint8

const (
	clientSyncNone clientSyncStage = iota
	clientSyncWanted
	clientSyncRequested
	clientSyncSending
	clientSyncSent
)

// want records that a sync must be begun, or begun again.
func (y *clientSync) want(now effects.Time) {
	if y.stage != clientSyncWanted {
		y.stage, y.wantedAt = clientSyncWanted, now
	}
}

// forgetFailures records that the directory has forgotten the worker with its syncs, which did not fail therefore.
func (y *clientSync) forgetFailures(s *registrar.Config) {
	y.failures = 0
	if y.begun {
		y.earliest = min(y.earliest, y.beganAt.Add(s.SyncEvery))
	}
}

func (y *clientSync) completeBatch(nextAt effects.Time) {
	if len(y.resend) > 0 {
		y.resend = slices.Delete(y.resend, 0, 1)
	} else {
		y.nextBatch++
	}
	y.nextAt = nextAt
}

// checkOwed checks at an event that the worker owed nothing before.
func (x *client) checkOwed(c *oracle.Call) {
	if x.owed.by == 0 {
		return
	}
	late := x.now.Sub(x.owed.by)
	// While a process is frozen it does nothing. Its clock may run faster than the clock by which it is frozen.
	if frozen := c.FrozenTime() - x.frozen; late > clientGrace+frozen+frozen/20 {
		c.FailCheck(x.owed.judge, "%s owes %s %s since %d ns", c.NodeName(), x.owed.at, x.owed.what, late)
	}
}

// owe records that the worker owes something to a directory.
func (x *client) owe(d *clientDirectory, by effects.Time, check oracle.Check, what string) {
	if by = max(by, 1); x.owed.by == 0 || by < x.owed.by {
		x.owed = owed{by: by, judge: check, what: what, at: d.host}
	}
}

// oweOn records that the worker owes something that needs a connection. While the connection is busy, the instant is
// not known.
func (x *client) oweOn(d *clientDirectory, k int, by effects.Time, check oracle.Check, what string) {
	if l := &d.lines[k]; !l.isBusy() {
		x.owe(d, max(by, x.usableFrom(l)), check, what)
	}
}

// computeOwed computes what the worker owes to the directories.
func (x *client) computeOwed() {
	s := x.settings
	for _, d := range x.directories {
		for k := range d.lines[:lookupLine] {
			l := &d.lines[k]
			if k != feedLine && l.conn != 0 && len(l.calls) > 0 {
				x.owe(d, l.calls[0].at.Add(s.RequestTimeout), checkTimeout, "the end of a request without a reply")
			}
		}
		switch {
		case x.leaving:
			x.oweDeregistration(d)
		case d.known:
			x.oweToKnown(d)
		case !d.lines[requestLine].isBusy():
			x.owe(d, latestOf(d.changedAt, d.registerBy, x.usableFrom(&d.lines[requestLine])), checkRegister, "a registration")
		}
	}
	x.lookups.computeOwed(x)
}

func (x *client) oweDeregistration(d *clientDirectory) {
	if x.leaveTicket != 0 {
		x.owe(d, x.leaveAt.Add(x.settings.LeaveTimeout), checkLeave, "the end of the deregistration")
	}
	q, h := &d.lines[requestLine], &d.lines[heartbeatLine]
	if d.registerSent && !d.deregistered && x.now < x.leaveAt.Add(x.settings.LeaveTimeout) && !q.isBusy() && !h.isBusy() {
		x.oweOn(d, feedLine, latestOf(x.leaveAt, q.idleSince, h.idleSince), checkLeave, "a deregistration")
	}
}

func (x *client) oweToKnown(d *clientDirectory) {
	s, y := x.settings, &d.sync
	x.oweOn(d, heartbeatLine, max(d.nextHeartbeat, d.changedAt), checkHeartbeat, "a heartbeat")
	pending := x.pending(d)
	reportBy := effects.Time(0)
	if pending > 0 && !d.lines[feedLine].isBusy() {
		reportBy = latestOf(x.changes[d.reported].at, d.reportFrom, d.changedAt)
		if pending < s.ReportOperations || d.lines[feedLine].conn == 0 {
			reportBy = reportBy.Add(s.ReportDelay)
		} else {
			reportBy = max(reportBy, x.changes[d.reported+s.ReportOperations-1].at)
		}
	}
	if reportBy != 0 && pending <= x.journal && y.stage != clientSyncRequested {
		x.oweOn(d, feedLine, reportBy, checkReportTime, "a report")
	}
	if d.lines[feedLine].isBusy() {
		return
	}
	switch y.stage {
	case clientSyncNone:
		if pending > x.journal {
			reportBy = latestOf(reportBy, x.changes[d.reported+x.journal].at, x.usableFrom(&d.lines[feedLine]))
			x.oweOn(d, requestLine, max(reportBy, y.earliest), checkSyncBegin, "a full sync, because the journal is too short")
		}
	case clientSyncWanted:
		x.oweOn(d, requestLine, latestOf(y.wantedAt, y.earliest, d.changedAt, d.lines[feedLine].idleSince), checkSyncBegin, "a full sync")
	case clientSyncSending:
		x.oweOn(d, feedLine, max(y.nextAt, d.changedAt), checkSyncTime, "the next message of a full sync")
	case clientSyncSent:
		if y.polls < s.SyncPollsMax {
			x.oweOn(d, requestLine, max(y.nextAt, d.changedAt), checkSyncPoll, "a status request")
		} else {
			x.oweOn(d, requestLine, latestOf(y.nextAt, y.earliest, d.changedAt), checkSyncPoll, "another full sync after the last status request")
		}
	case clientSyncRequested:
	}
}

// checkGivenUp checks that a worker closes a connection with requests in flight only when one is overdue.
func (x *client) checkGivenUp(c *oracle.Call, d *clientDirectory, k int) {
	oldest := d.lines[k].calls[0].at
	switch {
	case k == lookupLine:
		x.lookups.checkGivenUp(x, c, &d.lines[k])
		return
	case k == feedLine, x.leaving && x.now >= x.leaveAt.Add(x.settings.LeaveTimeout):
		return
	}
	c.CountJudged(checkTimeout)
	if waited := x.now.Sub(oldest); waited < x.settings.RequestTimeout {
		c.FailCheck(checkTimeout, "%s gives up a request to %s after %d ns, and the timeout is %d ns", c.NodeName(), d.host, waited,
			x.settings.RequestTimeout)
	}
}

// handleSend judges a request to a directory.
func (x *client) handleSend(c *oracle.Call, e *effects.Send) {
	d, k := x.lineOfConn(e.Conn)
	if d == nil {
		return
	}
	l := &d.lines[k]
	tag, _ := protocol.PeekControllerTag(e.Body, nil)
	call := clientCall{corr: e.Corr, at: x.now, tag: tag}
	switch tag {
	case protocol.TagRegisterMsg:
		x.checkRegistration(c, d, l)
		x.checkAddresses(c, e.Body)
	case protocol.TagHeartbeatMsg:
		x.checkHeartbeatTime(c, d)
		x.checkAddresses(c, e.Body)
	case protocol.TagFullSyncStartMsg:
		x.checkSyncStart(c, d, e.Body)
	case protocol.TagFullSyncStatusMsg:
		x.checkStatusRequest(c, d)
	case protocol.TagBatchedP2PLookupMsg:
		call.lookup, call.ticket = x.lookups.checkRequest(x, c, d, e.Body)
	default:
	}
	l.calls = append(l.calls, call)
}

func (x *client) checkRegistration(c *oracle.Call, d *clientDirectory, _ *clientLine) {
	c.CountJudged(checkRegister)
	switch {
	case d.known:
		c.FailCheck(checkRegister, "%s registers with %s again after %d heartbeats without a reply, and the limit is %d", c.NodeName(),
			d.host, d.losses, x.settings.HeartbeatsLost)
	case x.now < d.registerAfter:
		c.FailCheck(checkRegister, "%s registers with %s again %d ns too early after a refusal", c.NodeName(), d.host,
			d.registerAfter.Sub(x.now))
	}
	d.registerSent = true
}

func (x *client) checkHeartbeatTime(c *oracle.Call, d *clientDirectory) {
	c.CountJudged(checkHeartbeat)
	switch {
	case d.unanswered >= x.settings.HeartbeatsLost || !d.known:
		c.FailCheck(checkRegister, "%s sends a heartbeat to %s after %d without a reply, and must register again", c.NodeName(), d.host,
			d.unanswered)
	case x.now < d.nextHeartbeat:
		c.FailCheck(checkHeartbeat, "%s sends a heartbeat to %s %d ns early", c.NodeName(), d.host, d.nextHeartbeat.Sub(x.now))
	}
	d.unanswered++
	d.nextHeartbeat = x.now.Add(x.heartbeatInterval(d))
}

// checkAddresses checks what a registration or a heartbeat states about the worker.
func (x *client) checkAddresses(c *oracle.Call, body []byte) {
	var m protocol.RegisterMsg
	var h protocol.HeartbeatMsg
	if m.Decode(body, nil) != nil {
		if h.Decode(body, nil) != nil {
			return
		}
		m = protocol.RegisterMsg(h)
	}
	c.CountJudged(checkIdentity)
	if at := x.id.listener(); string(m.IP) != string(at.IP) || m.Port != at.Port {
		c.FailCheck(checkIdentity, "%s states the address %s:%d instead of %s:%d", c.NodeName(), m.IP, m.Port, at.IP, at.Port)
	}
}

// checkLocation checks the store that a message is about.
func (x *client) checkLocation(c *oracle.Call, location []byte) {
	c.CountJudged(checkIdentity)
	if string(location) != string(cpuLocation) {
		c.FailCheck(checkIdentity, "%s reports the store %s instead of %s", c.NodeName(), location, cpuLocation)
	}
}

func (x *client) checkSyncStart(c *oracle.Call, d *clientDirectory, body []byte) {
	var m protocol.FullSyncStartMsg
	if m.Decode(body, nil) != nil {
		return
	}
	y, s := &d.sync, x.settings
	x.checkLocation(c, m.Location)
	c.CountJudged(checkSyncBegin)
	slots := uint32(s.SyncBatchSlots)
	switch overflown := x.pending(d) > x.journal; {
	case y.stage == clientSyncNone && !overflown:
		c.FailCheck(checkSyncBegin, "%s begins a full sync with %s that nothing requires: %d changes are not reported, and the journal keeps %d",
			c.NodeName(), d.host, x.pending(d), x.journal)
	case y.stage == clientSyncSent && (y.polls < s.SyncPollsMax || x.now < y.nextAt),
		y.stage == clientSyncSending || y.stage == clientSyncRequested:
		c.FailCheck(checkSyncBegin, "%s begins a full sync with %s again, after %d of %d status requests", c.NodeName(), d.host, y.polls,
			s.SyncPollsMax)
	case y.begun && x.now < y.earliest:
		c.FailCheck(checkSyncBegin, "%s begins a full sync with %s %d ns early, after %d that failed", c.NodeName(), d.host,
			y.earliest.Sub(x.now), y.failures)
	case m.BatchCount > (pageCount+slots-1)/slots || m.BatchCount < (uint32(len(x.chunks))+slots-1)/slots:
		c.FailCheck(checkSyncBegin, "%s begins a full sync of %d batches, with %d slots in a batch", c.NodeName(), m.BatchCount, slots)
	}
	y.begun, y.beganAt, y.earliest = true, x.now, x.now.Add(doubled(s.SyncEvery, y.failures, s.SyncEveryMax))
	y.failures++
	y.stage, y.id, y.covered, y.batches, y.nextBatch, y.resend, y.polls = clientSyncRequested, slices.Clone(m.SyncID), len(x.changes),
		m.BatchCount, 0, y.resend[:0], 0
}

func (x *client) checkStatusRequest(c *oracle.Call, d *clientDirectory) {
	y, s := &d.sync, x.settings
	c.CountJudged(checkSyncPoll)
	switch {
	case y.stage != clientSyncSent || y.polls >= s.SyncPollsMax:
		c.FailCheck(checkSyncPoll, "%s requests the status of a full sync with %s %d times, and the limit is %d", c.NodeName(), d.host,
			y.polls+1, s.SyncPollsMax)
	case x.now < y.nextAt:
		c.FailCheck(checkSyncPoll, "%s requests the status of a full sync with %s %d ns early", c.NodeName(), d.host, y.nextAt.Sub(x.now))
	}
	y.polls++
	y.nextAt = x.now.Add(s.SyncPoll)
}

// handlePost judges a message on the feed.
func (x *client) handlePost(c *oracle.Call, e *effects.Post) {
	d, k := x.lineOfConn(e.Conn)
	if d == nil || k != feedLine {
		return
	}
	tag, _ := protocol.PeekControllerTag(e.Body, nil)
	switch tag {
	case protocol.TagBatchedKVOperationMsg:
		x.checkOperations(c, d, e.Body)
	case protocol.TagFullSyncBatchMsg:
		x.checkBatch(c, d, e.Body)
	case protocol.TagFullSyncEndMsg:
		var m protocol.FullSyncEndMsg
		if m.Decode(e.Body, nil) == nil {
			x.checkLocation(c, m.Location)
		}
		c.CountJudged(checkSyncBatch)
		if len(d.sync.resend) > 0 || d.sync.nextBatch != d.sync.batches {
			c.FailCheck(checkSyncBatch, "%s ends a full sync with %s at batch %d of %d, with %d to be sent again", c.NodeName(), d.host,
				d.sync.nextBatch, d.sync.batches, len(d.sync.resend))
		}
		x.checkSyncMessageTime(c, d)
		d.posting = postingEnd
	case protocol.TagDeRegisterMsg:
		d.posting = postingLeave
	default:
	}
	d.lines[k].calls = append(d.lines[k].calls, clientCall{corr: e.Corr, at: x.now, tag: tag})
}

func (x *client) checkOperations(c *oracle.Call, d *clientDirectory, body []byte) {
	var m protocol.BatchedKVOperationMsg
	if m.Decode(body, nil) != nil {
		return
	}
	x.checkLocation(c, m.Location)
	s, pending := x.settings, x.pending(d)
	c.CountJudged(checkReport)
	if pending == 0 { // A reminder, which shows the directory a gap.
		if len(m.Operations) != 1 || m.Operations[0].Type != protocol.OpEvict {
			c.FailCheck(checkReport, "%s reports %d operations to %s without a change", c.NodeName(), len(m.Operations), d.host)
		}
		d.posting = postingReminder
		return
	}
	if want := min(pending, s.ReportOperations); len(m.Operations) != want {
		c.FailCheck(checkReport, "%s reports %d operations to %s: %d are pending, and a report has at most %d", c.NodeName(),
			len(m.Operations), d.host, pending, s.ReportOperations)
		return
	}
	for i := range m.Operations {
		op, change := &m.Operations[i], x.changes[d.reported+i]
		if op.Key.Bits != change.chunk || (op.Type == protocol.OpEvict) != change.removed {
			c.FailCheck(checkReport, "%s reports chunk %x to %s, and chunk %x is next", c.NodeName(), op.Key.Bits, d.host, change.chunk)
			return
		}
	}
	if len(m.Operations) < s.ReportOperations {
		from := d.postedAt
		if d.reported >= d.unmeasured {
			from = max(from, x.changes[d.reported].at)
		}
		c.CountJudged(checkReportTime)
		if waited := x.now.Sub(from); waited < s.ReportDelay {
			c.FailCheck(checkReportTime, "%s reports %d operations to %s after %d ns, and collects them for %d ns", c.NodeName(),
				len(m.Operations), d.host, waited, s.ReportDelay)
		}
	}
	d.posting, d.posted, d.postedAt = postingReport, d.reported+len(m.Operations), x.now
}

func (x *client) checkBatch(c *oracle.Call, d *clientDirectory, body []byte) {
	var m protocol.FullSyncBatchMsg
	if m.Decode(body, nil) != nil {
		return
	}
	x.checkLocation(c, m.Location)
	y := &d.sync
	want := y.nextBatch
	if len(y.resend) > 0 {
		want = y.resend[0]
	}
	c.CountJudged(checkSyncBatch)
	switch {
	case len(m.Keys) > x.settings.SyncBatchSlots:
		c.FailCheck(checkSyncBatch, "%s sends %d chunks in a batch to %s, and the limit is %d", c.NodeName(), len(m.Keys), d.host,
			x.settings.SyncBatchSlots)
	case m.BatchID != want:
		c.FailCheck(checkSyncBatch, "%s sends batch %d to %s, and batch %d is next", c.NodeName(), m.BatchID, d.host, want)
	}
	x.checkSyncMessageTime(c, d)
	d.posting = postingBatch
}

// checkSyncMessageTime checks the time of a batch or of the end of a full sync.
func (x *client) checkSyncMessageTime(c *oracle.Call, d *clientDirectory) {
	c.CountJudged(checkSyncTime)
	switch {
	case d.sync.stage != clientSyncSending:
		c.FailCheck(checkSyncBatch, "%s sends %s a message of a full sync that is not in progress", c.NodeName(), d.host)
	case x.now < d.sync.nextAt:
		c.FailCheck(checkSyncTime, "%s sends %s the next message of a full sync %d ns early", c.NodeName(), d.host,
			d.sync.nextAt.Sub(x.now))
	}
}

// handleDeliver judges the outcome of a command.
func (x *client) handleDeliver(c *oracle.Call, e *effects.Deliver) {
	if e.Ticket != x.leaveTicket {
		x.lookups.checkOutcome(x, c, e)
		return
	}
	x.leaveTicket = 0
	c.CountJudged(checkLeave)
	if waited := x.now.Sub(x.leaveAt); waited < x.settings.LeaveTimeout {
		for _, d := range x.directories {
			if d.registerSent && !d.deregistered {
				c.FailCheck(checkLeave, "%s gives up its deregistration from %s after %d ns, and the timeout is %d ns", c.NodeName(), d.host,
					waited, x.settings.LeaveTimeout)
			}
		}
	}
}
