package kernel

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// An Operation describes something in progress to operators. No decision depends on it.
type Operation struct {
	Kind      string              // such as "put"
	Stage     string              // what the operation does or waits for
	Outbound  table.Handle        // the outbound peer; zero: there is none
	Class     int                 // the fairness class of an inbound peer; 0: there is none
	Peer      effects.Incarnation // zero: no peer, or one that is not known yet
	Addr      effects.Addr        // at which an outbound peer takes the operation; zero: there is none
	Chunks    int
	Pages     int          // that belong to the operation
	FromPeer  int          // pages of the peer that this node may write or read
	Since     effects.Time // when the operation began
	Until     effects.Time // when it ends at the latest; zero: that is not known
	Delivered bool         // the engine has the outcome, and the peer or the memory is not finished with
}
