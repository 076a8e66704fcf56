package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// The events that PD's engines and plain peers report to the oracles of a run, each at the moment of the event. See
// [world.OnGrantingPages] and the following declarations. When an outcome is reported, the command is already marked as
// finished.
type (
	// CommandGiven: an engine gives a command. The machine receives the command later.
	CommandGiven struct {
		Node    *world.Node
		Command *Command
		Ticket  effects.Ticket
	}
	// CommandReceived: a machine is about to receive a command.
	CommandReceived struct {
		Node    *world.Node
		Command *Command
		Ticket  effects.Ticket
	}
	// CommandOutcome: a command of any kind has its outcome. For some kinds, a more specific event below follows.
	CommandOutcome struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// ReserveOutcome: a reserve has its outcome. The engine has pages to fill, or was refused.
	ReserveOutcome struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// ContainsOutcome: an engine learns how many chunks are ready.
	ContainsOutcome struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// FetchOutcome: a fetch has its outcome.
	FetchOutcome struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// PutOutcome: a put has its outcome.
	PutOutcome struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// PutSucceeded: a put has succeeded.
	PutSucceeded struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// GetOutcome: a get has its outcome.
	GetOutcome struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// GetOfDomain: an engine has the outcome of a command that states another trust domain, or reads its pages again before
	// it releases them; Effect is nil then.
	GetOfDomain struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// PagesRead: an engine reads the pages that it obtained for a job.
	PagesRead struct {
		Node  *world.Node
		Job   *Job
		Pages []effects.Page
	}
	// PutReturned: the memory of a put belongs to the engine again.
	PutReturned struct {
		Node    *world.Node
		Command *Command
	}
	// KeepOutcome: an engine learns how many chunks are ready at the engine's node or are kept at peers.
	KeepOutcome struct {
		Node    *world.Node
		Effect  *effects.Deliver
		Command *Command
	}
	// PagesStored: a cache has taken over the pages that its engine filled.
	PagesStored struct {
		Node    *world.Node
		Command *Command
	}
	// PagesShared: peers may read pages that an engine keeps.
	PagesShared struct {
		Node    *world.Node
		Command *Command
	}
	// PagesWithdrawn: an engine has taken back the pages that it had shared.
	PagesWithdrawn struct {
		Node    *world.Node
		Command *Command
	}
	// PagesReleased: an engine gives back the pages that it obtained under a ticket.
	PagesReleased struct {
		Node   *world.Node
		Ticket effects.Ticket
	}
	// ProxyNotified: a node notifies the proxy. The last field says whether the transport accepted the message.
	ProxyNotified struct {
		Node     *world.Node
		Message  *protocol.ProxyNotif
		Accepted bool
	}
	// DoneSent: a node sends the message that ends an offer. The last field says whether the transport accepted the
	// message.
	DoneSent struct {
		Node     *world.Node
		Message  *protocol.PullDoneSignal
		Accepted bool
	}
	// PlainWriteStored: a plain peer writes half of a page.
	PlainWriteStored struct {
		Write *PlainWrite
		Half  int
	}
	// PlainWriteEnded: a write of a plain peer is complete and touches the page no more.
	PlainWriteEnded struct {
		Write *PlainWrite
	}
)

// The declarations of the events that PD reports.
var (
	OnCommandGiven     = oracle.NewHappening[CommandGiven]()
	OnCommandReceived  = oracle.NewHappening[CommandReceived]()
	OnCommandOutcome   = oracle.NewHappening[CommandOutcome]()
	OnReserveOutcome   = oracle.NewHappening[ReserveOutcome]()
	OnContainsOutcome  = oracle.NewHappening[ContainsOutcome]()
	OnFetchOutcome     = oracle.NewHappening[FetchOutcome]()
	OnPutOutcome       = oracle.NewHappening[PutOutcome]()
	OnPutSucceeded     = oracle.NewHappening[PutSucceeded]()
	OnGetOutcome       = oracle.NewHappening[GetOutcome]()
	OnGetOfDomain      = oracle.NewHappening[GetOfDomain]()
	OnPagesRead        = oracle.NewHappening[PagesRead]()
	OnPutReturned      = oracle.NewHappening[PutReturned]()
	OnKeepOutcome      = oracle.NewHappening[KeepOutcome]()
	OnPagesStored      = oracle.NewHappening[PagesStored]()
	OnPagesShared      = oracle.NewHappening[PagesShared]()
	OnPagesWithdrawn   = oracle.NewHappening[PagesWithdrawn]()
	OnPagesReleased    = oracle.NewHappening[PagesReleased]()
	OnProxyNotified    = oracle.NewHappening[ProxyNotified]()
	OnDoneSent         = oracle.NewHappening[DoneSent]()
	OnPlainWriteStored = oracle.NewHappening[PlainWriteStored]()
	OnPlainWriteEnded  = oracle.NewHappening[PlainWriteEnded]()
)
