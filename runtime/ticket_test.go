package runtime

import (
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
)

func wantCode(t *testing.T, err error, want effects.Code) {
	t.Helper()
	if got := CodeOf(err); got != want {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
}

func mustBegin(t *testing.T, r *ticketTable, c commandClass) *Ticket {
	t.Helper()
	ticket, err := r.beginTicket("test", c)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// "A full table could not be emptied": work leaves a reserve to what ends it.
func TestRegisterKeepsAReserveForEndings(t *testing.T) {
	r := newTicketTable(8)
	for range 6 {
		mustBegin(t, r, classWork)
	}
	_, err := r.beginTicket("test", classWork)
	wantCode(t, err, effects.TooMany)
	last := mustBegin(t, r, classEnding)
	mustBegin(t, r, classEnding)
	_, err = r.beginTicket("test", classEnding)
	wantCode(t, err, effects.TooMany)
	r.deliverOutcome(&effects.Deliver{Ticket: last.id})
	mustBegin(t, r, classEnding)
	r.endAll(true)
}

func TestRegisterHeldMemoryComesBackLater(t *testing.T) {
	r := newTicketTable(4)
	ticket := mustBegin(t, r, classWork)
	r.deliverOutcome(&effects.Deliver{Ticket: ticket.id, Code: effects.Expired, Held: true})
	if out := <-ticket.Done(); out.Code != effects.Expired || !out.InUse {
		t.Errorf("got %+v", out)
	}
	if ticket.isReturned() {
		t.Error("held memory was returned with the outcome")
	}
	r.returnMemory(ticket.id)
	<-ticket.Returned()
}

// Whoever has the outcome may look at once whether the memory is back: a put that is done lets its pages go.
func TestRegisterMemoryIsBackBeforeItsOutcome(t *testing.T) {
	r := newTicketTable(4)
	ticket := mustBegin(t, r, classWork)
	ticket.done = make(chan Outcome) // Who delivers goes no further before it is read.
	go r.deliverOutcome(&effects.Deliver{Ticket: ticket.id})
	defer func() { <-ticket.Done() }()
	select {
	case <-ticket.Returned():
	case <-time.After(10 * time.Second):
		t.Error("the outcome comes before the memory")
	}
}

func TestRegisterCopiesWhatIsBorrowed(t *testing.T) {
	r := newTicketTable(4)
	ticket := mustBegin(t, r, classWork)
	pages := []effects.Page{{Index: 7}}
	r.deliverOutcome(&effects.Deliver{Ticket: ticket.id, Pages: pages})
	pages[0].Index = 99
	if got := (<-ticket.Done()).Pages[0].Index; got != 7 {
		t.Errorf("page %d, want 7: the outcome kept the machine's span", got)
	}
}

func TestRegisterRefusals(t *testing.T) {
	r := newTicketTable(8)
	r.refuseNew(effects.Draining)
	_, err := r.beginTicket("test", classWork)
	wantCode(t, err, effects.Draining)
	open := mustBegin(t, r, classEnding)
	r.endAll(true)
	if out := <-open.Done(); out.Code != effects.Closed {
		t.Errorf("an abandoned ticket ended as %v", out.Code)
	}
	<-open.Returned()
	_, err = r.beginTicket("test", classEnding)
	wantCode(t, err, effects.Closed)
}

// A node whose planes could not be closed returns no memory: a NIC may still be at the pages. A later close with proof
// returns all of it.
func TestTicketsOfAPoolThatIsStillInUse(t *testing.T) {
	r := newTicketTable(8)
	held, open := mustBegin(t, r, classWork), mustBegin(t, r, classWork)
	r.deliverOutcome(&effects.Deliver{Ticket: held.id, Code: effects.Expired, Held: true})
	<-held.Done()
	r.endAll(false)
	if out := <-open.Done(); out.Code != effects.Closed || !out.InUse {
		t.Errorf("an open command ended with %+v, want it closed and its memory in use", out)
	}
	if held.isReturned() || open.isReturned() {
		t.Error("memory was returned without proof")
	}
	r.endAll(true)
	<-held.Returned()
	<-open.Returned()
}

func TestRegisterOutcomeForNobodyIsADefect(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an outcome for an unknown ticket was taken")
		}
	}()
	newTicketTable(4).deliverOutcome(&effects.Deliver{Ticket: 1})
}

// Memory comes back once, and after the outcome that said it was held.
func TestRegisterMemoryComesBackOnce(t *testing.T) {
	for name, held := range map[string][]bool{"before the outcome": nil, "that was not held": {false}, "twice": {true}} {
		r := newTicketTable(4)
		ticket := mustBegin(t, r, classWork)
		for _, held := range held {
			r.deliverOutcome(&effects.Deliver{Ticket: ticket.id, Held: held})
			if held {
				r.returnMemory(ticket.id)
			}
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("memory came back %s", name)
				}
			}()
			r.returnMemory(ticket.id)
		}()
		r.endAll(true)
	}
}
