package directory

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

var (
	checkSilent       = oracle.NewCheck("S17", "workers that a directory drops as silent")
	checkDisconnected = oracle.NewCheck("S17", "workers that a directory drops without a connection")
	checkDisplaced    = oracle.NewCheck("S18", "workers that make room at a directory")
	checkGivenUp      = oracle.NewCheck("S17", "full syncs that a directory gives up")
	checkFaded        = oracle.NewCheck("S17", "records that fade at a directory")
	checkNotes        = oracle.NewCheck("L9", "notes of a directory")
	checkAdmitted     = oracle.NewCheck("S18", "workers that a directory has room for")
	checkSlots        = oracle.NewCheck("S18", "full syncs that a directory has a slot for")
	checkSizes        = oracle.NewCheck("S17", "sizes of messages to a directory")
	checkLocations    = oracle.NewCheck("S17", "locations of workers at a directory")
	checkChunks       = oracle.NewCheck("S18", "chunks that a directory has room for")
	checkRefusals     = oracle.NewCheck("L8", "messages that a directory refuses")
	checkSwept        = oracle.NewCheck("S17", "chunks that a directory sweeps away in a step")
	checkSyncRequests = oracle.NewCheck("L7", "full syncs that a directory requests")
	checkSyncStatus   = oracle.NewCheck("L8", "status of full syncs")
	checkForbidden    = oracle.NewCheck("S30", "messages that a directory refuses because of who sent them")
	checkSilenceTold  = oracle.NewCheck("L8", "silence that a directory states to workers")
)

// modelOracle compares each step of a directory of System with a model of the directory.
var modelOracle = oracle.New("model",
	"a directory ends, refuses, requests and reports what its limits and times demand, no more and no less",
	func(l *oracle.Subscriptions[models]) {
		oracle.On(l, func(b *models, c *oracle.Call, e oracle.StepEnded) {
			if slices.Contains(replicaNames, c.NodeName()) {
				b.modelOf(c).judgeStep(c, &e)
			}
		})
		oracle.On(l, func(b *models, c *oracle.Call, _ oracle.IncarnationEnded) { delete(b.byNode, c.NodeName()) })
	})

// models holds the model of each directory.
type models struct{ byNode map[string]*judgedDirectory }

// A judgedDirectory is a directory with its model.
type judgedDirectory struct {
	clock awakeClock
	model directoryModel
	// Chunks that the directory had after its previous step, and those among them that were to be swept away.
	usedChunks, retiredChunks int
	seen                      stepResults
}

// stepResults is what a step of a directory did.
type stepResults struct {
	notes     []modelNote
	code      effects.Code // with which the message was refused
	leavesOut bool         // a note says that chunks were left out
	reply     []byte
}

func (b *models) modelOf(c *oracle.Call) *judgedDirectory {
	if b.byNode == nil {
		b.byNode = map[string]*judgedDirectory{}
	}
	x := b.byNode[c.NodeName()]
	if x == nil {
		x = &judgedDirectory{model: directoryModel{limits: limitsOf(planOf(c))}}
		x.clock.setPulse(&x.model.limits)
		b.byNode[c.NodeName()] = x
	}
	return x
}

// read reads what a step did.
func (r *stepResults) read(out *effects.Effects) {
	*r = stepResults{notes: r.notes[:0]}
	for i := range out.Len() {
		switch e := out.At(i).(type) {
		case *effects.Reply:
			r.reply = e.Body
		case *effects.Observe:
			switch k := core.NoteKind(e.ID); {
			case e.Fact == effects.FactMalformed:
				r.code = e.Code
			case e.Fact == effects.FactDirectory && k == core.ChunksLeftOut:
				r.leavesOut = true
			case e.Fact == effects.FactDirectory:
				r.notes = append(r.notes, modelNote{k, workerID{instance: string(e.Why.Name), rank: e.Count}})
			}
		default: // Effects of the log's connections.
		}
	}
}

// judgeStep judges a step of the directory.
func (x *judgedDirectory) judgeStep(c *oracle.Call, e *oracle.StepEnded) {
	x.clock.advance(c.LocalTime(), c.FrozenTime())
	m := &x.model
	m.now, m.notes = x.clock.awakeNow(), m.notes[:0]
	x.seen.read(e.Effects)
	m.endOverdue()
	switch ev := e.Event.(type) {
	case *effects.ConnLost:
		m.loseConn(ev.Conn)
	case *effects.Received:
		x.judgeMessage(c, ev)
	default: // A tick.
	}
	if !m.unsure {
		x.judgeNotes(c)
	}
	x.judgeTables(c)
}

