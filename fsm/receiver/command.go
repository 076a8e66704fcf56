// Package receiver has the names by which the simulator knows what is elsewhere now.
package receiver

import (
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/rank"
)

// The commands of engines that read, and what stands behind them.
type (
	Get      = engine.Get
	Fetch    = engine.Fetch
	Contains = engine.Contains
	Release  = engine.Unpin
	Abandon  = engine.Abandon
	GiveUp   = engine.GiveUp
	Receiver = flow.Rooms
)

// What is shared out between classes, as rank.Shares has it.
const (
	SharedAsks = iota
	SharedWords
	SharedHosts
	SharedOffers
	SharedPlaces
	SharedBusy
	SharedClaims
	Shared
)

const _ = uint(Shared-rank.Shared) + uint(rank.Shared-Shared)
