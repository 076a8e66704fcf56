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
	Side Side
	Text string
}

// Error describes the breach.
func (b *Breach) Error() string { return "the " + string(b.Side) + " breaks the contract: " + b.Text }

// newBreach returns a Breach by a side.
func newBreach(by Side, format string, args ...any) error {
	return &Breach{Side: by, Text: fmt.Sprintf(format, args...)}
}

// A Checker checks that an incarnation of a machine, and the machine's driver, keep the contract. The caller must pass
// all events and effects in the order in which the machine sees them: each event before its step, and each effect after
// that step. The Checker does not keep the events and effects.
type Checker struct {
	corrs        map[effects.Corr]pendingEffect
	endings      map[Ending]uint64
	control      controlState
	data         dataState
	commands     map[effects.Ticket]commandState
	scatters     map[effects.Corr]scatterRecord // scatters in progress
	pendingCount int                            // number of corrs that are not completed
}

// pendingEffect describes an effect that was issued under a corr.
type pendingEffect struct {
	verb      Verb
	conn      effects.Conn // of a Send or Post, and the channel of an Open
	window    uint16       // of an Open
	link      effects.Link // of a Transfer
	read      bool         // of a Transfer
	completed bool         // completed; the record is kept so that a second completion is recognized
}

// commandState is the state of a command.
type commandState uint8

const (
	commandGiven commandState = iota + 1
	commandHeld
	commandOver
)

// New returns a Checker for a new incarnation with a fenced or a leased driver.
func New(fenced bool) *Checker {
	return &Checker{
		corrs: map[effects.Corr]pendingEffect{}, endings: map[Ending]uint64{}, commands: map[effects.Ticket]commandState{},
		scatters: map[effects.Corr]scatterRecord{},
		control:  newControlState(), data: newDataState(fenced),
	}
}

// CountEnding returns how often an ending occurred.
func (c *Checker) CountEnding(e Ending) uint64 { return c.endings[e] }

// CheckEffect checks an effect of the machine. The error is a *Breach.
func (c *Checker) CheckEffect(e effects.Effect) error {
	switch e := e.(type) {
	case *effects.Open:
		if err := checkOpen(e); err != nil {
			return err
		}
		return c.beginEffect(e.Corr, pendingEffect{verb: Opening, conn: effects.Conn(e.Channel), window: e.Window})
	case *effects.Close:
		return c.control.checkClose(e.Conn)
	case *effects.Send:
		if err := c.beginEffect(e.Corr, pendingEffect{verb: Sending, conn: e.Conn}); err != nil {
			return err
		}
		if err := c.data.checkCarriedPages(e); err != nil {
			return err
		}
		return c.control.checkSend(e)
	case *effects.Post:
		if err := c.beginEffect(e.Corr, pendingEffect{verb: Posting, conn: e.Conn}); err != nil {
			return err
		}
		return c.control.checkPost(e)
	case *effects.Reply:
		return c.control.checkReply(e.Request)
	case *effects.Import:
		return c.beginEffect(e.Corr, pendingEffect{verb: Importing})
	case *effects.Drop:
		return c.data.checkDrop(e.Link)
	case *effects.Publish:
		return c.data.checkPublish(e.Pages)
	case *effects.Grant:
		return c.data.checkGrant(e)
	case *effects.Revoke:
		return c.data.checkRevoke(e.Grant)
	case *effects.Transfer:
		if err := c.beginEffect(e.Corr, pendingEffect{verb: Transferring, link: e.Link, read: e.Read}); err != nil {
			return err
		}
		return c.data.checkTransfer(e)
	case *effects.Copy:
		if err := c.beginEffect(e.Corr, pendingEffect{verb: Copying}); err != nil {
			return err
		}
		return c.data.checkCopy(e)
	case *effects.Store:
		return c.data.checkStore(e)
	case *effects.Verify:
		if err := c.beginEffect(e.Corr, pendingEffect{verb: Verifying}); err != nil {
			return err
		}
		return c.data.checkVerify(e)
	case *effects.Confirm:
		return c.data.checkConfirm(e.Landing)
	case *effects.Scatter:
		return c.checkScatter(e)
	case *effects.Deliver:
		return c.checkDeliver(e)
	case *effects.Return:
		return c.checkReturn(e.Ticket)
	case *effects.Cancel, *effects.Observe: // These are always allowed.
	}
	return nil
}

// checkReturn checks a Return.
func (c *Checker) checkReturn(t effects.Ticket) error {
	switch c.commands[t] {
	case commandHeld:
		c.commands[t] = commandOver
	case commandGiven:
		return newBreach(Machine, "it returns the memory of ticket %d before its outcome", t)
	case commandOver:
		return newBreach(Machine, "it returns the memory of ticket %d, which is not held any more", t)
	default:
		return newBreach(Machine, "it returns the memory of ticket %d, which it was not given", t)
	}
	if c.isScattering(t) {
		return newBreach(Machine, "it returns ticket %d while chunks of it are scattered", t)
	}
	return nil
}

// checkDeliver checks a Deliver.
func (c *Checker) checkDeliver(e *effects.Deliver) error {
	if c.commands[e.Ticket] != commandGiven {
		return newBreach(Machine, "it delivers ticket %d, which it was not given or has delivered", e.Ticket)
	}
	if c.isScattering(e.Ticket) && !e.Held {
		return newBreach(Machine, "it gives ticket %d its memory while chunks of it are scattered", e.Ticket)
	}
	c.commands[e.Ticket] = commandOver
	if e.Held {
		c.commands[e.Ticket] = commandHeld
		return nil
	}
	return c.data.checkReturnedPages(e.Pages)
}

