package directory

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
	"github.com/kvferry/kvferry/sim/oracle"
)

// A worker belongs to the identity that proved its name to one of the directories that share a log, at each directory
// that has read of it.

var checkOwners = oracle.NewCheck("S30", "owners of workers at directories that share a log")

// knownOwners are the possible owners of each worker at a directory, by what the directory has received and read. A
// worker that is not in the map is unknown to the directory.
type knownOwners struct {
	byID map[workerID]ownersOf
	// dropped are workers that the step drops while it handles frames or its message, and registered are workers that a
	// frame of the step registers. Notes do not say which frame dropped a worker. Example: the impostor has a/1, the log
	// tells of a/0, then another worker displaces a/1, and the log tells of a/0 again: the directory refuses the first
	// registration of a/0.
	dropped, registered []workerID
	unsure              bool // the step may have dropped further workers
}

// ownersOf are the possible owners of a worker. Unknown says that the directory may not know the worker.
type ownersOf struct {
	unknown    bool
	principals []effects.Principal // 0: nobody
}

func (o ownersOf) withPrincipal(p effects.Principal) ownersOf {
	for _, q := range o.principals {
		if q == p {
			return o
		}
	}
	return ownersOf{o.unknown, append(append([]effects.Principal(nil), o.principals...), p)}
}

// mayAcceptFrom reports whether a directory may accept a message about the worker from a principal.
func (o ownersOf) mayAcceptFrom(p effects.Principal) bool {
	for _, q := range o.principals {
		if q == 0 || q == p {
			return true
		}
	}
	return o.unknown || len(o.principals) == 0
}

// mayRefuse reports whether a directory may refuse a principal.
func (b *knownOwners) mayRefuse(id workerID, p effects.Principal) bool {
	o, known := b.byID[id]
	for _, q := range o.principals {
		if q != 0 && q != p {
			return true
		}
	}
	return (!known || o.unknown) && b.isOwnedByOthers(id, p)
}

// isOwnedByOthers reports whether an instance may have owners, and a directory may not let others add workers to it.
func (b *knownOwners) isOwnedByOthers(id workerID, p effects.Principal) bool {
	for other, o := range b.byID {
		if other.instance != id.instance || other == id {
			continue
		}
		for _, q := range o.principals {
			if q != 0 && q != p {
				return true
			}
		}
	}
	return false
}

func (b *knownOwners) setOwners(id workerID, o ownersOf) {
	if b.byID == nil {
		b.byID = map[workerID]ownersOf{}
	}
	b.byID[id] = o
}

// beginStep follows the notes of a step before its frames and its message. Silent workers and workers without a
// connection are dropped before the frames are handled, other workers during that or by the message.
func (b *knownOwners) beginStep(out *effects.Effects) {
	b.dropped, b.registered = b.dropped[:0], b.registered[:0]
	notes := 0
	for i := range out.Len() {
		f, ok := out.At(i).(*effects.Observe)
		if !ok || f.Fact != effects.FactDirectory {
			continue
		}
		notes++
		switch id := (workerID{instance: string(f.Why.Name), rank: f.Count}); core.NoteKind(f.ID) {
		case core.WorkerSilent, core.WorkerDisconnected:
			delete(b.byID, id)
		case core.WorkerLeft, core.WorkerDisplaced:
			b.dropped = append(b.dropped, id)
		default:
		}
	}
	b.unsure = notes >= mostNotes
}

// mostNotes is the number of notes from which on a step may have left out notes.
const mostNotes = 256

// endFrames follows which workers are gone after the frames of a step. A worker of which a later frame may have told is
// possibly known.
func (b *knownOwners) endFrames() {
	for _, id := range b.dropped {
		if slices.Contains(b.registered, id) {
			b.markPossiblyGone(id)
		} else {
			delete(b.byID, id)
		}
	}
	b.dropped = b.dropped[:0]
	for id := range b.byID {
		if b.unsure {
			b.markPossiblyGone(id)
		}
	}
}

// isDropped reports whether the step may drop a worker.
func (b *knownOwners) isDropped(id workerID) bool { return b.unsure || slices.Contains(b.dropped, id) }

// endStep follows which workers the message of a step has dropped.
func (b *knownOwners) endStep() {
	for _, id := range b.dropped {
		delete(b.byID, id)
	}
}

