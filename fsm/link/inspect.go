package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Knows says whether a peer is still in the table; to look at only, as are all here.
func (l *Links) Knows(h table.Handle) bool { return l.peers.Get(h) != nil }

// ByLink is the peer that a link leads to, or zero.
func (l *Links) ByLink(link effects.Link) table.Handle {
	if x := l.rows.Get(l.behind(link)); x != nil {
		return x.peer
	}
	return 0
}