// beginEffect records an effect under a new corr.
func (c *Checker) beginEffect(corr effects.Corr, o pendingEffect) error {
	if _, used := c.corrs[corr]; used || corr == 0 {
		return newBreach(Machine, "it gives corr %d to a %v, which was given before or is zero", corr, o.verb)
	}
	c.corrs[corr] = o
	c.pendingCount++
	return nil
}

// CheckEvent checks an event of the driver. The error is a *Breach.
func (c *Checker) CheckEvent(ev effects.Event) error {
	if end, ok := EndingOf(ev); ok {
		if !end.IsLegal() {
			return newBreach(Driver, "%v is no legal ending", end)
		}
		c.endings[end]++
	}
	switch ev := ev.(type) {
	case *effects.Tick:
	case *effects.Command:
		if c.commands[ev.Ticket] != 0 || ev.Ticket == 0 {
			return newBreach(Driver, "ticket %d is given twice or zero", ev.Ticket)
		}
		c.commands[ev.Ticket] = commandGiven
	case *effects.Received:
		return c.control.checkReceived(ev)
	case *effects.ConnLost:
		return c.control.checkConnLost(ev.Conn)
	case *effects.Opened:
		o, err := c.completeEffect(ev.Corr, Opening)
		if err != nil {
			return err
		}
		return c.control.checkOpened(ev, effects.Channel(o.conn), o.window)
	case *effects.Replied:
		o, err := c.completeEffect(ev.Corr, Sending)
		if err != nil {
			return err
		}
		return c.control.endRequest(o.conn, effects.OK)
	case *effects.Unanswered:
		o, err := c.completeEffect(ev.Corr, Sending)
		if err != nil {
			return err
		}
		return c.control.endRequest(o.conn, ev.Code)
	case *effects.SendDone:
		_, err := c.completeEffect(ev.Corr, Posting)
		return err
	case *effects.Imported:
		if _, err := c.completeEffect(ev.Corr, Importing); err != nil {
			return err
		}
		return c.data.checkImported(ev)
	case *effects.LinkLost:
		return c.data.checkLinkLost(ev.Link)
	case *effects.Dropped:
		return c.data.checkDropped(ev.Link)
	case *effects.TransferDone:
		o, err := c.completeEffect(ev.Corr, Transferring)
		if err != nil {
			return err
		}
		if !ev.Settled {
			c.corrs[ev.Corr] = pendingEffect{verb: Settling}
			c.pendingCount++
		}
		return c.data.checkTransferDone(o, ev)
	case *effects.CopyDone:
		return c.checkCopyDone(ev)
	case *effects.Settled:
		_, err := c.completeEffect(ev.Corr, Settling)
		c.data.settleTransfer(ev.Corr)
		return err
	case *effects.Scattered:
		return c.checkScattered(ev)
	case *effects.Verified:
		if _, err := c.completeEffect(ev.Corr, Verifying); err != nil {
			return err
		}
		return c.data.endVerify(ev)
	case *effects.Landed:
		return c.data.checkLanded(ev)
	case *effects.Revoked:
		return c.data.checkRevoked(ev.Grant)
	}
	return nil
}

// completeEffect records the completion of corr, which must be outstanding for this verb.
func (c *Checker) completeEffect(corr effects.Corr, v Verb) (pendingEffect, error) {
	o, known := c.corrs[corr]
	switch {
	case !known:
		return o, newBreach(Driver, "a %v is completed under corr %d, which was never given", v, corr)
	case o.completed:
		return o, newBreach(Driver, "the %v of corr %d is completed a second time, as a %v", o.verb, corr, v)
	case o.verb != v:
		return o, newBreach(Driver, "the %v of corr %d is completed as if it were a %v", o.verb, corr, v)
	}
	c.pendingCount--
	c.corrs[corr] = pendingEffect{verb: o.verb, completed: true}
	return o, nil
}

// A Crossing is an order of events and effects that a machine may find surprising: the driver had reported or done
// something before the driver could know of the machine's latest effect.
type Crossing uint8

// The crossings.
const (
	ReplyAfterClose    Crossing = iota // the reply was in the mailbox when the Conn was closed
	LossAfterDrop                      // a LinkLost was in the mailbox when the Link was dropped
	DoneAfterLoss                      // the Transfer was issued while a LinkLost was in the mailbox
	EmptyLanding                       // nothing of a push has arrived, and a Landed is reported all the same
	LandingAfterRevoke                 // a Landed reports pages although their Revoke was issued
	CrossingCount
)

// String returns the crossing as in reports.
func (x Crossing) String() string {
	switch x {
	case ReplyAfterClose:
		return "a reply behind the close of its conn"
	case LossAfterDrop:
		return "a link's loss behind its drop"
	case DoneAfterLoss:
		return "a transfer's end behind the loss of its link"
	case EmptyLanding:
		return "a landing without pages"
	case LandingAfterRevoke:
		return "a landing behind the revoke of its grant"
	case CrossingCount:
	}
	return "invalid"
}

// CountCrossing returns how often a crossing occurred.
func (c *Checker) CountCrossing(x Crossing) uint64 { return c.control.crossed[x] + c.data.crossed[x] }

// CheckCompleted returns an error if a completion is outstanding. Nothing may be outstanding once both sides have
// ended. Grants without Revoke, and conns and links that remain, are not outstanding completions.
func (c *Checker) CheckCompleted() error {
	switch {
	case c.pendingCount > 0:
		return newBreach(Driver, "%d effects were never completed", c.pendingCount)
	case c.data.revokes > 0:
		return newBreach(Driver, "%d revocations never ended", c.data.revokes)
	case c.data.drops > 0:
		return newBreach(Driver, "%d links were never dropped", c.data.drops)
	}
	return nil
}
