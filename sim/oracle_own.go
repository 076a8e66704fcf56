package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Users' oracles: what they are told of a world, and what they may ask it.

// judge begins the oracles of a system.
func (w *world) judge(s *System) {
	all := s.all()
	for i := range all {
		for _, o := range all[i].Oracles {
			w.judges = append(w.judges, o.Begin(all[i].Name))
		}
	}
}

// judged is a world as oracles know it.
type judged struct{ w *world }

func (j judged) Now() effects.Time             { return effects.Time(j.w.now) }
func (j judged) Clock(node int32) effects.Time { return j.w.clock(j.w.nodes[node]) }
func (j judged) Life(node int32) uint32        { return j.w.nodes[node].life }
func (j judged) Called(node int32) string      { return j.w.nodes[node].called() }
func (j judged) Goes() bool                    { return j.w.failure == nil }
func (j judged) Break(name, promise, format string, args []any) {
	j.w.failAs(name, promise, format, args...)
}

// True is when a node's clock shows an instant.
func (j judged) True(node int32, at effects.Time) effects.Time {
	return effects.Time(j.w.nodes[node].when(at))
}

// called is what people call a node beside its number.
func (n *node) called() string {
	if n.own != nil {
		return n.own.Name
	}
	return laneName(n.id)
}

// heardBy tells oracles of what a machine is given, or wants.
func (w *world) heardBy(n *node, what any) {
	if len(w.judges) == 0 {
		return
	}
	c := oracle.NewCall(judged{w}, n.id)
	for i := range w.judges {
		if j := &w.judges[i]; hears(j, n) {
			j.Hear(&c, what)
		}
	}
}

// hears says whether a judge hears of a node: of those of its own system, and of ranks.
func hears(j *oracle.Judge, n *node) bool { return n.own == nil || n.own.system.Name == j.System }

func (w *world) tellDown(n *node) {
	c := oracle.NewCall(judged{w}, n.id)
	for i := range w.judges {
		if j := &w.judges[i]; hears(j, n) {
			j.Down(&c)
		}
	}
}

func (w *world) tellQuiet(n *node) {
	c := oracle.NewCall(judged{w}, n.id)
	for i := range w.judges {
		if j := &w.judges[i]; hears(j, n) {
			j.Quiet(&c)
		}
	}
}

// tabled is a machine that shows how full its tables are.
type tabled interface {
	Tables(visit func(name string, n, most int))
}

// boundedOwn checks the tables of a machine after each step.
func (w *world) boundedOwn(n *node) {
	t, ok := n.machine.(tabled)
	if !ok {
		return
	}
	t.Tables(func(name string, k, most int) {
		if k > most {
			w.fail("S17", "node %d has %d in its table %s, which holds at most %d", n.it(), k, name, most)
		}
	})
}

// quietOwn checks that they are empty after all has come to rest.
func (w *world) quietOwn(n *node, when string) {
	t, ok := n.machine.(tabled)
	if !ok {
		return
	}
	t.Tables(func(name string, k, _ int) {
		if k > 0 {
			w.fail("S17", "node %d has %d left in its table %s %s", n.it(), k, name, when)
		}
	})
}

// dispatched is what a user's proxy tells the engines of decodes: that a request is there. The answer says no more than
// that it was heard.
func (w *world) dispatched(c *conn, corr effects.Corr, body []byte) {
	i := w.jobNamed(body)
	if i >= uint64(len(w.jobs)) {
		w.fail("contract", "node %d dispatches request %q, which never was", oracle.Node(c.client), oracle.Request(body))
		return
	}
	w.posted(delivery{kind: kindPosted, a: uint64(c.client), b: i})
	if c.dead || c.closed {
		return
	}
	w.after(w.connDraw(draw.Reply, c).Heavy(w.plan.Net),
		delivery{kind: kindAnswer, node: plan.Nobody, a: c.id, b: uint64(corr), body: w.body(nil)})
}
