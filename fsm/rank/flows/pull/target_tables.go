package pull

import "github.com/kvferry/kvferry/fsm/table"

// VisitTables visits the tables in which no other flow has rows, for inspection only.
func (t *Target) VisitTables(visit table.VisitFunc) {
	t.notices.VisitTables(visit)
	t.renewers.VisitTables(visit)
}

// Conns returns the number of connections that the Target has open, for inspection only.
func (t *Target) Conns() int { return t.renewers.CountConns() + t.notices.CountConns() }

// Shares returns the numbers of waiting notices and of addresses in use, each as counted for the shares and as
// present in the tables, for inspection only.
func (t *Target) Shares() (countedNotices, tableNotices, countedAddresses, tableAddresses int) {
	return t.notices.ShareCounts()
}