// judgeTables reads how many holders and chunks the directory has, and judges the chunks.
func (x *judgedDirectory) judgeTables(c *oracle.Call) {
	m, retired := &x.model, 0
	t := tablesOf(c)
	visit := func(name string, n, _ int) {
		switch name {
		case "holders":
			m.usedHolders = n
		case "chunks":
			x.usedChunks = n
		case "chunks to sweep away":
			retired = n
		}
	}
	t.VisitTables(visit)
	t.VisitKeptTables(visit)
	if swept := x.retiredChunks - retired; swept > 0 {
		c.CountJudged(checkSwept)
		if most := (m.limits.SweepRows + 2) * chunksPerRow; swept > most {
			c.FailCheck(checkSwept, "%s sweeps %d chunks away in a step, and examines %d rows", c.NodeName(), swept, m.limits.SweepRows)
		}
	}
	x.retiredChunks = retired
	if m.limits.Chunks != floodedChunks || m.unsure {
		return
	}
	// The crowd has a single address, which must leave as many chunks free as it takes.
	others := 0
	for _, w := range m.workers {
		if !isFromCrowd(c, w.origin) {
			others += len(w.feeds) * chunksOfWorker * holdersPerFeed
		}
	}
	c.CountJudged(checkChunks)
	if crowd := x.usedChunks - retired - others; crowd > m.limits.Chunks/2 {
		c.FailCheck(checkChunks, "%s keeps %d chunks of one address, and the limit of all is %d", c.NodeName(), crowd, m.limits.Chunks)
	}
}

// chunksPerRow is the most chunks that a directory sweeps away for each row that it examines: a row of a few holders
// counts as one row, and a row of many holders as some more.
const chunksPerRow = 8

// noteCheck returns the check about a note.
func noteCheck(k core.NoteKind) oracle.Check {
	switch k {
	case core.WorkerSilent:
		return checkSilent
	case core.WorkerDisconnected:
		return checkDisconnected
	case core.WorkerDisplaced:
		return checkDisplaced
	case core.SyncGivenUp:
		return checkGivenUp
	case core.RecordsFaded:
		return checkFaded
	default:
		return checkNotes
	}
}

// judgeNotes compares the notes of a step with the notes of the model.
func (x *judgedDirectory) judgeNotes(c *oracle.Call) {
	want, seen := x.model.notes, x.seen.notes
	for i := range want {
		c.CountJudged(noteCheck(want[i].kind))
	}
	for i := range max(len(want), len(seen)) {
		switch {
		case i < len(want) && i < len(seen) && want[i] == seen[i]:
		case i < len(seen) && !slices.Contains(want[min(i, len(want)):], seen[i]):
			c.FailCheck(noteCheck(seen[i].kind), "%s reports note %d about %s/%d, for which there is no reason", c.NodeName(), seen[i].kind,
				seen[i].id.instance, seen[i].id.rank)
			return
		default:
			c.FailCheck(noteCheck(want[i].kind), "%s does not report note %d about %s/%d", c.NodeName(), want[i].kind, want[i].id.instance,
				want[i].id.rank)
			return
		}
	}
}

