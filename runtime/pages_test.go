package runtime

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
)

// An agreeable machine grants every command at once, and notes what was released.
type agreeable struct{ released []effects.Ticket }

func (m *agreeable) Step(_ effects.Time, ev effects.Event, out *effects.Effects) {
	c, ok := ev.(*effects.Command)
	if !ok {
		return
	}
	if r, ok := c.Body.(*engine.Release); ok {
		m.released = append(m.released, r.Reserved)
	}
	out.Deliver(effects.Deliver{Ticket: c.Ticket})
}

func (m *agreeable) Deadline() (effects.Time, bool) { return 0, false }

// heldPages is a node whose machine agrees to everything, and pages that a held put still reads.
func heldPages(t *testing.T) (*agreeable, *Node, *Pages, *Ticket) {
	t.Helper()
	m := &agreeable{}
	box := newMailbox(8, 1<<10)
	w := &rankDriver{baseDriver: baseDriver{tickets: newTicketTable(8), log: slog.Default()}, mailbox: box}
	n := &Node{tickets: w.tickets, driver: w, log: w.log, loop: newLoop(m, box, w)}
	go n.loop.run()
	t.Cleanup(n.loop.shutDown)
	p := n.newPages([]effects.Page{{Index: 1}}, &engine.Release{Reserved: 7})
	begun, err := p.lendPages("put", func() (*commandGroup, error) {
		l := &commandGroup{returned: make(chan struct{})}
		l.outstanding.Store(1)
		return l, n.tickets.beginGroup("put", classWork, l, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	put := begun.tickets[0]
	n.tickets.deliverOutcome(&effects.Deliver{Ticket: put.id, Code: effects.Expired, Held: true})
	return m, n, p, put
}

func (m *agreeable) wantReleased(t *testing.T, n *Node, want int) {
	t.Helper()
	n.loop.runBetween(func() {
		if len(m.released) != want {
			t.Errorf("%d releases reached the machine, want %d", len(m.released), want)
		}
	})
}

// "A Put that ends while the hardware may still touch them keeps them until it is safe."
func TestReleaseWaitsForAHeldPut(t *testing.T) {
	m, n, p, put := heldPages(t)
	ended := make(chan error, 1)
	go func() { ended <- p.Release(context.Background()) }()
	m.wantReleased(t, n, 0)
	n.tickets.returnMemory(put.id)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	m.wantReleased(t, n, 1)
}

func TestImpatientReleaseGoesOnInTheBackground(t *testing.T) {
	m, n, p, put := heldPages(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := p.Release(ctx)
	if CodeOf(err) != effects.Cancelled || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want expired by the context", err)
	}
	m.wantReleased(t, n, 0)
	if _, err := p.Bytes(0); CodeOf(err) != effects.Invalid {
		t.Errorf("pages on their way back were given: %v", err)
	}
	n.tickets.returnMemory(put.id)
	n.tasks.Wait()
	m.wantReleased(t, n, 1)
}

// A release that found no room changed nothing: the holder still has the pages and may try again.
func TestReleaseWithoutRoomMayBeTriedAgain(t *testing.T) {
	_, n, p, put := heldPages(t)
	n.tickets.returnMemory(put.id)
	var open []*Ticket
	for {
		ticket, err := n.tickets.beginTicket("fill", classEnding)
		if err != nil {
			break
		}
		open = append(open, ticket)
	}
	if err := p.Release(t.Context()); CodeOf(err) != effects.TooMany {
		t.Errorf("got %v, want too_many", err)
	}
	for _, ticket := range open {
		n.tickets.deliverOutcome(&effects.Deliver{Ticket: ticket.id})
	}
	if err := p.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Pages that go back by themselves do, also where the table of commands has no room for it just then. Until then nobody
// uses them again.
func TestReleaseInTheBackgroundIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, n, p, put := heldPages(t)
		over, cancel := context.WithCancel(context.Background())
		cancel()
		var e *Error
		if err := p.Release(over); !errors.As(err, &e) || e.Code != effects.Cancelled {
			t.Fatalf("it ended with %v", err)
		}
		var others []*Ticket
		for range 7 {
			other, err := n.tickets.beginTicket("other", classEnding)
			if err != nil {
				t.Fatal(err)
			}
			others = append(others, other)
		}
		n.tickets.mu.Lock()
		n.tickets.max = len(others)
		n.tickets.mu.Unlock()
		n.tickets.returnMemory(put.id)
		synctest.Wait() // It was refused.
		if _, err := p.pageAt("host", 0); err == nil {
			t.Error("pages can be used that are about to go back")
		}
		n.tickets.deliverOutcome(&effects.Deliver{Ticket: others[0].id})
		n.tasks.Wait()
		m.wantReleased(t, n, 1)
	})
}
