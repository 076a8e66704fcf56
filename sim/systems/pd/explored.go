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

// Whole returns the world.
func (w *Cluster) Whole() *world.World { return &w.World }

// Kinds returns the types of engines and flows that the explorer cannot see in the world.
func (w *Cluster) Kinds() explore.Kinds {
	attached := []reflect.Type{}
	for _, f := range w.Flows {
		if f.Processes != nil {
			attached = append(attached, f.Processes.Keeps)
		}
	}
	return explore.Kinds{
		Others: map[reflect.Type][]reflect.Type{reflect.TypeFor[Attached](): attached},
		Bags: map[reflect.Type]func(*world.World, *snapshot.Hasher, unsafe.Pointer){
			reflect.TypeFor[[]Command](): hashCommands,
		},
	}
}

// Fetches makes the decode engine read a request's chunks with the longest wait.
func (w *Cluster) Fetches(d *world.Delivery) {
	job := int(d.A)
	j := &w.Jobs[job]
	n := w.Nodes[j.Receiver]
	if flow := w.Flows.attaching(j); flow != nil {
		flow.Processes.Fetch(w, n, j)
		return
	}
	if n.Delays && !j.Take {
		j.FetchChunks(w, int(d.C), d.B != 0)
		return
	}
	w.Give(n, Command{Want: plan.WantGet, Job: job, Body: &ops.Get{Request: j.Name, Keys: j.asked(), Layered: j.Layers > 0,
		Wait: Its(n).Cfg.GetWaitMax}}, Its(n).Cfg.GetWaitMax)
}

// Abortable returns the node with the engine that may abort the command t, or plan.Nobody if the command cannot be
// aborted.
func (w *Cluster) Abortable(t effects.Ticket) int32 {
	c := &w.Commands[t-1]
	of := w.Flows.of(c)
	may := c.Want == plan.WantReserve || c.Want == plan.WantPut || c.Want == plan.WantGet || c.Want == plan.WantFetch ||
		of != nil && of.Holds
	if !may || w.Nodes[c.Node].User || c.Over || !w.Lives(c.Node, c.Life) {
		return plan.Nobody
	}
	return c.Node
}

// outstandingAt is the offset of a rank's table of outstanding operations, which is a private field.
var outstandingAt = snapshot.OffsetOf[kernel.Corrs](reflect.TypeFor[rank.Rank](), "corrs")

// Outstanding hashes what the rank of n uses the Corr c for.
func (w *Cluster) Outstanding(h *snapshot.Hasher, n *world.Node, c effects.Corr) {
	ref, ok := (*kernel.Corrs)(unsafe.Add(unsafe.Pointer(rankOf(n)), outstandingAt)).Peek(c)
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
	explore.Bag(h, all, func(i int, one *snapshot.Hasher) bool {
		c := &all[i]
		if !w.Lives(c.Node, c.Life) {
			return false
		}
		if c.Over && !c.Held {
			one.Word(uint64(c.Name))
			one.Word(uint64(c.Code))
			one.Value(reflect.TypeFor[bool](), unsafe.Pointer(&c.Released))
			one.Value(reflect.TypeFor[[]effects.Page](), unsafe.Pointer(&c.Pages))
			return true
		}
		one.Value(reflect.TypeFor[Command](), unsafe.Pointer(c))
		return true
	})
}
