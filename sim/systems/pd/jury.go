package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/world"
)

// Judges are who is told what PD's engines and plain peers do, and what becomes of it, at its instant. They change
// nothing of a cluster, but that the first who finds a promise broken ends the run.
type Judges interface {
	OnGiven(n *world.Node, c *Command, t effects.Ticket)     // an engine gives a command, which its machine gets later
	OnCommand(n *world.Node, c *Command, t effects.Ticket)   // a machine is about to get it
	OnOutcome(n *world.Node, e *effects.Deliver, c *Command) // of any command; of some more is told below
	OnReserved(n *world.Node, e *effects.Deliver, c *Command)
	OnContained(n *world.Node, e *effects.Deliver, c *Command)
	OnFetched(n *world.Node, e *effects.Deliver, c *Command)
	OnPutEnded(n *world.Node, e *effects.Deliver, c *Command)
	OnPutOK(n *world.Node, e *effects.Deliver, c *Command)
	OnGot(n *world.Node, e *effects.Deliver, c *Command)
	OnRead(n *world.Node, j *Job, pages []effects.Page)   // an engine reads pages that it got for a job
	OnReturned(n *world.Node, c *Command)                 // the memory of a put is its engine's again
	OnKept(n *world.Node, e *effects.Deliver, c *Command) // so many chunks are here, or kept where they are
	OnStored(n *world.Node, c *Command)                   // a cache has taken over what its engine filled
	OnShared(n *world.Node, c *Command)                   // peers may read pages that an engine keeps
	OnWithdrawn(n *world.Node, c *Command)                // it has them back
	OnRelease(n *world.Node, t effects.Ticket)            // an engine gives back what it had by a ticket
	// a word to the proxy, and whether the transport took it
	OnNotice(n *world.Node, m *protocol.ProxyNotif, taken bool)
	OnEndTold(n *world.Node, m *protocol.PullDoneSignal, taken bool) // the word that an offer has ended, likewise
	OnPlainStore(x *PlainWrite, half int)
	OnPlainStill(x *PlainWrite)
}
