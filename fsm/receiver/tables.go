package receiver

import "github.com/kvferry/kvferry/fsm/table"

// Tables shows what is in this room's tables, and in those of the rooms that it stands on; to look at only.
func (r *Receiver) Tables(visit table.Visit) {
	visit("gets", r.gets.Len(), table.Empty)
	visit("requests that wait", r.pending.Len(), table.Empty)
	visit("kept offers", r.deferred.Len(), table.Empty)
	visit("fetches", r.fetches.Len(), table.Empty)
	visit("staging pages", int(r.Pipe().Staged()), table.Empty)
	visit("claims", r.Store.Claims(), table.Empty)
	visit("places", r.Store.Places(), table.Empty)
	visit("chunks", r.Store.Entries(), table.Ready)
	visit("abandoned requests", r.abandons.slab.Len(), table.Bounded)
	r.pull.notices.Tables(visit)
	r.pull.renewers.Tables(visit)
}

// Conns is how many connections this room has open; to look at only.
func (r *Receiver) Conns() int { return r.pull.renewers.Conns() + r.pull.notices.Conns() }
