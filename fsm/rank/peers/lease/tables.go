package lease

import "github.com/kvferry/kvferry/fsm/table"

// Tables reports the number of busy renewers to visit. It is for inspection only.
func (r *Renewers) Tables(visit table.Visit) {
	busy := 0
	for i := range r.of {
		if x := &r.of[i]; x.owed || x.left > 0 || x.asking || x.timer != 0 {
			busy++
		}
	}
	visit("renewals", busy, table.Empty)
}

// Conns returns the number of open connections. It is for inspection only.
func (r *Renewers) Conns() (open int) {
	for i := range r.of {
		if r.of[i].conn != 0 {
			open++
		}
	}
	return open
}
