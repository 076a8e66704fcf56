package runtime

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/watch"
)

// An observedDriver reports the events and effects that pass between a machine and its driver, in the order in
// which the machine sees them.
type observedDriver struct {
	driver
	onEvent  func(effects.Event)
	onEffect func(effects.Effect)
}

func (w *observedDriver) beforeStep(ev effects.Event) {
	w.onEvent(ev)
	w.driver.beforeStep(ev)
}

func (w *observedDriver) carryOut(e effects.Effect) {
	w.onEffect(e)
	w.driver.carryOut(e)
}

func init() {
	watch.ObserveNode = func(node any, onEvent func(effects.Event), onEffect func(effects.Effect)) {
		n := node.(*Node)
		n.loop.runBetween(func() { n.loop.driver = &observedDriver{driver: n.loop.driver, onEvent: onEvent, onEffect: onEffect} })
	}
}
