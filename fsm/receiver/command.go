package receiver

import (
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/flow"
)

// The commands of engines that read, by the names that drivers know.
type (
	Get      = engine.Get
	Fetch    = engine.Fetch
	Contains = engine.Contains
	Release  = engine.Unpin
	Abandon  = engine.Abandon
	GiveUp   = engine.GiveUp
)

// Config is the part of the rank's configuration that the receiver needs.
type Config = flow.RoomsConfig
