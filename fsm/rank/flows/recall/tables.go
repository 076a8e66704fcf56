package recall

import "github.com/kvferry/kvferry/fsm/table"

// Tables shows what is in the tables of who recalls, for those who look for what was left behind.
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
