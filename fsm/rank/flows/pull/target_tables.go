package pull

import "github.com/kvferry/kvferry/fsm/table"

// VisitTables visits the tables in which no other flow has rows, for inspection only.
func (t *Target) VisitTables(visit table.VisitFunc) {
	t.notices.VisitTables(visit)
	t.renewers.VisitTables(visit)
}

// Conns returns the number of connections that the Target has open, for inspection only.
func (t *Target) Conns() int { return t.renewers.CountConns() + t.notices.CountConns() }

// RecountShares counts the notices, the addresses in use and the replay records of each class again.
func (t *Target) RecountShares(r *table.Recount) {
	t.notices.RecountShares(r)
	t.tombstones.RecountShares(r, "replies to offers")
}
