package kernel

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Tickets find what a command that is open stands for: by them one command names another, to abort or to release it.
// A ticket is found until its row ends, also when its command has its outcome: what then may be done is for the row
// to say.
type Tickets struct {
	open  table.Slab[openTicket]
	index table.Index
}

type openTicket struct {
	ticket effects.Ticket
	ref    Ref
}

// NewTickets has room for so many open commands.
func NewTickets(max uint32) Tickets { return new(Tickets).Emptied(max) }

// Emptied returns what NewTickets does, in the memory of x, which is not used any more.
func (x *Tickets) Emptied(max uint32) Tickets {
	return Tickets{open: x.open.Emptied(int(max)), index: x.index.Emptied()}
}

// Add notes whose a ticket is; no other row may have it.
func (x *Tickets) Add(t effects.Ticket, ref Ref) {
	h, o := x.open.Add()
	*o = openTicket{ticket: t, ref: ref}
	x.index.Add(ticketHash(t), h)
}

// Find says whose a ticket is.
func (x *Tickets) Find(t effects.Ticket) Ref {
	if o := x.open.Get(x.seek(t)); o != nil {
		return o.ref
	}
	return Ref{}
}

// Remove forgets a ticket: its row ends.
func (x *Tickets) Remove(t effects.Ticket) {
	h := x.seek(t)
	x.index.Remove(ticketHash(t), h)
	x.open.Remove(h)
}

func (x *Tickets) seek(t effects.Ticket) table.Handle {
	for p := x.index.Seek(ticketHash(t)); p.Found(); p = x.index.Next(p) {
		if x.open.Get(p.Handle()).ticket == t {
			return p.Handle()
		}
	}
	return 0
}

// An open-addressing table wants hashes that spread; drivers count tickets upwards.
func ticketHash(t effects.Ticket) uint64 { return uint64(t) * 0x9E3779B97F4A7C15 }
