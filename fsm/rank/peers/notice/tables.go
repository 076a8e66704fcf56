package notice

import "github.com/kvferry/kvferry/fsm/table"

// VisitTables reports the sizes of this package's tables to visit. It is for inspection only.
func (n *Notices) VisitTables(visit table.VisitFunc) {
	visit("notifications", n.rows.Len(), table.Empty)
	visit("addresses in use", n.addresses.Len()-n.idle.Len(), table.Empty)
	visit("addresses", n.idle.Len(), table.Bounded)
}

// CountConns returns the number of open connections. It is for inspection only.
func (n *Notices) CountConns() (open int) {
	for slot := range n.addresses.Slots() {
		if x := n.addresses.Get(n.addresses.At(slot)); x != nil && x.conn != 0 {
			open++
		}
	}
	return open
}