// judgeMessage compares what became of a message with the model.
func (x *judgedDirectory) judgeMessage(c *oracle.Call, e *effects.Received) {
	m, seen := &x.model, x.seen.code
	if lacksRole(e) {
		x.judgeForbidden(c, effects.Forbidden)
		return
	}
	tag, err := protocol.PeekControllerTag(e.Body, nil)
	if err != nil {
		return
	}
	msg := protocol.NewMessage(tag)
	if msg.Decode(e.Body, nil) != nil {
		return
	}
	isRequest, isFeed := e.Channel == effects.ChannelDirectory, e.Channel == effects.ChannelFeed
	var want effects.Code
	switch r := msg.(type) {
	case *protocol.RegisterMsg:
		if !isRequest {
			return
		}
		want = m.register(r, e)
		x.judgeRegistered(c, r.Incarnation)
	case *protocol.HeartbeatMsg:
		if isFeed {
			return
		}
		var sync bool
		sync, want = m.heartbeat((*protocol.RegisterMsg)(r), e)
		x.judgeHeartbeat(c, (*protocol.RegisterMsg)(r), sync)
	case *protocol.DeRegisterMsg:
		if !isFeed {
			return
		}
		want = m.deregister(r, e)
	case *protocol.BatchedKVOperationMsg:
		if !isFeed {
			return
		}
		want = m.report(&r.Worker, r.Incarnation, r.Location, r.Operations, true, e, x.codeOfRoom())
	case *protocol.KVAdmitMsg:
		if !isFeed {
			return
		}
		want = x.judgedOperation(r, e)
	case *protocol.KVEvictMsg:
		if !isFeed {
			return
		}
		want = x.judgedOperation((*protocol.KVAdmitMsg)(r), e)
	case *protocol.FullSyncStartMsg:
		if !isRequest {
			return
		}
		want = m.beginSync(r, e, seen)
	case *protocol.FullSyncBatchMsg:
		if !isFeed {
			return
		}
		want = m.batch(r, e)
	case *protocol.FullSyncEndMsg:
		if !isFeed {
			return
		}
		want = m.end(r, e)
	case *protocol.FullSyncStatusMsg:
		if !isRequest {
			return
		}
		var complete, resume bool
		complete, resume, want = m.statusOf(r, e)
		x.judgeStatus(c, r, complete, resume)
	case *protocol.BatchedP2PLookupMsg:
		if !isRequest {
			return
		}
		_, _ = m.requester(&r.Worker, e)
		want = m.checkWorker(&r.Worker)
	default:
		return
	}
	if m.unsure {
		c.CountVoid(roomCheck(tag))
		return
	}
	x.judgeCode(c, e, tag, want)
}

// roomCheck returns the check about the room that a message of a kind needs.
func roomCheck(tag protocol.Tag) oracle.Check {
	switch tag {
	case protocol.TagRegisterMsg, protocol.TagHeartbeatMsg:
		return checkAdmitted
	case protocol.TagFullSyncStartMsg:
		return checkSlots
	default:
		return checkLocations
	}
}

// judgedOperation passes an operation without an incarnation to the model.
func (x *judgedDirectory) judgedOperation(r *protocol.KVAdmitMsg, e *effects.Received) effects.Code {
	ops := []protocol.KVOperation{{Seq: r.Seq}}
	return x.model.report(&r.Worker, protocol.UUID{}, r.Location, ops, r.Seq != 0, e, x.codeOfRoom())
}

// codeOfRoom returns the code with which a report was refused, unless the refusal is about the room for chunks.
func (x *judgedDirectory) codeOfRoom() effects.Code {
	if x.seen.leavesOut {
		return effects.OK
	}
	return x.seen.code
}

// judgeCode compares the code with which a message was refused with the code of the model.
func (x *judgedDirectory) judgeCode(c *oracle.Call, e *effects.Received, tag protocol.Tag, want effects.Code) {
	seen := x.seen.code
	if want == effects.Mismatch { // Not a refusal.
		want = effects.OK
	}
	if seen == effects.Mismatch {
		seen = effects.OK
	}
	if x.seen.leavesOut && seen == effects.TooMany {
		x.judgeLeftOut(c, e)
		if want == effects.OK {
			return
		}
	}
	c.CountJudged(checkRefusals, checkSizes)
	c.CountJudged(roomCheck(tag))
	switch {
	case want == effects.Forbidden || seen == effects.Forbidden:
		x.judgeForbidden(c, want)
	case want == seen:
	case want == effects.TooLarge || seen == effects.TooLarge:
		c.FailCheck(checkSizes, "%s refuses a message as %v, and the limits say %v", c.NodeName(), seen, want)
	case want == effects.TooMany || seen == effects.TooMany:
		c.FailCheck(roomCheck(tag), "%s refuses a message as %v, and the limits say %v", c.NodeName(), seen, want)
	default:
		c.FailCheck(checkRefusals, "%s refuses a message as %v instead of %v", c.NodeName(), seen, want)
	}
}

// judgeForbidden judges a message that a directory refuses, or must refuse, because of who sent it.
func (x *judgedDirectory) judgeForbidden(c *oracle.Call, want effects.Code) {
	c.CountJudged(checkForbidden)
	if seen := x.seen.code; seen != want {
		c.FailCheck(checkForbidden, "%s refuses a message as %v, and the identities that were proved say %v", c.NodeName(), seen, want)
	}
}

