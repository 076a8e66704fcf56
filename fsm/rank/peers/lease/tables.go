package lease

import "github.com/kvferry/kvferry/fsm/table"

// VisitTables reports the number of busy renewers to visit. It is for inspection only.
func (r *Renewers) VisitTables(visit table.VisitFunc) {
	busy := 0
	for i := range r.byClass {
		if x := &r.byClass[i]; x.outstanding || x.formerOutstanding > 0 || x.inFlight || x.timer != 0 {
			busy++
		}
	}
	visit("renewals", busy, table.Empty)
}

// CountConns returns the number of open connections. It is for inspection only.
func (r *Renewers) CountConns() (open int) {
	for i := range r.byClass {
		if r.byClass[i].conn != 0 {
			open++
		}
	}
	return open
}
