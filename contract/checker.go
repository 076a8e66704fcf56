package contract

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// Side is the party that broke the contract.
type Side string

// The sides.
const (
	Driver  Side = "driver"
	Machine Side = "machine"
)

// A Breach is a violation of the contract.
type Breach struct {
	By    Side
	Story string
}

// Error describes the breach.
func (b *Breach) Error() string { return "the " + string(b.By) + " breaks the contract: " + b.Story }

// broken returns a Breach by a side.
func broken(by Side, format string, args ...any) error {
	return &Breach{By: by, Story: fmt.Sprintf(format, args...)}
}

// A Checker checks that an incarnation of a machine, and the machine's driver, keep the contract. The caller must pass
// all events and effects in the order in which the machine sees them: each event before its step, and each effect after
// that step. The Checker does not keep the events and effects.
type Checker struct {
	corrs  map[effects.Corr]owed
	seen   map[Ending]uint64
	wires  wires
	planes planes
	work   map[effects.Ticket]outcome
	device map[effects.Corr]scatter // scatters in progress
	open   int                      // number of corrs that are not completed
}

// owed describes an effect that was issued under a corr.
type owed struct {
	verb   Verb
	conn   effects.Conn // of a Send or Post, and the channel of an Open
	window uint16       // of an Open
	link   effects.Link // of a Transfer
	read   bool         // of a Transfer
	over   bool         // completed; the record is kept so that a second completion is recognized
}

// outcome is the state of a command.
type outcome uint8

const (
	given outcome = iota + 1
	held
	over
)

// New returns a Checker for a new incarnation with a fenced or a leased driver.
func New(fenced bool) *Checker {
	return &Checker{
		corrs: map[effects.Corr]owed{}, seen: map[Ending]uint64{}, work: map[effects.Ticket]outcome{},
		device: map[effects.Corr]scatter{},
		wires:  newWires(), planes: newPlanes(fenced),
	}
}

// Seen returns how often an ending occurred.
func (c *Checker) Seen(e Ending) uint64 { return c.seen[e] }

// Asked checks an effect of the machine. The error is a *Breach.
func (c *Checker) Asked(e effects.Effect) error {
	switch e := e.(type) {
	case *effects.Open:
		if err := opening(e); err != nil {
			return err
		}
		return c.begin(e.Corr, owed{verb: Opening, conn: effects.Conn(e.Channel), window: e.Window})
	case *effects.Close:
		return c.wires.closed(e.Conn)
	case *effects.Send:
		if err := c.begin(e.Corr, owed{verb: Asking, conn: e.Conn}); err != nil {
			return err
		}
		if err := c.planes.carries(e); err != nil {
			return err
		}
		return c.wires.asked(e)
	case *effects.Post:
		if err := c.begin(e.Corr, owed{verb: Telling, conn: e.Conn}); err != nil {
			return err
		}
		return c.wires.told(e)
	case *effects.Reply:
		return c.wires.replied(e.Request)
	case *effects.Import:
		return c.begin(e.Corr, owed{verb: Importing})
	case *effects.Drop:
		return c.planes.dropping(e.Link)
	case *effects.Publish:
		return c.planes.published(e.Pages)
	case *effects.Grant:
		return c.planes.granted(e)
	case *effects.Revoke:
		return c.planes.revoking(e.Grant)
	case *effects.Transfer:
		if err := c.begin(e.Corr, owed{verb: Transferring, link: e.Link, read: e.Read}); err != nil {
			return err
		}
		return c.planes.transferring(e)
	case *effects.Copy:
		if err := c.begin(e.Corr, owed{verb: Copying}); err != nil {
			return err
		}
		return c.planes.copying(e)
	case *effects.Store:
		return c.planes.storing(e)
	case *effects.Confirm:
		return c.planes.confirmed(e.Landing)
	case *effects.Scatter:
		return c.scattering(e)
	case *effects.Deliver:
		return c.delivered(e)
	case *effects.Return:
		return c.returning(e.Ticket)
	case *effects.Cancel, *effects.Observe: // These are always allowed.
	}
	return nil
}

// returning checks a Return.
func (c *Checker) returning(t effects.Ticket) error {
	switch c.work[t] {
	case held:
		c.work[t] = over
	case given:
		return broken(Machine, "it returns the memory of ticket %d before its outcome", t)
	case over:
		return broken(Machine, "it returns the memory of ticket %d, which is not held any more", t)
	default:
		return broken(Machine, "it returns the memory of ticket %d, which it was not given", t)
	}
	if c.scatters(t) {
		return broken(Machine, "it returns ticket %d while chunks of it are scattered", t)
	}
	return nil
}

// delivered checks a Deliver.
func (c *Checker) delivered(e *effects.Deliver) error {
	if c.work[e.Ticket] != given {
		return broken(Machine, "it delivers ticket %d, which it was not given or has delivered", e.Ticket)
	}
	if c.scatters(e.Ticket) && !e.Held {
		return broken(Machine, "it gives ticket %d its memory while chunks of it are scattered", e.Ticket)
	}
	c.work[e.Ticket] = over
	if e.Held {
		c.work[e.Ticket] = held
		return nil
	}
	return c.planes.givesBack(e.Pages)
}

