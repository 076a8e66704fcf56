// Package flow defines the interface between a rank and its flows. A flow is one side of one exchange, for example the
// side that pushes chunks, the side that accepts pushed chunks, the side that offers chunks, or the side that reads
// offered chunks. A flow has rows of its own and uses rooms that know no messages. No flow knows another flow.
//
// The rank makes one [Env] for each step and calls the flows with it. A flow implements [Flow], and further interfaces
// such as [Server] if it takes messages. When a flow requests an effect, sets a timer or takes a grant, the flow passes
// a kernel.Ref that names its own row; the rank brings the completion back to the flow by this Ref.
//
// A flow may rely on this:
//
//   - An Env is valid for one step. All that the flow needs is in the Env of a rank that has the flow.
//   - The flow is called once for each completion, each deadline and each end of a grant for which the flow gave a Ref,
//     and for nothing else.
//
// Example, for the flow that accepts pushed chunks:
//
//	HandleMessage(alloc request)  the flow finds no free pages and adds a row to the allocation queue (Rooms.Pending)
//	...                     another flow ends a grant; pages become free
//	TryServe(row)                the rank calls the flow, which grants the pages and replies
//	Step(Landed)            the chunks have arrived; the flow makes them ready
package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// An Env is one step as a flow sees it: the time, the effects and the rooms of the rank. The Env belongs to the rank,
// and a flow must not keep a pointer to it after the call.
type Env struct {
	env.Env
	// Draining means that no new work is accepted. A drain may begin within a step.
	Draining bool
	Cfg      *Config
	Commands *engine.Engine
	Links    *link.Links
	Breakers *link.Breakers
	Carrier  Carrier // the flow that pushes; nil: there is none
	// CarriedResults contains the results of carried puts. The flow for which they were carried receives them in the
	// same step.
	CarriedResults []CarriedResult
	*Rooms         // of a rank with targets; Store is in every rank
}

// Config is the part of a rank's configuration that more than one flow uses.
type Config struct {
	Settings
	PageBytes  uint64
	Buffer     protocol.UUID // wire id of the pool that peers access
	Device     protocol.UUID // wire id of the device pool; zero: there is none
	DeviceFrom uint32        // number of the device pool's first page
	DriftPPM   uint32        // maximum drift between two nodes' clocks, in millionths
	PeersMax   uint32
	// AttemptsMax is the number of requests or offers after which a put or a recall fails.
	AttemptsMax uint32
}

// PageName returns the name by which peers know a page: the buffer that contains the page, and the page's index in the
// buffer. Each pool is a buffer of its own.
func (c *Config) PageName(page effects.Page) (protocol.UUID, int64) {
	if c.Device != (protocol.UUID{}) && page.Index >= c.DeviceFrom {
		return c.Device, int64(page.Index - c.DeviceFrom)
	}
	return c.Buffer, int64(page.Index)
}
