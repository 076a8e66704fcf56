package link

import "github.com/kvferry/kvferry/fsm/table"

// Tables reports the sizes of this package's tables to visit. It is for inspection only.
func (l *Links) Tables(visit table.Visit) {
	wanted, owed, failed := 0, int(l.out.orphans), 0
	for slot := range l.out.peers.Slots() {
		p := l.out.peers.Get(l.out.peers.At(slot))
		if p == nil {
			continue
		}
		wanted, owed = wanted+int(p.wanted), owed+int(p.owed)
		if p.state == Backoff {
			failed++
		}
	}
	visit("peers that puts want", wanted, table.Empty)
	visit("completions of attempts", owed, table.Empty)
	visit("peers left alone", failed, table.Timed)
	visit("outbound peers", l.out.peers.Len(), table.Bounded)
	visit("inbound peers", l.InboundLen(), table.Bounded)
}

// Linked returns the number of links to peers' pages. It is for inspection only.
func (l *Links) Linked() int { return l.rows.byLink.Len() }

// Len returns the number of addresses that have a breaker.
func (b *Breakers) Len() int { return b.slab.Len() }
