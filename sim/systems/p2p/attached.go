package p2p

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The parts of this package that attached engines (package agent) use.

// The kinds of the commands that bring chunks, store pages in the cache, share pages, and withdraw shared pages.
var (
	WantBring    = wantBring
	WantStore    = wantStore
	WantShare    = wantShare
	WantWithdraw = wantWithdraw
)

// IsDelayed reports whether the chunks that are brought for a job stay at the owner until the receiver fetches them.
func IsDelayed(n *world.Node, j *pd.Job) bool { return transferMode(n, j) == ops.Delayed }

// WithdrawTimeout returns the longest time that a withdraw may take. Readers on the same node may hold the pages as
// well.
func WithdrawTimeout(n *world.Node) effects.Duration {
	r := pd.InfoOf(n).Cfg
	return 10*(r.ShareTTL+r.ClaimTTL) + pd.HoardTimeMax
}
