package runtime

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/watch"
)

// Watch lets tests see n's events and effects from now on, on the loop's goroutine.
func (n *Node) Watch(told func(effects.Event), asked func(effects.Effect)) {
	watch.Node(n, told, asked)
}
