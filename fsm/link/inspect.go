package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Knows says whether a peer is still in the table; to look at only, as are all here.
func (l *Links) Knows(h table.Handle) bool { return l.peers.Get(h) != nil }

// ByConn is the peer that has a connection of ours, or zero.
func (l *Links) ByConn(conn effects.Conn) table.Handle {
	return l.find(func(p *Outbound) bool {
		return p.conn.Is(conn) || p.lanes[LaneAlloc].Is(conn) || p.lanes[LaneCommit].Is(conn)
	})
}

// ByLink is the peer that a link leads to, or zero.
func (l *Links) ByLink(link effects.Link) table.Handle {
	if x := l.rows.Get(l.behind(link)); x != nil {
		return x.peer
	}
	return 0
}

func (l *Links) find(is func(p *Outbound) bool) table.Handle {
	for slot := range l.peers.Slots() {
		if h := l.peers.At(slot); h != 0 && is(l.peers.Get(h)) {
			return h
		}
	}
	return 0
}
