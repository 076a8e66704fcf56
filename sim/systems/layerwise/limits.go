package layerwise

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A sender limits the requests that are pushed by layers at a time, the saves whose pages are held, and the chunks of a
// request, and drops a request of which nothing was received for RunTTL. The oracle of this file follows the requests and
// the saves of each sender by the outcomes of the commands. A command may be refused only if the limit that the reason
// names is reached.

// The checks of this file.
var (
	checkRunsMost    = oracle.NewCheck("S17", "requests that are pushed by layers at a time")
	checkRunsLeast   = oracle.NewCheck("S18", "requests refused although few are pushed by layers")
	checkRunInTime   = oracle.NewCheck("S17", "requests pushed by layers, kept for their time")
	checkRunOverdue  = oracle.NewCheck("S17", "requests pushed by layers whose time is over")
	checkSavesMost   = oracle.NewCheck("S17", "saves whose pages are held")
	checkSavesLeast  = oracle.NewCheck("S18", "saves refused although few pages are held")
	checkChunksMost  = oracle.NewCheck("S17", "chunks of a request that is pushed by layers")
	checkChunksLeast = oracle.NewCheck("S18", "saves refused although the request has few chunks")
)

// senderLimits holds the state of each sender.
type senderLimits struct {
	nodes map[oracle.Node]*senderTables
}

// senderTables records the requests and the saves of an incarnation of a sender.
type senderTables struct {
	runs map[int]*openRun // by job
	held map[effects.Ticket]heldSave
	// attached says that engines in processes of their own push layers. The end of such a process ends its requests.
	attached bool
}

// openRun is a request that has begun and is not known to have ended.
type openRun struct {
	activeAt effects.Time // of the last command that was accepted, by the clock of the sender
	frozen   effects.Duration
	finish   effects.Ticket // the Finish that the sender has received; 0: none
	// uncertain says that a Finish was refused, or ended the request with a code that a peer gave.
	uncertain bool
}

// heldSave is a Save or a Finish whose pages have not been returned.
type heldSave struct {
	pages    int
	isFinish bool
}

func (s *senderLimits) tablesOf(c *oracle.Call) *senderTables {
	if s.nodes == nil {
		s.nodes = map[oracle.Node]*senderTables{}
	}
	x := s.nodes[c.Node()]
	if x == nil {
		x = &senderTables{runs: map[int]*openRun{}, held: map[effects.Ticket]heldSave{}}
		s.nodes[c.Node()] = x
	}
	return x
}

// limitsOracle judges the limits and the times of the tables of senders.
var limitsOracle = oracle.New("limits of layers", "requests are limited as configured", func(l *oracle.Subscriptions[senderLimits]) {
	oracle.On(l, func(s *senderLimits, call *oracle.Call, e *effects.Command) {
		w := pd.ClusterOf(call)
		c := layerCommand(w, w.Nodes[call.Node()], e.Ticket)
		if c == nil || c.Kind != wantFinish && !c.Attached {
			return
		}
		x := s.tablesOf(call)
		if x.attached = x.attached || c.Attached; x.attached {
			return
		}
		if r := x.runs[c.Job]; r != nil && r.finish == 0 {
			r.finish = e.Ticket
			x.held[e.Ticket] = heldSave{len(c.Pages), true}
		}
	})
	oracle.On(l, func(s *senderLimits, call *oracle.Call, e *effects.Deliver) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if c := layerCommand(w, n, e.Ticket); c != nil && !s.tablesOf(call).attached {
			s.tablesOf(call).handleOutcome(call, w, n, e, c)
		}
	})
	oracle.On(l, func(s *senderLimits, call *oracle.Call, e *effects.Return) {
		if x := s.nodes[call.Node()]; x != nil {
			delete(x.held, e.Ticket)
		}
	})
	oracle.On(l, func(s *senderLimits, call *oracle.Call, e oracle.StepEnded) {
		x := s.nodes[call.Node()]
		if _, isTick := e.Event.(*effects.Tick); !isTick || x == nil || x.attached {
			return
		}
		w := pd.ClusterOf(call)
		if n := w.Nodes[call.Node()]; !n.Custom && !n.Busy {
			x.verifyCount(call, n)
		}
	})
	oracle.On(l, func(s *senderLimits, call *oracle.Call, _ oracle.IncarnationEnded) { delete(s.nodes, call.Node()) })
})

