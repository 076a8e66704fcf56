package receiver

import "github.com/kvferry/kvferry/fsm/table"

// Tables shows what is in this room's tables, and in those of the rooms that it stands on; to look at only.
func (r *Receiver) Tables(visit table.Visit) {
	visit("gets", r.Gets.Len(), table.Empty)
	visit("requests that wait", r.Pending.Len(), table.Empty)
	visit("kept offers", r.Deferred.Len(), table.Empty)
	visit("fetches", r.Fetches.Len(), table.Empty)
	visit("staging pages", int(r.Pipe().Staged()), table.Empty)
	visit("claims", r.Store.Claims(), table.Empty)
	visit("places", r.Store.Places(), table.Empty)
	visit("chunks", r.Store.Entries(), table.Ready)
	visit("abandoned requests", r.Abandons.Len(), table.Bounded)
	r.pull.Notices.Tables(visit)
	r.pull.Renewers.Tables(visit)
}

// Conns is how many connections this room has open; to look at only.
func (r *Receiver) Conns() int { return r.pull.Renewers.Conns() + r.pull.Notices.Conns() }
