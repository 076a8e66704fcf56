package engine

import "github.com/kvferry/kvferry/fsm/table"

// VisitTables visits the sizes of this room's tables. VisitTables is for checks and statistics.
func (x *Engine) VisitTables(visit table.VisitFunc) {
	left := x.proxy.countUnnotified(&x.requests)
	visit("reservations", x.reserves.len(), table.Empty)
	visit("shared pages of the engine's", x.shares.chunks.Len(), table.Empty)
	visit("requests to tell the proxy of", left, table.Empty)
	visit("requests remembered", x.requests.len()-left, table.Timed)
}

// CountConns returns the number of connections that this room has open. CountConns is for checks and statistics.
func (x *Engine) CountConns() int { return x.proxy.countConns() }

func (x *proxy) countConns() int {
	if x.conn != 0 {
		return 1
	}
	return 0
}
