package sender

import "github.com/kvferry/kvferry/fsm/table"

// Tables shows what is in this room's tables; to look at only.
func (s *Sender) Tables(visit table.Visit) {
	visit("puts", s.Puts(), table.Empty)
	visit("reservations", s.reserves.Len(), table.Empty)
	visit("requests to tell the proxy of", s.proxy.left(&s.requests), table.Empty)
	visit("requests remembered", s.requests.Len()-s.proxy.left(&s.requests), table.Timed)
	visit("breakers", s.breakers.Len(), table.Bounded)
}

// Conns is how many connections this room has open; to look at only.
func (s *Sender) Conns() int { return s.proxy.conns() }

func (x *proxy) conns() int {
	if x.conn != 0 {
		return 1
	}
	return 0
}
