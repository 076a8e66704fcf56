package directory

import (
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// turns checks that lookups are spread over all instances that have equally many chunks.
var turns = oracle.Of("turns",
	"of instances that have as many chunks, the one is named first that was first longest ago",
	keeps(func(_ *book, x *volume, c *oracle.Call, _ *asked, m *protocol.BatchedP2PLookupRetMsg) {
		for i := range m.Holders {
			if i == 0 || m.Holders[i-1].HitChunks != m.Holders[i].HitChunks {
				continue
			}
			before, after := string(m.Holders[i-1].InstanceID), string(m.Holders[i].InstanceID)
			a, knows := x.first[before]
			if b, too := x.first[after]; knows && too && b < a {
				c.Fail("it names %s before %s, which was first longer ago", before, after)
			}
		}
		if len(m.Holders) == 0 {
			return
		}
		if x.first == nil {
			x.first = map[string]int{}
		}
		x.turn++
		x.first[string(m.Holders[0].InstanceID)] = x.turn
	}))
