package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// The events that PD's engines and plain peers report to the oracles of a run, each at the moment of the event. See
// [world.OnGranting] and the following declarations. When an outcome is reported, the command is already marked as
// finished.
type (
	// Given: an engine gives a command. The machine receives the command later.
	Given struct {
		Node    *world.Node
		Command *Command
		Ticket  effects.Ticket
	}
	// Commanded: a machine is about to receive a command.
	Commanded struct {
		Node    *world.Node
		Command *Command
		Ticket  effects.Ticket
	}
	// Outcome: a command of any kind has its outcome. For some kinds, a more specific event below follows.
	Outcome struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// Reserved: a reserve has its outcome. The engine has pages to fill, or was refused.
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
	// Read: an engine reads the pages that it obtained for a job.
	Read struct {
		Node  *world.Node
		Job   *Job
		Pages []effects.Page
	}
	// Returned: the memory of a put belongs to the engine again.
	Returned struct {
		Node    *world.Node
		Command *Command
	}
	// Kept: an engine learns how many chunks are ready at the engine's node or are kept at peers.
	Kept struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// Stored: a cache has taken over the pages that its engine filled.
	Stored struct {
		Node    *world.Node
		Command *Command
	}
	// Shared: peers may read pages that an engine keeps.
	Shared struct {
		Node    *world.Node
		Command *Command
	}
	// Withdrawn: an engine has taken back the pages that it had shared.
	Withdrawn struct {
		Node    *world.Node
		Command *Command
	}
	// Releasing: an engine gives back the pages that it obtained under a ticket.
	Releasing struct {
		Node   *world.Node
		Ticket effects.Ticket
	}
	// Notified: a node notifies the proxy. The last field says whether the transport accepted the message.
	Notified struct {
		Node    *world.Node
		Message *protocol.ProxyNotif
		Taken   bool
	}
	// DoneSent: a node sends the message that ends an offer. The last field says whether the transport accepted the
	// message.
	DoneSent struct {
		Node    *world.Node
		Message *protocol.PullDoneSignal
		Taken   bool
	}
	// PlainStored: a plain peer writes half of a page.
	PlainStored struct {
		Write *PlainWrite
		Half  int
	}
	// PlainStill: a write of a plain peer is complete and touches the page no more.
	PlainStill struct {
		Write *PlainWrite
	}
)

// The declarations of the events that PD reports.
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
