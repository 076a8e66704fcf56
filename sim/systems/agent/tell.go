package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	ops "github.com/kvferry/kvferry/fsm/pd/end"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine may say how a job ended at its sender. What waits for it at the receiver ends then, and what asks later
// does not wait.

// tells is said of a job whose sender's engine says how it ended.
var tells = plan.NewWord(plan.Word{Name: "tells", Job: func(_ *plan.Plan, j *plan.Job) string {
	if !j.Said[word] {
		return "it is for the engine of a process of its own; leave it out, or set agent"
	}
	return ""
}})

var (
	checkTold   = oracle.NewCheck("L9", "gets that wait as their sender says that nothing more comes")
	checkToldOf = oracle.NewCheck("L9", "gets of requests whose sender said before that nothing more comes")
)

// A confirmed is the end of a job that its receiver has confirmed.
type confirmed struct {
	at   int64  `snap:"instant"`
	life uint32 // of the receiver
	step uint64 // of its machine, at the most
}

// tell has an engine say how its job ended, once, and goes on without waiting for that.
func (e *engineProcess) tell(t *task, code effects.Code) {
	if !e.a.w.Jobs[t.job].Said[tells] {
		return
	}
	if code == effects.Failed {
		code = effects.Refused // A rank that has failed says nothing.
	}
	e.ask(protocol.EngineCall{Code: uint32(code), Reason: []byte("drawn")}, protocol.CallEnd, t.job, 0)
}

// tellEnd has the rank tell the receiver of a job.
func (h *host) tellEnd(x *work, b *protocol.EngineCall) bool {
	if !h.n.Sends() {
		return false
	}
	w, cfg := h.a.w, &pd.Its(h.n).Cfg
	j := &w.Jobs[x.job]
	r := w.Nodes[j.Receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	h.give(x, pd.Command{Want: pd.WantEnd, Job: x.job, Body: &ops.End{
		Request: j.Name, Peer: engine.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port},
		Code: effects.Code(b.Code), Reason: b.Reason,
	}}, cfg.PutTimeout)
	return true
}

// few says whether a node remembers so few requests that others take their place.
func few(n *world.Node) bool {
	most := pd.Its(n).Cfg.RequestsMax
	return most != 0 && most < 64
}

// confirms judges the receiver of a job whose end it has confirmed: nobody waits there for more of it. It was put by
// the life that says so, so its receiver knows no other one that sends it; and it remembers as many as it is to.
func (a *all) confirms(n *world.Node, c *pd.Command, code effects.Code) {
	w := a.w
	j := &w.Jobs[c.Job]
	r := w.Nodes[j.Receiver]
	if code != effects.OK && code != effects.NotSent || !r.Up || few(r) || j.Batches[0].Put == 0 ||
		w.Commands[j.Batches[0].Put-1].Life != c.Life || j.Batches[0].Life != r.Life {
		return
	}
	a.ended[c.Job] = confirmed{at: w.Now, life: r.Life, step: r.Steps}
	if r.Busy || r.Draining { // It goes on in the next step.
		return
	}
	pd.Judged(w, checkTold)
	for i := range w.Commands {
		g := &w.Commands[i]
		if g.Want == plan.WantGet && g.Job == c.Job && g.Node == r.ID && g.Life == r.Life && !g.Over && g.Due != 0 {
			w.Fail(checkTold.Property(), "node %d lets ticket %d (get) wait, although it has confirmed to node %d that nothing "+
				"more comes of its request", r.It(), oracle.Ticket(effects.Ticket(i+1)), n.It())
			return
		}
	}
}

// inTime judges a get that has ended: it did not wait if its sender had said before that nothing more comes.
func (a *all) inTime(n *world.Node, c *pd.Command) {
	w := a.w
	was, told := a.ended[c.Job]
	if !told || was.life != n.Life || c.Node != w.Nodes[w.Jobs[c.Job].Receiver].ID || c.Due == 0 || c.Step <= was.step ||
		w.Now-was.at > int64(pd.Its(n).Cfg.ClaimTTL) {
		return
	}
	if pd.Judged(w, checkToldOf); c.Step != n.Steps {
		w.Fail(checkToldOf.Property(), "node %d had a get wait, although its sender said before that nothing more comes",
			n.It())
	}
}
