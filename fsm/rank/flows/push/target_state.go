package push

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A TargetState is where something of a target stands, for those who count what was tried. It decides nothing.
type TargetState uint16

// The states of a grant.
const (
	GrantOpen TargetState = iota
	GrantQuarantined
)

// TargetStateNames are their names, in their order.
func TargetStateNames() []string { return []string{"grant open", "grant quarantined"} }

// State is that of the grant that a Ref is for.
func (t *Target) State(r *flow.Rooms, ref kernel.Ref) uint16 {
	if r.Landings.At(ref.Subject.Slot()).Revoking {
		return uint16(GrantQuarantined)
	}
	return uint16(GrantOpen)
}

// Tables shows nothing: what a target granted lies in the rooms.
func (t *Target) Tables(table.Visit) {}
