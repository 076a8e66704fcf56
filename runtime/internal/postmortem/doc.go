// Package postmortem writes a report of what a rank was doing when an assertion failed in it: the assertion and its
// stack, the events and effects before it, the step that failed, and the whole state of the machine.
//
// A report contains nothing that would let a reader act as the rank or as a peer. Secrets are left out. Of bytes that
// are not text, such as names and the bodies of messages, it shows the length and the first four, which is as much as
// logs show of a name.
//
// The driver keeps a [Trace] while the machine runs, and calls [Write] when it recovers from a panic:
//
//	trace.Event(now, ev)
//	name, err := postmortem.Write(dir, 10, time.Now(), &postmortem.Case{Said: said, Stack: stack, Event: ev, ...})
package postmortem
