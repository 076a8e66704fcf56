package directory

import (
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// orderOracle checks that lookups are spread over all instances that have equally many chunks.
var orderOracle = oracle.New("order",
	"of instances with equally many chunks, a reply names the instance first that was first longest ago",
	checkLookups(func(_ *ledger, x *directoryLedger, c *oracle.Call, _ *request, m *protocol.BatchedP2PLookupRetMsg) {
		for i := range m.Holders {
			if i == 0 || m.Holders[i-1].HitChunks != m.Holders[i].HitChunks {
				continue
			}
			before, after := string(m.Holders[i-1].InstanceID), string(m.Holders[i].InstanceID)
			a, knows := x.firstTurn[before]
			if b, too := x.firstTurn[after]; knows && too && b < a {
				c.Fail("the reply names %s before %s, which was first longer ago", before, after)
			}
		}
		if len(m.Holders) == 0 {
			return
		}
		if x.firstTurn == nil {
			x.firstTurn = map[string]int{}
		}
		x.turn++
		x.firstTurn[string(m.Holders[0].InstanceID)] = x.turn
	}))
