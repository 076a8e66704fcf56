package push

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A TargetState is the state of a grant, for tools that count which cases were covered. No decision depends on
// it.
type TargetState uint16

// The states of a grant.
const (
	GrantOpen TargetState = iota
	GrantQuarantined
)

// TargetStateNames returns the names of the states, in order.
func TargetStateNames() []string { return []string{"grant open", "grant quarantined"} }

// RowState returns the state of the grant that ref names.
func (t *Target) RowState(r *flow.Rooms, ref kernel.Ref) uint16 {
	if r.Landings.At(ref.Subject.Slot()).Revoking {
		return uint16(GrantQuarantined)
	}
	return uint16(GrantOpen)
}

// VisitTables visits nothing: what a Target granted is in the shared tables.
func (t *Target) VisitTables(table.VisitFunc) {}
