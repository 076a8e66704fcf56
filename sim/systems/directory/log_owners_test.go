package directory

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// A directory that reads a long log may drop a worker between two frames of the same step. The judge of owners knows
// that the worker was dropped in the step, and not before which frame.
func TestOwnersOfWorkersThatAStepDrops(t *testing.T) {
	const owner = workersPrincipal
	first, second := workerID{instance: "a"}, workerID{instance: "a", rank: 1}
	dropping := func(k core.NoteKind, id workerID) *effects.Effects {
		out := &effects.Effects{}
		out.Observe(effects.Observe{
			Fact: effects.FactDirectory, ID: uint64(k), Count: id.rank, Why: &effects.Why{Name: id.instance},
		})
		return out
	}
	heard := func(id workerID, p effects.Principal) *knownOwners {
		b := &knownOwners{}
		b.setOwners(id, ownersOf{principals: []effects.Principal{p}})
		return b
	}

	// The impostor has a rank of the instance. The log tells of the owner's first rank before the impostor's is displaced,
	// and the directory refuses it.
	b := heard(second, impostorPrincipal)
	b.beginStep(dropping(core.WorkerDisplaced, second))
	b.followRegistration(first, owner)
	b.followRegistration(first, impostorPrincipal)
	b.followRegistration(second, owner)
	b.endFrames()
	if !b.mayRefuse(first, owner) || !b.byID[first].mayAcceptFrom(impostorPrincipal) || !b.byID[second].unknown {
		t.Errorf("the owners are %v after a step that displaced a/1", b.byID)
	}

	// The log tells that a worker has left, and then that another process has its name.
	b = heard(first, owner)
	b.beginStep(dropping(core.WorkerLeft, first))
	b.followRegistration(first, impostorPrincipal)
	b.endFrames()
	if o := b.byID[first]; !o.mayAcceptFrom(impostorPrincipal) || !b.mayRefuse(first, owner) {
		t.Errorf("the owners are %v after a step in which a/0 left and was registered again", b.byID)
	}

	// No frame tells of a worker after it was dropped, and then the directory does not know it.
	b = heard(first, owner)
	b.beginStep(dropping(core.WorkerLeft, first))
	b.endFrames()
	if len(b.byID) > 0 {
		t.Errorf("the owners are %v after a step in which a/0 left", b.byID)
	}

	// Without frames it is the message that drops the worker, and the message is judged before that.
	b = heard(first, owner)
	b.beginStep(dropping(core.WorkerLeft, first))
	if o := b.byID[first]; o.mayAcceptFrom(impostorPrincipal) {
		t.Errorf("the owners are %v before the message that drops a/0 is judged", b.byID)
	}
	if b.endStep(); len(b.byID) > 0 {
		t.Errorf("the owners are %v after the message that drops a/0", b.byID)
	}

	// A silent worker is dropped before the frames.
	b = heard(first, impostorPrincipal)
	b.beginStep(dropping(core.WorkerSilent, first))
	b.followRegistration(first, owner)
	b.endFrames()
	if b.mayRefuse(first, owner) || b.byID[first].mayAcceptFrom(impostorPrincipal) {
		t.Errorf("the owners are %v after a/0 was silent and the log has told of its owner", b.byID)
	}
}

// A directory refuses the heartbeats of one of two identities that have the name of a worker, and the judge of silent
// workers does not know of which.
func TestSilenceOfAWorkerWithTwoOwners(t *testing.T) {
	heartbeat := (&protocol.HeartbeatMsg{Worker: workerID{instance: "a"}.wireWorker(), Incarnation: protocol.UUID{1}}).Append(nil)
	var b toldWorkers
	b.recordMessage(2, impostorPrincipal, heartbeat, 1)
	b.recordMessage(2, impostorPrincipal, heartbeat, 2)
	x := b.byID[workerID{instance: "a"}]
	if x == nil || x.mixed || x.at != 2 {
		t.Fatalf("the log has told %+v of a/0", x)
	}
	if b.recordMessage(2, workersPrincipal, heartbeat, 3); !x.mixed {
		t.Errorf("the log has told %+v of a/0", x)
	}
}
