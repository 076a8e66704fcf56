package pd

import (
	"reflect"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// The methods that the explorer needs from a cluster. See [explore.Run].

// BaseWorld returns the world.
func (w *Cluster) BaseWorld() *world.World { return &w.World }

// SystemTypes returns the types of engines and flows that the explorer cannot see in the world.
func (w *Cluster) SystemTypes() explore.SystemTypes {
	attached := []reflect.Type{}
	for _, f := range w.Flows {
		if f.Processes != nil {
			attached = append(attached, f.Processes.StateType)
		}
	}
	return explore.SystemTypes{
		Implementations: map[reflect.Type][]reflect.Type{reflect.TypeFor[AttachedState](): attached},
		Bags: map[reflect.Type]func(*world.World, *snapshot.Hasher, unsafe.Pointer){
			reflect.TypeFor[[]Command](): hashCommands,
		},
	}
}

// FetchNow makes the decode engine read a request's chunks with the longest wait.
func (w *Cluster) FetchNow(d *world.Delivery) {
	job := int(d.A)
	j := &w.Jobs[job]
	n := w.Nodes[j.Receiver]
	if flow := w.Flows.processFlowOf(j); flow != nil {
		flow.Processes.FetchJob(w, n, j)
		return
	}
	if n.KeepsOffers && !j.Take {
		j.FetchChunks(w, int(d.C), d.B != 0)
		return
	}
	w.GiveCommand(n, Command{Kind: plan.CommandGet, Job: job, Body: &ops.Get{Request: j.Name, Keys: j.requestedKeys(), Layered: j.Layers > 0,
		Wait: InfoOf(n).Cfg.GetWaitMax}}, InfoOf(n).Cfg.GetWaitMax)
}

// AbortableAt returns the node with the engine that may abort the command t, or plan.NoNode if the command cannot be
// aborted.
func (w *Cluster) AbortableAt(t effects.Ticket) int32 {
	c := &w.Commands[t-1]
	kind := w.Flows.kindOf(c)
	abortable := c.Kind == plan.CommandReserve || c.Kind == plan.CommandPut || c.Kind == plan.CommandGet || c.Kind == plan.CommandFetch ||
		kind != nil && kind.MayHoldMemory
	if !abortable || w.Nodes[c.Node].Custom || c.Finished || !w.IsRunning(c.Node, c.Incarnation) {
		return plan.NoNode
	}
	return c.Node
}

// corrsOffset is the offset of a rank's table of outstanding operations, which is a private field.
var corrsOffset = snapshot.OffsetOf[kernel.Corrs](reflect.TypeFor[rank.Rank](), "corrs")

// HashOutstanding hashes what the rank of n uses the Corr c for.
func (w *Cluster) HashOutstanding(h *snapshot.Hasher, n *world.Node, c effects.Corr) {
	ref, ok := (*kernel.Corrs)(unsafe.Add(unsafe.Pointer(rankOf(n)), corrsOffset)).Peek(c)
	if !ok {
		h.Word(2)
		return
	}
	h.Word(uint64(ref.Owner)<<40 | uint64(ref.Kind)<<32 | uint64(ref.Attempt))
	h.Word(uint64(ref.Subject))
}

// hashCommands hashes the commands. For a command that is over, it hashes only how the command ended, because the
// consequences are part of jobs and pages.
func hashCommands(w *world.World, h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]Command)(p)
	explore.HashBag(h, all, func(i int, element *snapshot.Hasher) bool {
		c := &all[i]
		if !w.IsRunning(c.Node, c.Incarnation) {
			return false
		}
		if c.Finished && !c.HoldsMemory {
			element.Word(uint64(c.Name))
			element.Word(uint64(c.Code))
			element.Value(reflect.TypeFor[bool](), unsafe.Pointer(&c.Released))
			element.Value(reflect.TypeFor[[]effects.Page](), unsafe.Pointer(&c.Pages))
			return true
		}
		element.Value(reflect.TypeFor[Command](), unsafe.Pointer(c))
		return true
	})
}