// judgeLeftOut judges that chunks were left out. A worker of an address that reports nothing but the chunks of the plan
// has few chunks, in the records and in the holders that may replace them: there is room for them, as long as the
// directory has as many places left. The crowd's chunks may be left out.
func (x *judgedDirectory) judgeLeftOut(c *oracle.Call, e *effects.Received) {
	if isFromCrowd(c, e.Origin) || x.model.limits.HoldersPerChunk < manyHolders {
		c.CountVoid(checkChunks)
		return
	}
	taken := 0
	for _, w := range x.model.workers {
		if w.origin == e.Origin {
			taken += len(w.feeds) * chunksOfWorker * holdersPerFeed
		}
	}
	if !mayTake(taken, x.usedChunks, x.model.limits.Chunks) {
		c.CountVoid(checkChunks)
		return
	}
	c.CountJudged(checkChunks)
	node := (e.Origin - 1) % (1 << 16) // A process that has moved to its other host has a larger origin.
	c.FailCheck(checkChunks, "%s leaves out chunks of n%d although it has only %d of %d", c.NodeName(),
		node, x.usedChunks, x.model.limits.Chunks)
}

// A worker has the chunks of all prompts at most; a feed has records, and perhaps a sync and the records since a gap.
const (
	chunksOfWorker = promptCount * chunksPerPrompt
	holdersPerFeed = 3
)

// isFromCrowd reports whether an origin is the node of the crowd, which is the last node.
func isFromCrowd(c *oracle.Call, o effects.Origin) bool {
	return int(o)-1 == len(directoryNames(planOf(c)))+len(workers)
}

// judgeRegistered judges the reply to a registration.
func (x *judgedDirectory) judgeRegistered(c *oracle.Call, incarnation protocol.UUID) {
	var a protocol.RegisterRetMsg
	if a.Decode(x.seen.reply, nil) == nil {
		x.judgeSilence(c, incarnation, a.SilenceNS)
	}
}

// judgeSilence judges the time that a reply states: workers that know the field must send heartbeats in time.
func (x *judgedDirectory) judgeSilence(c *oracle.Call, incarnation protocol.UUID, stated uint64) {
	c.CountJudged(checkSilenceTold)
	want := uint64(x.model.limits.Silence)
	if incarnation == (protocol.UUID{}) {
		want = 0
	}
	if stated != want {
		c.FailCheck(checkSilenceTold, "%s states a silence of %d ns, and drops workers after %d ns", c.NodeName(), stated, want)
	}
}

// judgeHeartbeat judges the reply to a heartbeat.
func (x *judgedDirectory) judgeHeartbeat(c *oracle.Call, r *protocol.RegisterMsg, want bool) {
	var a protocol.HeartbeatRetMsg
	if a.Decode(x.seen.reply, nil) != nil {
		return
	}
	x.judgeSilence(c, r.Incarnation, a.SilenceNS)
	if x.model.unsure {
		c.CountVoid(checkSyncRequests)
		return
	}
	c.CountJudged(checkSyncRequests)
	if seen := len(a.Commands) > 0; seen != want {
		c.FailCheck(checkSyncRequests, "%s requests a full sync of %s/%d: %v; its records and its slots say %v", c.NodeName(),
			r.InstanceID, r.WorkerID, seen, want)
	}
}

// judgeStatus judges the reply to a request about the status of a full sync.
func (x *judgedDirectory) judgeStatus(c *oracle.Call, r *protocol.FullSyncStatusMsg, complete, resume bool) {
	var a protocol.FullSyncStatusRetMsg
	if a.Decode(x.seen.reply, nil) != nil {
		return
	}
	if x.model.unsure {
		c.CountVoid(checkSyncStatus)
		return
	}
	c.CountJudged(checkSyncStatus)
	if a.IsComplete != complete || a.CanExitFreeze != resume {
		c.FailCheck(checkSyncStatus, "%s says of sync %q of %s: complete %v, resume %v; it is complete %v, resume %v", c.NodeName(),
			r.SyncID, r.InstanceID, a.IsComplete, a.CanExitFreeze, complete, resume)
	}
}
