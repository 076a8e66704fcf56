package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// What PD's engines and plain peers report to the oracles of a run, each at its instant: see [world.OnGranting] and the
// others there. Where an outcome is reported, its command is noted as over already.
type (
	// Given: an engine gives a command, which its machine gets later.
	Given struct {
		Node    *world.Node
		Command *Command
		Ticket  effects.Ticket
	}
	// Commanded: a machine is about to get a command.
	Commanded struct {
		Node    *world.Node
		Command *Command
		Ticket  effects.Ticket
	}
	// Outcome: a command has its outcome, of whatever kind it is; of some kinds more is reported below.
	Outcome struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// Reserved: an engine has pages to fill, or was refused them.
	Reserved struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// Contained: an engine learns how many chunks are ready.
	Contained struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// Fetched: a fetch has its outcome.
	Fetched struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// PutEnded: a put has its outcome.
	PutEnded struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// PutOK: a put has succeeded.
	PutOK struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// Got: a get has its outcome.
	Got struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// Read: an engine reads the pages that it got for a job.
	Read struct {
		Node  *world.Node
		Job   *Job
		Pages []effects.Page
	}
	// Returned: the memory of a put is its engine's again.
	Returned struct {
		Node    *world.Node
		Command *Command
	}
	// Kept: an engine learns how many chunks are ready or kept where they are.
	Kept struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// Stored: a cache has taken over what its engine filled.
	Stored struct {
		Node    *world.Node
		Command *Command
	}
	// Shared: peers may read pages that an engine keeps.
	Shared struct {
		Node    *world.Node
		Command *Command
	}
	// Withdrawn: an engine has those pages back.
	Withdrawn struct {
		Node    *world.Node
		Command *Command
	}
	// Releasing: an engine gives back what it had by a ticket.
	Releasing struct {
		Node   *world.Node
		Ticket effects.Ticket
	}
	// Notified: a node notifies the proxy; Taken: the transport took the message.
	Notified struct {
		Node    *world.Node
		Message *protocol.ProxyNotif
		Taken   bool
	}
	// DoneSent: a node sends the message that ends an offer; Taken: the transport took it.
	DoneSent struct {
		Node    *world.Node
		Message *protocol.PullDoneSignal
		Taken   bool
	}
	// PlainStored: half of a page is written by a plain peer.
	PlainStored struct {
		Write *PlainWrite
		Half  int
	}
	// PlainStill: that write touches nothing any more.
	PlainStill struct {
		Write *PlainWrite
	}
)

// Declarations of what PD reports.
var (
	OnGiven       = oracle.NewHappening[Given]()
	OnCommanded   = oracle.NewHappening[Commanded]()
	OnOutcome     = oracle.NewHappening[Outcome]()
	OnReserved    = oracle.NewHappening[Reserved]()
	OnContained   = oracle.NewHappening[Contained]()
	OnFetched     = oracle.NewHappening[Fetched]()
	OnPutEnded    = oracle.NewHappening[PutEnded]()
	OnPutOK       = oracle.NewHappening[PutOK]()
	OnGot         = oracle.NewHappening[Got]()
	OnRead        = oracle.NewHappening[Read]()
	OnReturned    = oracle.NewHappening[Returned]()
	OnKept        = oracle.NewHappening[Kept]()
	OnStored      = oracle.NewHappening[Stored]()
	OnShared      = oracle.NewHappening[Shared]()
	OnWithdrawn   = oracle.NewHappening[Withdrawn]()
	OnReleasing   = oracle.NewHappening[Releasing]()
	OnNotified    = oracle.NewHappening[Notified]()
	OnDoneSent    = oracle.NewHappening[DoneSent]()
	OnPlainStored = oracle.NewHappening[PlainStored]()
	OnPlainStill  = oracle.NewHappening[PlainStill]()
)
