package link

import "github.com/kvferry/kvferry/fsm/table"

// VisitTables reports the sizes of this package's tables to visit. It is for inspection only.
func (l *Links) VisitTables(visit table.VisitFunc) {
	inUse, outstanding, failed := 0, int(l.out.evictedCompletions), 0
	for slot := range l.out.peers.Slots() {
		p := l.out.peers.Get(l.out.peers.At(slot))
		if p == nil {
			continue
		}
		inUse, outstanding = inUse+int(p.users), outstanding+int(p.outstanding)
		if p.state == Backoff {
			failed++
		}
	}
	visit("peers that puts want", inUse, table.Empty)
	visit("completions of attempts", outstanding, table.Empty)
	visit("peers left alone", failed, table.Timed)
	visit("outbound peers", l.out.peers.Len(), table.Bounded)
	visit("inbound peers", l.CountInbound(), table.Bounded)
}

// CountLinks returns the number of links to peers' pages. It is for inspection only.
func (l *Links) CountLinks() int { return l.rows.byLink.Len() }

// Len returns the number of addresses that have a breaker.
func (b *Breakers) Len() int { return b.slab.Len() }
