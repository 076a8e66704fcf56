package layerwise

import (
	"maps"
	"math"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The batches of all requests share slots. A request that finds none waits until one is free, and nothing but the end of
// another batch tells the machine that. The oracle of this file demands that a request of which nothing was sent uses a
// free slot: it measures how long a finished request could have been sent, because a slot and the connection were free.

var checkFreeSlot = oracle.NewCheck("L7", "requests that wait although a batch can be sent")

// slotState holds the state of each sender.
type slotState struct {
	nodes   map[oracle.Node]*slotUse
	request protocol.AllocRequest `snap:"scratch"`
}

// slotUse records which requests of a sender wait for their first batch, and whether one can be sent.
type slotUse struct {
	waiting map[int]*unsentRun    // by job
	opening map[effects.Corr]bool // connections that are being made, and imports
	asked   map[effects.Corr]bool // allocation requests without a reply
	linksUp map[effects.Incarnation]bool
	canSend bool         // since the previous step
	at      effects.Time // when the previous step ended
	frozen  effects.Duration
}

// unsentRun is a request of which nothing was sent in its epoch.
type unsentRun struct {
	finish effects.Ticket   // the Finish that the sender has received; 0: none
	idle   effects.Duration // how long a batch could have been sent since
}

func (s *slotState) useOf(c *oracle.Call) *slotUse {
	if s.nodes == nil {
		s.nodes = map[oracle.Node]*slotUse{}
	}
	x := s.nodes[c.Node()]
	if x == nil {
		x = &slotUse{waiting: map[int]*unsentRun{}, opening: map[effects.Corr]bool{}, asked: map[effects.Corr]bool{},
			linksUp: map[effects.Incarnation]bool{}}
		s.nodes[c.Node()] = x
	}
	return x
}

// slotsOracle judges how long requests wait for a slot.
var slotsOracle = oracle.New("layers use slots", "a sender with layers and a free slot sends them", func(
	l *oracle.Subscriptions[slotState],
) {
	ends := func(s *slotState, c *oracle.Call, corr effects.Corr) {
		delete(s.useOf(c).opening, corr)
		delete(s.useOf(c).asked, corr)
	}
	oracle.On(l, func(s *slotState, c *oracle.Call, e *effects.Open) { s.useOf(c).opening[e.Corr] = true })
	oracle.On(l, func(s *slotState, c *oracle.Call, e *effects.Opened) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *slotState, c *oracle.Call, e *effects.Import) { s.useOf(c).opening[e.Corr] = true })
	oracle.On(l, func(s *slotState, c *oracle.Call, e *effects.Imported) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *slotState, c *oracle.Call, e *effects.Replied) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *slotState, c *oracle.Call, e *effects.Unanswered) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *slotState, c *oracle.Call, e *effects.Send) {
		w := pd.ClusterOf(c)
		if s.request.Decode(e.Body, &pd.WireLimits) != nil || len(s.request.Keys) == 0 {
			return
		}
		s.useOf(c).asked[e.Corr] = true
		if job := w.JobIndex(s.request.Ext.Request); job < uint64(len(w.Jobs)) {
			delete(s.useOf(c).waiting, int(job))
		}
	})
	oracle.On(l, func(s *slotState, c *oracle.Call, e *effects.Observe) {
		if x := s.useOf(c); e.Fact == effects.FactLinkUp {
			x.linksUp[e.Peer] = true
		} else if e.Fact == effects.FactLinkDown {
			delete(x.linksUp, e.Peer)
		}
	})
	oracle.On(l, func(s *slotState, c *oracle.Call, e *effects.Command) {
		w := pd.ClusterOf(c)
		if o := layerCommand(w, w.Nodes[c.Node()], e.Ticket); o != nil && o.Kind == wantFinish {
			x := s.useOf(c)
			if x.measure(c); x.waiting[o.Job] != nil && x.waiting[o.Job].finish == 0 {
				x.waiting[o.Job].finish = e.Ticket
			}
		}
	})
	oracle.On(l, func(s *slotState, c *oracle.Call, e *effects.Deliver) {
		w := pd.ClusterOf(c)
		o := layerCommand(w, w.Nodes[c.Node()], e.Ticket)
		if o == nil {
			return
		}
		x := s.useOf(c)
		switch r := x.waiting[o.Job]; {
		case e.Code == effects.OK && (o.Kind == wantBegin || isPreempt(o)):
			x.waiting[o.Job] = &unsentRun{}
		case isDrop(o) || o.Kind == wantFinish && r != nil && r.finish == e.Ticket:
			if r != nil && o.Kind == wantFinish {
				s.verifyIdle(c, w.Nodes[c.Node()], o.Job, r)
			}
			delete(x.waiting, o.Job)
		}
	})
	oracle.On(l, func(s *slotState, c *oracle.Call, _ oracle.StepEnded) {
		w := pd.ClusterOf(c)
		n := w.Nodes[c.Node()]
		if x := s.nodes[c.Node()]; x != nil && !n.Custom && n.Up {
			x.measure(c)
			for _, job := range slices.Sorted(maps.Keys(x.waiting)) {
				s.verifyIdle(c, n, job, x.waiting[job])
			}
			cfg := &pd.InfoOf(n).Cfg
			x.canSend = !n.Busy && !n.Draining && len(x.opening) == 0 && len(x.asked) < smallestWindow(w) &&
				len(x.linksUp) == countReceivers(w) && pd.StatsOf(n).Puts < int(cfg.RunsMax*cfg.BatchesMax)
		}
	})
	oracle.On(l, func(s *slotState, c *oracle.Call, _ oracle.IncarnationEnded) { delete(s.nodes, c.Node()) })
})

// measure adds the time since the previous step to the requests that could have been sent.
func (x *slotUse) measure(c *oracle.Call) {
	now, frozen := c.Now(), c.FrozenTime()
	if took := now.Sub(x.at) - (frozen - x.frozen); x.canSend && took > 0 {
		for _, r := range x.waiting {
			if r.finish != 0 {
				r.idle += took
			}
		}
	}
	x.at, x.frozen = now, frozen
}

// verifyIdle checks how long a request could have been sent. A batch that the sender ended itself, because the receiver
// refused others, is tried again after an eighth of AllocTimeout.
func (s *slotState) verifyIdle(c *oracle.Call, n *world.Node, job int, r *unsentRun) {
	if r.finish == 0 {
		return
	}
	if c.CountJudged(checkFreeSlot); r.idle > pd.InfoOf(n).Cfg.AllocTimeout/4+pd.Grace {
		c.FailCheck(checkFreeSlot, "node %d sends nothing of request %q, although a batch could have been sent for %d ns",
			n.AsSubject(), oracle.Request(pd.ClusterOf(c).Jobs[job].Name), r.idle)
	}
}

// smallestWindow returns how many allocation requests certainly may be in flight to a receiver.
func smallestWindow(w *pd.Cluster) int {
	window := math.MaxInt
	for _, n := range w.Nodes {
		if !n.Custom {
			window = min(window, int(pd.InfoOf(n).Cfg.Window))
		}
	}
	return window
}

// countReceivers returns the number of nodes that receive.
func countReceivers(w *pd.Cluster) (count int) {
	for _, n := range w.Nodes {
		if n.IsReceiver() {
			count++
		}
	}
	return count
}
