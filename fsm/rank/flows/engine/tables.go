package engine

import "github.com/kvferry/kvferry/fsm/table"

// Tables visits the sizes of this room's tables. Tables is for checks and statistics.
func (x *Engine) Tables(visit table.Visit) {
	left := x.proxy.left(&x.requests)
	visit("reservations", x.reserves.len(), table.Empty)
	visit("shared pages of the engine's", x.shares.chunks.Len(), table.Empty)
	visit("requests to tell the proxy of", left, table.Empty)
	visit("requests remembered", x.requests.len()-left, table.Timed)
}

// Conns returns the number of connections that this room has open. Conns is for checks and statistics.
func (x *Engine) Conns() int { return x.proxy.conns() }

func (x *proxy) conns() int {
	if x.conn != 0 {
		return 1
	}
	return 0
}
