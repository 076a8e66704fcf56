// Package flow is what a rank hands to each of its flows, and what it tells them of. A flow is one side of one
// exchange: who pushes, who is pushed to, who offers, who reads. It has rows of its own and stands on rooms that know
// no message; no flow knows another one.
//
// What a flow may rely on: an Env is of one step, and nothing in it is missing in a rank that has the flow.
// It is told of each completion, each deadline and each end of a grant whose Ref it gave, once, and of no other.
package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// An Env is one step as a flow sees it: the instant and the effects, and the rooms of the rank. It is the rank's, and
// nobody else keeps it.
type Env struct {
	env.Env
	// Draining: nothing new is taken. It may begin within a step.
	Draining bool
	Cfg      *Config
	Commands *engine.Engine
	Links    *link.Links
	Breakers *link.Breakers
	Carrier  Carrier // who pushes; nil: nobody does
	Told     []Told  // what became of what it carried, until its flow has heard, in the same step
	*Rooms           // of a rank that has a target, and the store of any
}

// Config is what more than one flow of a rank goes by.
type Config struct {
	Layout       protocol.Layout
	PageBytes    uint64
	Buffer       protocol.UUID    // of the pool that peers touch
	Device       protocol.UUID    // of the second pool of who shares; zero: there is none
	DeviceFrom   uint32           // the number of its first page
	Leased       bool             // nobody sees what peers touch there (M4); otherwise planes are fenced (M3)
	Bearer       bool             // the planes serve peers without our extensions
	AllocTimeout effects.Duration // a request's wait for pages
	ReplyTimeout effects.Duration // a peer's answer
	Lease        effects.Duration // of write grants: ours, and assumed of receivers that state none
	LeaseGuard   effects.Duration // a holder starts nothing more under a grant this long before its end
	DriftPPM     uint32           // how far clocks of two nodes run apart, in millionths
	LeaseMax     effects.Duration // how long a read lease lives at the most, renewals included
	BackoffMin   effects.Duration
	BackoffMax   effects.Duration
	BatchMax     uint32 // chunks of a command or a message
	PeersMax     uint32
	AttemptsMax  uint32 // how often a put or a recall is asked or offered before it fails
	Carries      uint32 // most bytes of chunks in a request for pages; 0: none
	Window       uint16 // requests in flight on one alloc lane, where the peer has as many; 0 is 1
	Wire         protocol.Limits
}

// Named is how peers know a page: the buffer that has it, and its place there. Each pool is a buffer of its own.
func (c *Config) Named(page effects.Page) (protocol.UUID, int64) {
	if c.Device != (protocol.UUID{}) && page.Index >= c.DeviceFrom {
		return c.Device, int64(page.Index - c.DeviceFrom)
	}
	return c.Buffer, int64(page.Index)
}
