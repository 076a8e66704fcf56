package p2p

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// What engines in processes of their own need to share as those within do.

// The kinds of their commands: to have chunks brought, to hand pages over, to share them, to take them back.
var (
	Brings    = want
	Stores    = keep
	Shares    = lets
	Withdraws = backs
)

// Delayed says whether what is brought for a job stays where it is until it is fetched.
func Delayed(n *world.Node, j *pd.Job) bool { return mode(n, j) == ops.Delayed }

// Patience is how long it may take to have shared pages back: readers of this node may hold them, too.
func Patience(n *world.Node) effects.Duration {
	r := pd.Its(n).Cfg
	return 10*(r.ShareTTL+r.ClaimTTL) + pd.HoardedMost
}