// isCertain reports whether a request cannot be over by its time, and mayBeOpen whether it need not be.
func (r *openRun) isCertain(call *oracle.Call, ttl effects.Duration) bool {
	return !r.uncertain && (r.finish != 0 || call.LocalTime() < r.activeAt.Add(ttl))
}

func (r *openRun) mayBeOpen(call *oracle.Call, ttl effects.Duration) bool {
	return r.finish != 0 || call.LocalTime() <= r.activeAt.Add(ttl+pd.Grace+call.FrozenTime()-r.frozen)
}

// count returns how many requests certainly are open, how many may be, and how many Finishes of requests that have ended
// hold pages.
func (x *senderTables) count(call *oracle.Call, ttl effects.Duration) (certain, possible, finishes int) {
	open := map[effects.Ticket]bool{}
	for _, r := range x.runs {
		if r.isCertain(call, ttl) {
			certain++
		}
		if r.mayBeOpen(call, ttl) {
			possible++
		}
		open[r.finish] = true
	}
	for t, h := range x.held {
		if h.isFinish && !open[t] {
			finishes++
		}
	}
	return certain, possible, finishes
}

// verifyCount checks that the machine has no more requests than may be in time.
func (x *senderTables) verifyCount(call *oracle.Call, n *world.Node) {
	_, possible, _ := x.count(call, pd.InfoOf(n).Cfg.RunTTL)
	if call.CountJudged(checkRunOverdue); pd.StatsOf(n).Layers > possible {
		call.FailCheck(checkRunOverdue, "node %d has %d requests that are pushed by layers, and the time of only %d is not over",
			n.AsSubject(), pd.StatsOf(n).Layers, possible)
	}
}

// handleOutcome judges the outcome of a command, and records what follows from it.
func (x *senderTables) handleOutcome(call *oracle.Call, w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	cfg := &pd.InfoOf(n).Cfg
	r := x.runs[c.Job]
	field := ""
	if e.Why != nil {
		field = e.Why.Field
	}
	unknown := e.Code == effects.NotFound && field == "Request" // A transfer may end with the same code.
	if r != nil && (r.finish == 0 || r.finish == e.Ticket && unknown) && c.Kind != wantBegin {
		x.verifyTime(call, w, n, c, r, unknown)
	}
	switch body := c.Body.(type) {
	case *ops.Begin:
		certain, possible, finishes := x.count(call, cfg.RunTTL)
		if e.Code == effects.OK {
			x.runs[c.Job] = &openRun{activeAt: call.LocalTime(), frozen: call.FrozenTime()}
			if call.CountJudged(checkRunsMost); certain+finishes >= int(cfg.RunsMax) {
				call.FailCheck(checkRunsMost, "node %d begins a request with %d open and %d that hold pages, and %d are allowed",
					n.AsSubject(), certain, finishes, cfg.RunsMax)
			}
		} else if e.Code == effects.TooMany && field == "layerwise.runs" {
			if call.CountJudged(checkRunsLeast); possible+finishes < int(cfg.RunsMax) {
				call.FailCheck(checkRunsLeast, "node %d refuses a request with %d open and %d that hold pages, and %d are allowed",
					n.AsSubject(), possible, finishes, cfg.RunsMax)
			}
		}
	case *ops.Save:
		x.handleSave(call, w, n, e, c, body)
	case *ops.Finish:
		if !e.Held {
			delete(x.held, e.Ticket)
		}
		if r != nil && r.finish == e.Ticket {
			if e.Code == effects.Invalid || e.Code == effects.Ended || e.Code == effects.Forbidden && e.Why.Stage == effects.StageCommand {
				r.finish, r.uncertain = 0, true
			} else {
				delete(x.runs, c.Job)
			}
		}
	case *ops.Preempt:
		if r != nil && e.Code == effects.OK {
			r.activeAt, r.frozen = call.LocalTime(), call.FrozenTime()
		}
	case *ops.Drop:
		if e.Code == effects.OK {
			delete(x.runs, c.Job)
		}
	}
}

