package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A machine keeps a grant until the driver confirms that the grant is revoked. Otherwise the slot of the grant would be
// used again, and a peer could keep more revocations in progress than the machine declared to its driver.

var checkRevoking = oracle.NewCheck("S17", "grants that are being revoked")

// revocationOracle judges that machines keep the grants that are being revoked.
type revocationOracle struct {
	oracleBase
	perIncarnation[revocationState]
}

// revocationState holds the grants of an incarnation of a node whose revocation is in progress.
type revocationState struct {
	revoking []effects.GrantID `snap:"skip"`
}

func (s *revocationState) clearForReuse() { s.revoking = s.revoking[:0] }

func (*revocationOracle) subscribe(l *oracle.Subscriptions[revocationOracle]) {
	oracle.On(l, func(o *revocationOracle, _ *oracle.Call, e world.SteppingMachine) {
		if x, ok := e.Event.(*effects.Revoked); ok {
			s := o.stateOf(e.Node)
			s.revoking = slices.DeleteFunc(s.revoking, func(id effects.GrantID) bool { return id == x.Grant })
		}
	})
	oracle.On(l, func(o *revocationOracle, c *oracle.Call, e *effects.Revoke) {
		s := o.stateOf(o.nodeOf(c))
		s.revoking = append(s.revoking, e.Grant)
	})
	oracle.On(l, func(o *revocationOracle, c *oracle.Call, e *effects.Grant) { o.verifySlot(o.nodeOf(c), e.ID) })
	oracle.On(l, func(o *revocationOracle, _ *oracle.Call, e stepCounted) { o.verifyKept(e.node, e.stats.Grants) })
}

// verifySlot checks that a new grant does not take the slot of a grant that is being revoked.
func (or *revocationOracle) verifySlot(n *world.Node, id effects.GrantID) {
	for _, x := range or.stateOf(n).revoking {
		if or.countJudged(checkRevoking); pd.GrantSlotOf(x) == pd.GrantSlotOf(id) {
			or.fail(checkRevoking, "node %d makes grant %d in the place of grant %d, which is still being revoked",
				n.AsSubject(), n.GrantSubject(id), n.GrantSubject(x))
			return
		}
	}
}

// verifyKept checks that the machine knows at least as many grants as are being revoked.
func (or *revocationOracle) verifyKept(n *world.Node, grants int) {
	s := or.stateOf(n)
	if len(s.revoking) == 0 {
		return
	}
	if or.countJudged(checkRevoking); len(s.revoking) > grants {
		or.fail(checkRevoking, "node %d is revoking %d grants, and knows of %d grants", n.AsSubject(), len(s.revoking), grants)
	}
}
