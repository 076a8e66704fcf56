package notice

import "github.com/kvferry/kvferry/fsm/table"

// Tables shows what is in this room's tables; to look at only.
func (n *Notices) Tables(visit table.Visit) {
	visit("notifications", n.rows.Len(), table.Empty)
	visit("addresses in use", n.addresses.Len()-n.idle.Len(), table.Empty)
	visit("addresses", n.idle.Len(), table.Bounded)
}

// Conns is how many connections it has open; to look at only.
func (n *Notices) Conns() (open int) {
	for slot := range n.addresses.Slots() {
		if x := n.addresses.Get(n.addresses.At(slot)); x != nil && x.conn != 0 {
			open++
		}
	}
	return open
}
