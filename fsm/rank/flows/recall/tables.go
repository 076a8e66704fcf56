package recall

import "github.com/kvferry/kvferry/fsm/table"

// VisitTables visits the tables of the Source, for tests that look for rows that were left behind.
func (f *Source) VisitTables(visit table.VisitFunc) {
	visit("recalls", f.rows.Len(), table.Empty)
	visit("query connections", f.conns.Len(), table.Bounded)
	inUse := 0
	for slot := range f.conns.Slots() {
		if w := f.conns.Get(f.conns.At(slot)); w != nil && w.recallCount > 0 {
			inUse++
		}
	}
	visit("query connections in use", inUse, table.Empty)
}
