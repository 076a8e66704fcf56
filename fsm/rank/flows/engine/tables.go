package engine

import "github.com/kvferry/kvferry/fsm/table"

// Tables shows what is in this room's tables; to look at only.
func (x *Engine) Tables(visit table.Visit) {
	left := x.proxy.left(&x.requests)
	visit("reservations", x.reserves.len(), table.Empty)
	visit("shared pages of the engine's", x.shares.chunks.Len(), table.Empty)
	visit("requests to tell the proxy of", left, table.Empty)
	visit("requests remembered", x.requests.len()-left, table.Timed)
}

// Conns is how many connections this room has open; to look at only.
func (x *Engine) Conns() int { return x.proxy.conns() }

func (x *proxy) conns() int {
	if x.conn != 0 {
		return 1
	}
	return 0
}