// verifyTime checks that a request of which the engine gives a further command is known if and only if its time is not
// over.
func (x *senderTables) verifyTime(call *oracle.Call, w *pd.Cluster, n *world.Node, c *pd.Command, r *openRun, unknown bool) {
	ttl := pd.InfoOf(n).Cfg.RunTTL
	switch {
	case n.Draining || r.uncertain:
		call.CountVoid(checkRunInTime)
	case unknown:
		if call.CountJudged(checkRunInTime); call.LocalTime() < r.activeAt.Add(ttl) {
			call.FailCheck(checkRunInTime, "node %d does not know request %q, %d ns after the last command, and keeps requests for %d ns",
				n.AsSubject(), oracle.Request(w.Jobs[c.Job].Name), call.LocalTime().Sub(r.activeAt), ttl)
		}
		delete(x.runs, c.Job)
	default:
		if call.CountJudged(checkRunOverdue); !r.mayBeOpen(call, ttl) {
			call.FailCheck(checkRunOverdue, "node %d still knows request %q, %d ns after the last command, and keeps requests for %d ns",
				n.AsSubject(), oracle.Request(w.Jobs[c.Job].Name), call.LocalTime().Sub(r.activeAt), ttl)
		}
	}
}

// handleSave judges the outcome of a Save.
func (x *senderTables) handleSave(call *oracle.Call, w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command, body *ops.Save) {
	cfg, name := &pd.InfoOf(n).Cfg, oracle.Request(w.Jobs[c.Job].Name)
	if r := x.runs[c.Job]; r != nil && e.Code == effects.OK {
		r.activeAt, r.frozen = call.LocalTime(), call.FrozenTime()
	}
	field := ""
	if e.Why != nil {
		field = e.Why.Field
	}
	script := drawPrefill(w, &w.Jobs[c.Job])
	chunks := int(body.First) + len(body.Pages) - script.skipTokens/chunkTokens
	switch {
	case e.Code == effects.OK:
		if call.CountJudged(checkChunksMost); chunks > int(cfg.ChunksMax) {
			call.FailCheck(checkChunksMost, "node %d accepts %d chunks of request %s, and %d are allowed", n.AsSubject(), chunks,
				oracle.Request(name),
				cfg.ChunksMax)
			return
		}
		if !e.Held {
			return
		}
		x.held[e.Ticket] = heldSave{pages: len(c.Pages)}
		if call.CountJudged(checkSavesMost); len(x.held) > int(cfg.SavesMax) {
			call.FailCheck(checkSavesMost, "node %d holds the pages of %d saves, and %d are allowed", n.AsSubject(), len(x.held),
				cfg.SavesMax)
		}
	case e.Code == effects.TooLarge && field == "First":
		if call.CountJudged(checkChunksLeast); chunks <= int(cfg.ChunksMax) {
			call.FailCheck(checkChunksLeast, "node %d refuses %d chunks of request %s, and %d are allowed", n.AsSubject(), chunks,
				oracle.Request(name),
				cfg.ChunksMax)
		}
	case e.Code == effects.TooMany && field == "layerwise.saves":
		pages := len(c.Pages)
		for _, h := range x.held {
			pages += h.pages
		}
		if call.CountJudged(checkSavesLeast); len(x.held) < int(cfg.SavesMax) && pages <= int(cfg.Pages) {
			call.FailCheck(checkSavesLeast, "node %d refuses a save with %d saves and %d pages held, and %d saves and %d pages are allowed",
				n.AsSubject(), len(x.held), pages-len(c.Pages), cfg.SavesMax, cfg.Pages)
		}
	}
}
