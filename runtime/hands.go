package runtime

import (
	"log/slog"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
)

// hands carries out the effects that any machine may emit: messages go to the control transport, outcomes to the
// tickets. Only the goroutine that steps the machine may use the object, except for tickets and facts.
type hands struct {
	control control.Transport
	tickets *ticketTable
	facts   facts
	log     *slog.Logger
}

// carryOut carries out an effect and returns true, or returns false if the effect is for data planes.
func (h *hands) carryOut(e effects.Effect) bool {
	switch e := e.(type) {
	case *effects.Open:
		h.control.Open(e)
	case *effects.Close:
		h.control.Close(e.Conn)
	case *effects.Send:
		h.control.Send(e)
	case *effects.Post:
		h.control.Post(e)
	case *effects.Reply:
		h.control.Reply(e)
	case *effects.Deliver:
		h.tickets.deliver(e)
	case *effects.Return:
		h.tickets.giveBack(e.Ticket)
	case *effects.Observe:
		h.facts.observe(h.log, e)
	default:
		return false
	}
	return true
}
