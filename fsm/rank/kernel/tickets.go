package kernel

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Tickets maps the tickets of open commands to their rows. With a ticket a command names another command, for example
// to abort or release it. A ticket is found until its row ends, even after the command has its outcome; the row decides
// what may be done then.
type Tickets struct {
	open  table.Slab[openTicket]
	index table.Index
}

// openTicket is the ticket of an open command and its row.
type openTicket struct {
	ticket effects.Ticket
	ref    Ref
}

// NewTickets returns a table for at most max open commands.
func NewTickets(max uint32) Tickets { return new(Tickets).Recycle(max) }

// Recycle is NewTickets in the memory of x. The caller must not use x afterwards.
func (x *Tickets) Recycle(max uint32) Tickets {
	return Tickets{open: x.open.Recycle(int(max)), index: x.index.Recycle()}
}

// Add records the row of a ticket. The ticket must not be in the table yet.
func (x *Tickets) Add(t effects.Ticket, ref Ref) {
	h, o := x.open.Add()
	*o = openTicket{ticket: t, ref: ref}
	x.index.Add(ticketHash(t), h)
}

// Find returns the row of a ticket, or the zero Ref if no open command has the ticket.
func (x *Tickets) Find(t effects.Ticket) Ref {
	if o := x.open.Get(x.findHandle(t)); o != nil {
		return o.ref
	}
	return Ref{}
}

// Remove removes a ticket, because its row ends.
func (x *Tickets) Remove(t effects.Ticket) {
	h := x.findHandle(t)
	x.index.Remove(ticketHash(t), h)
	x.open.Remove(h)
}

func (x *Tickets) findHandle(t effects.Ticket) table.Handle {
	for p := x.index.Find(ticketHash(t)); p.Found(); p = x.index.Next(p) {
		if x.open.Get(p.Handle()).ticket == t {
			return p.Handle()
		}
	}
	return 0
}

// ticketHash spreads tickets over the hash range, as an open-addressing table requires: drivers number tickets upwards.
func ticketHash(t effects.Ticket) uint64 { return uint64(t) * 0x9E3779B97F4A7C15 }
