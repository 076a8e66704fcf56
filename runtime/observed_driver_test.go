package runtime

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/watch"
)

// Watch lets tests see n's events and effects from now on, on the goroutine that steps the machine.
func (n *Node) Watch(told func(effects.Event), asked func(effects.Effect)) {
	watch.ObserveNode(n, told, asked)
}

// WithWatch shows them from the very first on, to nodes that do something as soon as they are open.
func WithWatch(told func(effects.Event), asked func(effects.Effect)) Option {
	return func(o *options) { o.watcher = &observedDriver{onEvent: told, onEffect: asked} }
}
