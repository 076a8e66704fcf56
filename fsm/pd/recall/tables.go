package recall

import "github.com/kvferry/kvferry/fsm/table"

// Tables shows what is in the tables of who recalls, for those who look for what was left behind.
func (f *Source) Tables(visit table.Visit) {
	visit("recalls", f.rows.Len(), table.Empty)
	visit("query connections", f.ways.Len(), table.Bounded)
}

// Tables shows what is in those of who is recalled from.
func (f *Target) Tables(visit table.Visit) {
	visit("leased prefixes", f.loans.Len(), table.Empty)
	visit("leased prefixes of classes", f.leases.All(), table.Empty)
	visit("pinned pages of classes", f.pages.All(), table.Empty)
}
