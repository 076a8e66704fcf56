package pd

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// Work is the work of the engines in a cluster: the jobs, and the commands that engines gave for the jobs.
type Work struct {
	Jobs            []Job
	Commands        []Command                        `snap:"bag"` // indexed by ticket-1
	OpenCommands    world.ActiveList[effects.Ticket] `snap:"skip"`
	bodies          commandBodies                    `snap:"scratch"`
	drainCounts     [plan.CommandKindLimit]uint32    `snap:"skip"` // number of commands that belong to no job
	UnfinishedCount int                              // number of engine commands with an outstanding Deliver or Return
}

// commandBodies holds the memory of command bodies, which the next run uses again.
type commandBodies struct {
	reserves world.Arena[ops.Reserve]
	puts     world.Arena[ops.Put]
	releases world.Arena[ops.Release]
	gets     world.Arena[ops.Get]
	contains world.Arena[ops.Contains]
	fetches  world.Arena[ops.Fetch]
	unpins   world.Arena[ops.Unpin]
}

// reset makes the memory of all bodies free for the next run.
func (s *commandBodies) reset() {
	s.reserves.Reset()
	s.puts.Reset()
	s.releases.Reset()
	s.gets.Reset()
	s.contains.Reset()
	s.fetches.Reset()
	s.unpins.Reset()
}

// forNextRun returns a Work without jobs and commands that uses the memory of w again.
func (w *Work) forNextRun() Work {
	w.bodies.reset()
	return Work{bodies: w.bodies, Jobs: w.Jobs[:0], Commands: w.Commands[:0], OpenCommands: w.OpenCommands.Recycle()}
}

// CompactLists runs between deliveries. CompactLists removes commands that are over and hold no memory from the list of
// unfinished commands.
func (w *Work) CompactLists() {
	w.OpenCommands.Compact(func(t effects.Ticket) bool { c := &w.Commands[t-1]; return c.Finished && !c.HoldsMemory })
}

// addJob adds a job without chunks. The job uses the memory of a job of an earlier run if there is one.
func (w *Work) addJob() *Job {
	if len(w.Jobs) == cap(w.Jobs) {
		w.Jobs = append(w.Jobs, Job{Index: len(w.Jobs)})
		return &w.Jobs[len(w.Jobs)-1]
	}
	w.Jobs = w.Jobs[:len(w.Jobs)+1]
	j := &w.Jobs[len(w.Jobs)-1]
	*j = Job{Index: len(w.Jobs) - 1, Name: j.Name[:0], Batches: j.Batches[:0], Keys: j.Keys[:0], KeyNumbers: j.KeyNumbers[:0],
		ChunkNumbers: j.ChunkNumbers[:0], ChunkKeys: j.ChunkKeys[:0]}
	return j
}

// NewJob adds a job with the given request number, sender and receiver, and without chunks.
func (w *Work) NewJob(request uint32, from, to int32) *Job {
	j := w.addJob()
	j.Name = AppendNumber(append(j.Name, 'r'), int(request))
	j.requestNumber, j.Sender, j.Receiver = request, from, to
	return j
}

// JobIndex returns the index of the job with the given request name, or len(w.Jobs) if there is no such job.
func (w *Work) JobIndex(name []byte) uint64 {
	// Drawn plans number the requests by their place, so the search looks there first.
	index := 0
	for _, c := range name[min(1, len(name)):] {
		index = min(index*10+int(c-'0'), len(w.Jobs))
	}
	if index < len(w.Jobs) && bytes.Equal(w.Jobs[index].Name, name) {
		return uint64(index)
	}
	for i := range w.Jobs {
		if bytes.Equal(w.Jobs[i].Name, name) {
			return uint64(i)
		}
	}
	return uint64(len(w.Jobs))
}

// PendingCommands returns the number of commands with an outstanding Deliver or Return.
func (w *Work) PendingCommands() int { return w.UnfinishedCount }

// AddCommand appends c to the commands and returns its ticket.
func (w *Work) AddCommand(c Command) effects.Ticket {
	w.Commands = append(w.Commands, c)
	t := effects.Ticket(len(w.Commands))
	w.OpenCommands.Add(t)
	return t
}

// CommandOf returns the command with ticket t if the present incarnation of n received it, and nil otherwise.
func (w *Work) CommandOf(n *world.Node, t effects.Ticket) *Command {
	if t == 0 || uint64(t) > uint64(len(w.Commands)) {
		return nil
	}
	if c := &w.Commands[t-1]; c.Node == n.ID && c.Incarnation == n.Incarnation {
		return c
	}
	return nil
}

// PutOf returns the newest put of a page that the given Reserve delivered, or 0 if there is none.
func (w *Work) PutOf(reserve *Command, page effects.Page) effects.Ticket {
	j, b := &w.Jobs[reserve.Job], reserve.Batch
	if j.sharesReserve {
		at := slices.IndexFunc(reserve.Pages, func(p effects.Page) bool { return p.Index == page.Index })
		b = slices.IndexFunc(j.Batches, func(b Batch) bool { return b.From <= at && at < b.To })
	}
	if b < 0 || b >= len(j.Batches) {
		return 0
	}
	return j.Batches[b].Put
}

// HandleObserve handles the report of a machine that a put was accepted: the put counts for its request until the put
// has ended.
func (w *Work) HandleObserve(_ *world.Node, e *effects.Observe) {
	if e.Fact != effects.FactPutEnded {
		return
	}
	if c := &w.Commands[e.ID-1]; c.Kind == plan.CommandPut {
		c.Accepted = true
		w.Jobs[c.Job].Batches[c.Batch].Accepted = true
	}
}

// SteppedNode returns the node at which d makes the machine take a step. For actions of engines and of the proxy, that
// is the node that receives the resulting command.
func (w *Work) SteppedNode(d *world.Delivery) int32 {
	switch d.Kind {
	case world.KindStartJob:
		return w.Jobs[d.A].Sender
	case world.KindProxyPost:
		if d.B < uint64(len(w.Jobs)) {
			return w.Jobs[d.B].Receiver
		}
		return plan.NoNode
	default:
		return d.Node
	}
}

// CommandCount returns the number of commands that engines gave.
func (w *Work) CommandCount() int { return len(w.Commands) }

// CommandKindName returns the kind of the command with ticket t.
func (w *Work) CommandKindName(t effects.Ticket) string { return w.Commands[t-1].Kind.String() }

// TicketName returns the name of the command with ticket t, which is the same in every history.
func (w *Work) TicketName(t effects.Ticket) uint64 { return uint64(w.Commands[t-1].Name) }

// RequestName returns the name that engines use for a job.
func (w *Work) RequestName(job uint64) []byte {
	if job >= uint64(len(w.Jobs)) {
		return nil
	}
	return w.Jobs[job].Name
}

// KeysOfRequest returns the key numbers of the job with the given request name.
func (w *Work) KeysOfRequest(request []byte) []uint32 {
	i := w.JobIndex(request)
	if i >= uint64(len(w.Jobs)) {
		return nil
	}
	return w.Jobs[i].KeyNumbers
}

// FindRequest returns the node of the command that the subject s of a draw denotes, and the request of the command.
func (w *Work) FindRequest(s plan.Subject) (int32, []byte) {
	name := AppendNumber([]byte("r"), int(s>>32&0xFFFFFF))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if !bytes.Equal(j.Name, name) {
			continue
		}
		if s.CommandKind().IsOfSender() {
			return j.Sender, j.Name
		}
		return j.Receiver, j.Name
	}
	return trace.NoNode, nil
}
