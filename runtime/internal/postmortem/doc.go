// Package postmortem writes a report about a rank in which an assertion failed: the assertion and the stack, the
// preceding events and effects, the step that failed, and the whole state of the machine.
//
// A report contains nothing that would let a reader act as the rank or as a peer. Secrets are left out. Of bytes that
// are not text, for example names and the bodies of messages, the report shows the length and the first four bytes,
// which is as much as logs show of a name.
//
// The driver keeps a [Trace] while the machine runs, and calls [WriteReport] after recovering from a panic:
//
//	trace.RecordEvent(now, ev)
//	name, err := postmortem.WriteReport(dir, 10, time.Now(), &postmortem.Failure{Message: text, Stack: stack, Event: ev, ...})
package postmortem
