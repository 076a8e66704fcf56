package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Step handles the completion of an effect that this package requested.
func (l *Links) Step(v *env.Env, ref kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Opened:
		l.OnOpened(v, ref, ev)
	case *effects.Replied:
		l.OnReplied(v, ref, ev)
	case *effects.Unanswered:
		l.OnUnanswered(v, ref, ev.Code)
	case *effects.ConnLost:
		l.OnConnLost(v, ref)
	case *effects.Imported:
		l.OnImported(v, ref, ev)
	default:
		kernel.PanicUnexpected("the table of links")
	}
}
