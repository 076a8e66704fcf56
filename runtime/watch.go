package runtime

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/watch"
)

// A watched driver reports the events and effects that pass between a machine and its driver, in the order in
// which the machine sees them.
type watched struct {
	driver
	told  func(effects.Event)
	asked func(effects.Effect)
}

func (w *watched) before(ev effects.Event) {
	w.told(ev)
	w.driver.before(ev)
}

func (w *watched) carryOut(e effects.Effect) {
	w.asked(e)
	w.driver.carryOut(e)
}

func init() {
	watch.Node = func(node any, told func(effects.Event), asked func(effects.Effect)) {
		n := node.(*Node)
		n.loop.call(func() { n.loop.driver = &watched{driver: n.loop.driver, told: told, asked: asked} })
	}
}
