// Package watch lets tests of whole nodes, in packages beside package runtime, observe the events and effects between
// a machine and the driver. Only tests use this package.
package watch

import "github.com/kvferry/kvferry/effects"

// ObserveNode observes a *runtime.Node from now on, in the order in which the machine sees the events: told is called
// with each event before the step, asked with each effect before the effect is carried out. The functions run on the
// node's loop and hold up the loop. Package runtime sets this variable.
var ObserveNode func(node any, told func(effects.Event), asked func(effects.Effect))