// begin records an effect under a new corr.
func (c *Checker) begin(corr effects.Corr, o owed) error {
	if _, used := c.corrs[corr]; used || corr == 0 {
		return broken(Machine, "it gives corr %d to a %v, which was given before or is zero", corr, o.verb)
	}
	c.corrs[corr] = o
	c.open++
	return nil
}

// CheckEvent checks an event of the driver. The error is a *Breach.
func (c *Checker) Told(ev effects.Event) error {
	if end, ok := EndingOf(ev); ok {
		if !end.Legal() {
			return broken(Driver, "%v is no legal ending", end)
		}
		c.seen[end]++
	}
	switch ev := ev.(type) {
	case *effects.Tick:
	case *effects.Command:
		if c.work[ev.Ticket] != 0 || ev.Ticket == 0 {
			return broken(Driver, "ticket %d is given twice or zero", ev.Ticket)
		}
		c.work[ev.Ticket] = given
	case *effects.Received:
		return c.wires.received(ev)
	case *effects.ConnLost:
		return c.wires.lost(ev.Conn)
	case *effects.Opened:
		o, err := c.end(ev.Corr, Opening)
		if err != nil {
			return err
		}
		return c.wires.opened(ev, effects.Channel(o.conn), o.window)
	case *effects.Replied:
		o, err := c.end(ev.Corr, Asking)
		if err != nil {
			return err
		}
		return c.wires.answered(o.conn, effects.OK)
	case *effects.Unanswered:
		o, err := c.end(ev.Corr, Asking)
		if err != nil {
			return err
		}
		return c.wires.answered(o.conn, ev.Code)
	case *effects.SendDone:
		_, err := c.end(ev.Corr, Telling)
		return err
	case *effects.Imported:
		if _, err := c.end(ev.Corr, Importing); err != nil {
			return err
		}
		return c.planes.imported(ev)
	case *effects.LinkLost:
		return c.planes.lost(ev.Link)
	case *effects.Dropped:
		return c.planes.dropped(ev.Link)
	case *effects.TransferDone:
		o, err := c.end(ev.Corr, Transferring)
		if err != nil {
			return err
		}
		if !ev.Settled {
			c.corrs[ev.Corr] = owed{verb: Settling}
			c.open++
		}
		return c.planes.done(o, ev)
	case *effects.CopyDone:
		return c.copied(ev)
	case *effects.Settled:
		_, err := c.end(ev.Corr, Settling)
		c.planes.settled(ev.Corr)
		return err
	case *effects.Scattered:
		return c.scattered(ev)
	case *effects.Landed:
		return c.planes.landed(ev)
	case *effects.Revoked:
		return c.planes.revoked(ev.Grant)
	}
	return nil
}

// end records the completion of corr, which must be outstanding for this verb.
func (c *Checker) end(corr effects.Corr, v Verb) (owed, error) {
	o, asked := c.corrs[corr]
	switch {
	case !asked:
		return o, broken(Driver, "a %v is completed under corr %d, which was never given", v, corr)
	case o.over:
		return o, broken(Driver, "the %v of corr %d is completed a second time, as a %v", o.verb, corr, v)
	case o.verb != v:
		return o, broken(Driver, "the %v of corr %d is completed as if it were a %v", o.verb, corr, v)
	}
	c.open--
	c.corrs[corr] = owed{verb: o.verb, over: true}
	return o, nil
}

// A Crossing is an order of events and effects that a machine may find surprising: the driver had reported or done
// something before the driver could know of the machine's latest effect.
type Crossing uint8

// The crossings.
const (
	ReplyBehindClose  Crossing = iota // the reply was in the mailbox when the Conn was closed
	LossBehindDrop                    // a LinkLost was in the mailbox when the Link was dropped
	DoneBehindLoss                    // the Transfer was issued while a LinkLost was in the mailbox
	EmptyLanding                      // nothing of a push has arrived, and a Landed is reported all the same
	LandingAfterAsked                 // a Landed reports pages although their Revoke was issued
	Crossings
)

// String returns the crossing as in reports.
func (x Crossing) String() string {
	switch x {
	case ReplyBehindClose:
		return "a reply behind the close of its conn"
	case LossBehindDrop:
		return "a link's loss behind its drop"
	case DoneBehindLoss:
		return "a transfer's end behind the loss of its link"
	case EmptyLanding:
		return "a landing without pages"
	case LandingAfterAsked:
		return "a landing behind the revoke of its grant"
	case Crossings:
	}
	return "invalid"
}

// Crossed returns how often a crossing occurred.
func (c *Checker) Crossed(x Crossing) uint64 { return c.wires.crossed[x] + c.planes.crossed[x] }

// Owed returns an error if a completion is outstanding. Nothing may be outstanding once both sides have ended. Grants
// without Revoke, and conns and links that remain, are not outstanding completions.
func (c *Checker) Owed() error {
	switch {
	case c.open > 0:
		return broken(Driver, "%d effects were never completed", c.open)
	case c.planes.revokes > 0:
		return broken(Driver, "%d revocations never ended", c.planes.revokes)
	case c.planes.drops > 0:
		return broken(Driver, "%d links were never dropped", c.planes.drops)
	}
	return nil
}
