package recall

import "github.com/kvferry/kvferry/fsm/table"

// Tables visits the tables of the Source, for tests that look for rows that were left behind.
func (f *Source) Tables(visit table.Visit) {
	visit("recalls", f.rows.Len(), table.Empty)
	visit("query connections", f.ways.Len(), table.Bounded)
	inUse := 0
	for slot := range f.ways.Slots() {
		if w := f.ways.Get(f.ways.At(slot)); w != nil && w.users > 0 {
			inUse++
		}
	}
	visit("query connections in use", inUse, table.Empty)
}
