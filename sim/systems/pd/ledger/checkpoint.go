package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The flight recorder of a node writes the state of its machine (a checkpoint), so that a replay need not begin with the
// first event. In some incarnations, the state is written at a drawn step, and a second machine is made of the bytes.
// From then on, both machines receive the same events, and must emit the same effects.

var checkCheckpoint = oracle.NewCheck("S16", "machines restored from a checkpoint")

// checkpointOracle judges that machines go on alike from a checkpoint (S16).
type checkpointOracle struct {
	oracleBase
	perIncarnation[checkpointState]
	checkpoints *pd.MachineCheckpoints `snap:"share"`
	forbidden   effects.Event          `snap:"scratch"` // the message that the next step receives, although it is forbidden
}

func (*checkpointOracle) subscribe(l *oracle.Subscriptions[checkpointOracle]) {
	oracle.On(l, func(o *checkpointOracle, _ *oracle.Call, e world.ForbiddenMessage) { o.forbidden = e.Event })
	oracle.On(l, func(o *checkpointOracle, _ *oracle.Call, e world.SteppingMachine) { o.beforeStep(e.Node, e.Event) })
	oracle.On(l, func(o *checkpointOracle, c *oracle.Call, e oracle.StepEnded) { o.afterStep(o.nodeOf(c), e.Effects) })
}

// checkpointState is the restored machine of an incarnation.
type checkpointState struct {
	restored *rank.Rank      `snap:"scratch"` // nil: there is none
	out      effects.Effects `snap:"scratch"` // of the restored machine's last step
	stepped  bool            `snap:"scratch"` // the restored machine has made the present step
	steps    uint64          `snap:"scratch"` // of the incarnation
	due      uint64          `snap:"scratch"` // the step before which the checkpoint is taken; 0: none
}

func (s *checkpointState) clearForReuse() { *s = checkpointState{out: s.out} }

// checkpointPermille is the number of incarnations per thousand in which a checkpoint is taken: each such incarnation
// steps two machines. checkpointStepBits bounds the step at which it is taken to 2^checkpointStepBits.
const checkpointPermille, checkpointStepBits = 60, 9

// beforeStep steps the restored machine with the event that n's machine is about to receive.
func (or *checkpointOracle) beforeStep(n *world.Node, ev effects.Event) {
	if or.forbidden != nil {
		ev, or.forbidden = or.forbidden, nil
	}
	state := or.stateOf(n)
	if draw.IsFixed(or.w.Seed) || or.w.Script != nil {
		return
	}
	if state.steps++; state.steps == 1 {
		drawn := draw.Hash(or.w.Seed, draw.Engine, uint64(n.ID), 1<<33|uint64(n.Incarnation))
		if drawn.ChancePermille(checkpointPermille) {
			drawn = drawn.Rehash()
			within := uint64(1) << drawn.Below(checkpointStepBits+1) // Small numbers are as frequent as large ones.
			state.due = 1 + drawn.Rehash().Below(within)
		}
	}
	now := or.w.ReadClock(n)
	if state.steps == state.due {
		if or.checkpoints == nil {
			or.checkpoints = &pd.MachineCheckpoints{}
		}
		restored, err := or.checkpoints.Restore(n, now)
		if err != nil {
			or.fail(checkCheckpoint, "node %d: the machine that is restored from the state before step %d of its incarnation is not "+
				"the same: %v", n.AsSubject(), state.steps, err)
			return
		}
		state.restored = restored
	}
	if state.restored != nil {
		state.out.Reset()
		state.restored.Step(now, ev, &state.out)
		state.stepped = true
	}
}

// afterStep compares the effects of n's machine with those of the restored one.
func (or *checkpointOracle) afterStep(n *world.Node, out *effects.Effects) {
	state := or.stateOf(n)
	if !state.stepped {
		return
	}
	state.stepped = false
	or.countJudged(checkCheckpoint)
	if i, differ := pd.DifferingEffect(out, &state.out); differ {
		or.fail(checkCheckpoint, "node %d: step %d has %d effects, and %d if the machine is restored from its state before step %d; the "+
			"first that differs is number %d", n.AsSubject(), state.steps, out.Len(), state.out.Len(), state.due, i+1)
	}
}
