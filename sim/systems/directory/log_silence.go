package directory

import (
	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
	"github.com/kvferry/kvferry/sim/oracle"
)

// A worker of another directory is silent only if the log has been read to its end, and has told nothing of the worker for
// the silence. While a directory is behind in the log, what the worker said may be in the part that was not read yet.

var checkRemoteSilent = oracle.NewCheck("S17", "workers of other directories that are dropped as silent")

// toldWorkers are the workers of which the log has told a directory. All times are of the directory's clock, which never
// runs slower than its time awake.
type toldWorkers struct {
	byID        map[workerID]*toldWorker
	caughtUpAt  effects.Time // when all of the log had been read and handled
	replyUnused bool         // no step has ended since the last reply to a read in which all frames were handled
	messages    struct {     // memory for messages that are decoded
		operations protocol.BatchedKVOperationMsg
		begin      protocol.FullSyncStartMsg
		batch      protocol.FullSyncBatchMsg
		end        protocol.FullSyncEndMsg
	}
}

// A toldWorker is a worker of which the entries of the log tell.
type toldWorker struct {
	author      uint64 // 0: the directory itself has heard the worker
	incarnation protocol.UUID
	owner       effects.Principal
	at          effects.Time // of the last registration or heartbeat
	// mixed says that more than one directory, incarnation or owner is known: which messages were accepted is not certain.
	mixed bool
}

// judgeSilent judges the workers that a step drops as silent.
func (x *logClient) judgeSilent(c *oracle.Call, out *effects.Effects) {
	for i := range out.Len() {
		f, ok := out.At(i).(*effects.Observe)
		if !ok || f.Fact != effects.FactDirectory {
			continue
		}
		id := workerID{instance: string(f.Why.Name), rank: f.Count}
		switch core.NoteKind(f.ID) {
		case core.WorkerSilent:
			if t := x.told.byID[id]; t == nil || t.mixed {
				c.CountVoid(checkRemoteSilent)
			} else if c.CountJudged(checkRemoteSilent); x.told.caughtUpAt.Sub(t.at) < x.silence {
				c.FailCheck(checkRemoteSilent, "%s drops %s as silent, and has read the whole log last %d ns after it told of the worker",
					c.NodeName(), id.instance, x.told.caughtUpAt.Sub(t.at))
			}
			delete(x.told.byID, id)
		case core.WorkerLeft, core.WorkerDisconnected, core.WorkerDisplaced:
			delete(x.told.byID, id)
		default:
		}
	}
}

// hear follows a registration or a heartbeat that a directory has received: the author of an entry, or 0 for the directory
// itself.
func (b *toldWorkers) hear(author uint64, owner effects.Principal, body []byte, now effects.Time) {
	id, incarnation, ok := decodeRegistration(body)
	if !ok {
		return
	}
	t := b.byID[id]
	if t == nil {
		t = &toldWorker{author: author, incarnation: incarnation, owner: owner, mixed: author == 0 || incarnation == protocol.UUID{}}
		if b.byID == nil {
			b.byID = map[workerID]*toldWorker{}
		}
		b.byID[id] = t
	}
	t.mixed = t.mixed || t.author != author || t.incarnation != incarnation || t.owner != owner
	t.at = now
}

// follow follows a frame of another directory when it is handled.
func (b *toldWorkers) follow(f *readFrame, now effects.Time) {
	if f.kind != sharedlog.FrameReport {
		var s sharedlog.Subject
		if s.Decode(f.body) != nil {
			return
		}
		if t := b.byID[workerID{instance: string(s.Instance), rank: s.Rank}]; t != nil && t.author != f.author {
			t.mixed = true // The worker may be taken to report to the author from now on.
		}
		return
	}
	var r sharedlog.Report
	if r.Decode(f.body) != nil {
		return
	}
	b.recordMessage(f.author, f.owner, r.Body, now)
}

// recordMessage records a message of a worker that a directory has received: the author of an entry, or 0 for the directory
// itself. Any message of the worker may make the directory take the worker to report to the author.
func (b *toldWorkers) recordMessage(author uint64, owner effects.Principal, body []byte, now effects.Time) {
	tag, err := protocol.PeekControllerTag(body, nil)
	if err != nil {
		return
	}
	var m protocol.Message
	var of *protocol.Worker
	switch x := &b.messages; tag {
	case protocol.TagRegisterMsg, protocol.TagHeartbeatMsg:
		b.hear(author, owner, body, now)
		return
	case protocol.TagBatchedKVOperationMsg:
		m, of = &x.operations, &x.operations.Worker
	case protocol.TagFullSyncStartMsg:
		m, of = &x.begin, &x.begin.Worker
	case protocol.TagFullSyncBatchMsg:
		m, of = &x.batch, &x.batch.Worker
	case protocol.TagFullSyncEndMsg:
		m, of = &x.end, &x.end.Worker
	default:
		return
	}
	if m.Decode(body, nil) != nil {
		return
	}
	if t := b.byID[workerIDOf(*of)]; t != nil && t.author != author {
		t.mixed = true
	}
}
