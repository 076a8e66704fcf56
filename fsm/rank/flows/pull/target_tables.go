package pull

import "github.com/kvferry/kvferry/fsm/table"

// Tables shows what is in the tables that nobody else has rows in; to look at only.
func (t *Target) Tables(visit table.Visit) {
	t.notices.Tables(visit)
	t.renewers.Tables(visit)
}

// Conns is how many connections a target has open; to look at only.
func (t *Target) Conns() int { return t.renewers.Conns() + t.notices.Conns() }

// Shares are the notices that wait and the addresses in use, as counted and as they are; to look at only.
func (t *Target) Shares() (words, there, addresses, inUse int) { return t.notices.Shares() }
