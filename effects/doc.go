// Package effects defines the vocabulary between the state machines, which decide, and the drivers, which act. The
// package knows no protocol and imports nothing of this project. A machine consumes events and returns effects, and
// never performs input or output, reads a clock or starts a goroutine. The simulator and the real runtime are two
// drivers of the same machines.
//
// # The loop
//
// A driver owns one [Machine] and feeds it one [Event] at a time:
//
//	for ev := range mailbox {            // commands, bytes, completions
//	    now := clock()                   // read after ev was dequeued
//	    out.Reset()
//	    machine.Step(now, ev, &out)
//	    for i := range out.Len() {
//	        carryOut(out.At(i))          // in this order
//	    }
//	}
//
// Whenever [Machine.Deadline] has passed, the driver also feeds a [Tick]. Nothing else reaches a machine, and nothing
// but effects leaves a machine. The same events at the same instants give the same effects, so the behaviour that the
// simulator proves is the behaviour that runs.
//
// # Example
//
// An engine asks for one batch to be pushed to a peer with which this rank is already connected. On a leased plane the
// events and the effects that answer them are, in short:
//
//	Command (put)        -> Send (the allocation request)
//	Replied (a grant)    -> Transfer (the pages, under that grant)
//	TransferDone (OK)    -> Send (the commit)
//	Replied              -> Deliver (the outcome of the command)
//
// On a fenced plane there is no commit: a TransferDone with OK says that the receiver has confirmed the landing, and
// Deliver follows it at once.
//
// # What a driver owes
//
// Every effect that has a completion gets that completion exactly once, whatever happens:
//
//	effect              completion
//	Open                Opened
//	Send                Replied or Unanswered; several Sends on one Conn complete in any order
//	Post                SendDone
//	Import              Imported
//	Drop                Dropped
//	Transfer            TransferDone; if it was not settled, one Settled later
//	Copy                CopyDone; if it was not settled, one Settled later
//	Scatter             Scattered
//	Verify              Verified
//	Revoke              Revoked (on leased planes possibly never: then the pages stay counted)
//	Close, Reply, Publish, Grant, Store, Confirm, Cancel, Deliver, Return, Observe: none
//
// Publish, Grant and Store are synchronous: they are in force before the next effect is carried out, so a Reply never
// overtakes the Grant that it reports. A driver never blocks in an effect, because its queues are as large as the
// machine's [Limits].
//
// Package contract lists which codes may complete which effect and in which order events may cross in the mailbox. The
// tests hold every driver to that list.
//
// # Borrowed memory
//
// Slices in events belong to the driver, and slices in effects belong to the machine. Both are valid only for that one
// step and its effects; code that needs the bytes for longer must copy them. The simulator overwrites the slices
// afterwards to prove that nothing kept them.
//
// # Two kinds of data plane
//
// On a fenced plane, every store into a page is made by the process that owns the page, inside a hold that fails when
// the grant has changed. On such a plane Landed says which pages are complete, Revoke always completes, and no clock is
// trusted. On a leased plane, the hardware of the peer stores by itself and the owner cannot watch it: a write grant
// ends by the initiator's message, or by a Revoked that proves that the mapping is gone.
package effects
