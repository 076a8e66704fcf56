package pull

import "github.com/kvferry/kvferry/fsm/table"

// Tables visits the tables in which no other flow has rows, for inspection only.
func (t *Target) Tables(visit table.Visit) {
	t.notices.Tables(visit)
	t.renewers.Tables(visit)
}

// Conns returns the number of connections that the Target has open, for inspection only.
func (t *Target) Conns() int { return t.renewers.Conns() + t.notices.Conns() }

// Shares returns the numbers of waiting notices and of addresses in use, each as counted for the shares and as
// present in the tables, for inspection only.
func (t *Target) Shares() (words, there, addresses, inUse int) { return t.notices.Shares() }
