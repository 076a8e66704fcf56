package layerwise

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

var checkIdle = oracle.NewCheck("L7", "requests that expire, with something under way")

// idle holds the pending work and the links of each sender.
type idle struct {
	nodes map[oracle.Node]*waits
}

type waits struct {
	under  map[effects.Corr]bool // sends, transfers, opens and imports in progress
	up     map[effects.Incarnation]bool
	nobody bool // at the last tick there was no event to process and no pending work, and all links were up
}

func (s *idle) of(c *oracle.Call) *waits {
	if s.nodes == nil {
		s.nodes = map[oracle.Node]*waits{}
	}
	x := s.nodes[c.Node()]
	if x == nil {
		x = &waits{under: map[effects.Corr]bool{}, up: map[effects.Incarnation]bool{}}
		s.nodes[c.Node()] = x
	}
	return x
}

// notIdle checks requests that expire: a sender with a link to the receiver must not let a request expire while nothing
// is in progress that could send the layers.
var notIdle = oracle.Of("layers sent", "who has layers to send and a link sends them", func(l *oracle.Listen[idle]) {
	begins := func(s *idle, c *oracle.Call, corr effects.Corr) { s.of(c).under[corr] = true }
	ends := func(s *idle, c *oracle.Call, corr effects.Corr) {
		delete(s.of(c).under, corr)
		s.of(c).nobody = false
	}
	other[*effects.Command](l)
	other[*effects.ConnLost](l)
	other[*effects.SendDone](l)
	other[*effects.LinkLost](l)
	oracle.On(l, func(s *idle, c *oracle.Call, e *effects.Send) { begins(s, c, e.Corr) })
	oracle.On(l, func(s *idle, c *oracle.Call, e *effects.Open) { begins(s, c, e.Corr) })
	oracle.On(l, func(s *idle, c *oracle.Call, e *effects.Import) { begins(s, c, e.Corr) })
	oracle.On(l, func(s *idle, c *oracle.Call, e *effects.Transfer) { begins(s, c, e.Corr) })
	oracle.On(l, func(s *idle, c *oracle.Call, e *effects.Replied) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *idle, c *oracle.Call, e *effects.Unanswered) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *idle, c *oracle.Call, e *effects.Opened) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *idle, c *oracle.Call, e *effects.Imported) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *idle, c *oracle.Call, e *effects.Settled) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *idle, c *oracle.Call, e *effects.TransferDone) {
		if s.of(c).nobody = false; e.Settled {
			ends(s, c, e.Corr)
		}
	})
	oracle.On(l, func(s *idle, c *oracle.Call, e *effects.Observe) {
		if x := s.of(c); e.Fact == effects.FactLinkUp {
			x.up[e.Peer] = true
		} else if e.Fact == effects.FactLinkDown {
			delete(x.up, e.Peer)
		}
	})
	oracle.On(l, func(s *idle, c *oracle.Call, _ *effects.Tick) {
		w, x := pd.In(c), s.of(c)
		receivers := 0
		for _, n := range w.Nodes {
			if n.Receives() {
				receivers++
			}
		}
		x.nobody = !w.Nodes[c.Node()].Busy && len(x.under) == 0 && len(x.up) == receivers
	})
	oracle.On(l, func(s *idle, c *oracle.Call, e *effects.Deliver) {
		w := pd.In(c)
		n := w.Nodes[c.Node()]
		o := commandOf(w, n, e.Ticket)
		if o == nil || o.Want != finishes || e.Code != effects.Expired {
			return
		}
		if c.Judged(checkIdle); s.of(c).nobody {
			c.Breaks(checkIdle, "node %d has let request %q wait until its time was over, with a link and nothing under way",
				n.It(), oracle.Request(w.Jobs[o.Job].Name))
		}
	})
	oracle.On(l, func(s *idle, c *oracle.Call, _ oracle.Down) { delete(s.nodes, c.Node()) })
})

// other makes an event clear the mark of the last tick.
func other[E effects.Event](l *oracle.Listen[idle]) {
	oracle.On(l, func(s *idle, c *oracle.Call, _ E) { s.of(c).nobody = false })
}
