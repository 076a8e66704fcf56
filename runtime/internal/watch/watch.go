// Package watch lets tests of whole nodes, in rooms beside package runtime, see what passes between a machine and its
// driver. Nothing else calls it.
package watch

import "github.com/kvferry/kvferry/effects"

// Node shows what a *runtime.Node does from now on, in the order in which its machine sees it: each event before its
// step, each effect before it is carried out. The functions run on the node's loop, which they hold up. Package runtime
// sets it.
var Node func(node any, told func(effects.Event), asked func(effects.Effect))
