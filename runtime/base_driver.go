package runtime

import (
	"log/slog"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/secure"
)

// baseDriver carries out the effects that any machine may emit: messages go to the control transport, outcomes to the
// tickets. Only the goroutine that steps the machine may use the object, except for tickets and facts.
type baseDriver struct {
	control control.Transport
	tickets *ticketTable
	facts   facts
	log     *slog.Logger
	guard   *secure.Guard // nil: connections are plain
	reports []ReportListener
}

// tryCarryOut carries out an effect and returns true, or returns false if the effect is for data planes.
func (h *baseDriver) tryCarryOut(e effects.Effect) bool {
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
		h.tickets.deliverOutcome(e)
	case *effects.Return:
		h.tickets.returnMemory(e.Ticket)
	case *effects.Observe:
		h.facts.recordFact(h.log, e)
		if e.Report != nil {
			for _, listen := range h.reports {
				listen(e)
			}
		}
	default:
		return false
	}
	return true
}
