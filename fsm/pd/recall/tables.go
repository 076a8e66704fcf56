package recall

import "github.com/kvferry/kvferry/fsm/table"

// Tables shows what is in the tables of who recalls, for those who look for what was left behind.
func (f *Source) Tables(visit table.Visit) {
	visit("recalls", f.rows.Len(), table.Empty)
	visit("query connections", f.ways.Len(), table.Bounded)
}
