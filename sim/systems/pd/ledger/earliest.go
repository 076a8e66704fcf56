package ledger

import (
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

var checkEarliest = oracle.NewCheck("L1", "deadlines that machines declare")

// earliestOracle judges the deadlines that machines declare to their drivers. A deadline that a machine has, and that is
// earlier than the declared one, would be handled late: often by less than what other oracles allow for clocks and busy
// drivers.
type earliestOracle struct{ oracleBase }

func (*earliestOracle) subscribe(l *oracle.Subscriptions[earliestOracle]) {
	oracle.On(l, func(o *earliestOracle, _ *oracle.Call, e stepCounted) {
		if e.node.StepCount%earliestInterval == 1 || o.isRecountStep(e.node) {
			o.verifyDeclared(e.node)
		}
	})
}

// earliestInterval is the number of steps between two looks at all deadlines of a machine.
const earliestInterval = 4

// verifyDeclared checks that the deadline which n's machine declares is not later than any deadline that the machine
// has.
func (or *earliestOracle) verifyDeclared(n *world.Node) {
	earliest, found := pd.EarliestDeadlineOf(n)
	if !found {
		return
	}
	declared, any := n.Machine.Deadline()
	earliest = max(earliest, or.w.ReadClock(n)) // A machine with work left declares the present time.
	if or.countJudged(checkEarliest); !any || declared > earliest {
		or.fail(checkEarliest, "node %d declares its next deadline for %d, and has a deadline at %d", n.AsSubject(), declared, earliest)
	}
}