// follow follows a frame of another directory when it is handled.
func (b *knownOwners) follow(f *readFrame) {
	var r sharedlog.Report
	var s sharedlog.Subject
	var d protocol.DeRegisterMsg
	switch {
	case f.kind == sharedlog.FrameUnfollowed && s.Decode(f.body) == nil:
		b.markPossiblyGone(workerID{instance: string(s.Instance), rank: s.Rank})
	case f.kind != sharedlog.FrameReport || r.Decode(f.body) != nil:
	case d.Decode(r.Body, nil) == nil:
		b.markPossiblyGone(workerIDOf(d.Worker))
	default:
		if id, _, ok := decodeRegistration(r.Body); ok {
			b.followRegistration(id, f.owner)
		}
	}
}

func (b *knownOwners) markPossiblyGone(id workerID) {
	if o, known := b.byID[id]; known {
		o.unknown = true
		b.setOwners(id, o)
	}
}

// followRegistration follows a registration or a heartbeat of which the log tells. A directory that does not know the
// worker accepts it if the worker exists: it may have no room for all that an impostor makes known.
func (b *knownOwners) followRegistration(id workerID, p effects.Principal) {
	b.registered = append(b.registered, id)
	o, known := b.byID[id]
	o.unknown = o.unknown || b.isDropped(id)
	switch {
	case !known && !o.unknown && !b.isOwnedByOthers(id, p) && p != 0 && p != impostorPrincipal:
		o = ownersOf{principals: []effects.Principal{p}}
	case !known:
		o = ownersOf{unknown: true, principals: []effects.Principal{p}}
	case o.mayAcceptFrom(p):
		o = o.withPrincipal(p)
	}
	b.setOwners(id, o)
}

// judgeOwners judges what became of a message that a directory has received from a worker, or from an impostor.
func (x *logClient) judgeOwners(c *oracle.Call, e *oracle.StepEnded) {
	b := &x.owners
	m, ok := e.Event.(*effects.Received)
	if !ok {
		return
	}
	id, ok := senderOf(m.Body)
	if !ok {
		return
	}
	code := refusalIn(e.Effects)
	if lacksRole(m) {
		c.CountJudged(checkOwners)
		if code != effects.Forbidden {
			c.FailCheck(checkOwners, "%s does not forbid a message of a client without a role: %v", c.NodeName(), code)
		}
		return
	}
	o, known := b.byID[id]
	if code == effects.Forbidden {
		c.CountJudged(checkOwners)
		if !b.mayRefuse(id, m.Principal) {
			c.FailCheck(checkOwners, "%s forbids a message about %s/%d to principal %d, and nobody else has proved that name", c.NodeName(),
				id.instance, id.rank, m.Principal)
		}
		return
	}
	if known && !o.mayAcceptFrom(m.Principal) && code == effects.OK {
		c.CountJudged(checkOwners)
		c.FailCheck(checkOwners, "%s takes a message about %s/%d from principal %d, and the name belongs to %d", c.NodeName(), id.instance,
			id.rank, m.Principal, o.principals)
		return
	}
	if _, _, registers := decodeRegistration(m.Body); registers && code == effects.OK {
		c.CountJudged(checkOwners)
		b.setOwners(id, ownersOf{principals: []effects.Principal{m.Principal}})
	}
}

// senderOf returns the worker in whose name a message changes something.
func senderOf(body []byte) (id workerID, ok bool) {
	tag, err := protocol.PeekControllerTag(body, nil)
	if err != nil {
		return id, false
	}
	m := protocol.NewMessage(tag)
	if m.Decode(body, nil) != nil {
		return id, false
	}
	switch x := m.(type) {
	case *protocol.RegisterMsg:
		return workerIDOf(x.Worker), true
	case *protocol.HeartbeatMsg:
		return workerIDOf(x.Worker), true
	case *protocol.DeRegisterMsg:
		return workerIDOf(x.Worker), true
	case *protocol.BatchedKVOperationMsg:
		return workerIDOf(x.Worker), true
	case *protocol.KVAdmitMsg:
		return workerIDOf(x.Worker), true
	case *protocol.KVEvictMsg:
		return workerIDOf(x.Worker), true
	case *protocol.FullSyncStartMsg:
		return workerIDOf(x.Worker), true
	case *protocol.FullSyncBatchMsg:
		return workerIDOf(x.Worker), true
	case *protocol.FullSyncEndMsg:
		return workerIDOf(x.Worker), true
	}
	return id, false
}
