// Package effects is the vocabulary between the machines that decide and the
// drivers that act. It knows no protocol and imports nothing.
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
// and, whenever [Machine.Deadline] has passed, a [Tick]. Nothing else reaches a
// machine, nothing but effects leaves it. The same events at the same instants
// give the same effects, so what the simulator proves is what runs.
//
// # What a driver owes
//
// Every effect that has a completion gets it exactly once, whatever happens:
//
//	effect              completion
//	Open                Opened
//	Send                Replied or Unanswered; of several on one Conn in any order
//	Post                SendDone
//	Import              Imported
//	Drop                Dropped
//	Transfer            TransferDone; if it was not settled, one Settled later
//	Copy                CopyDone; if it was not settled, one Settled later
//	Scatter             Scattered
//	Revoke              Revoked (on leased planes possibly never: then the pages stay counted)
//	Close, Reply, Publish, Grant, Store, Confirm, Cancel, Deliver, Return, Observe: none
//
// Publish, Grant and Store are synchronous: they are in force before the next effect is
// carried out, so a Reply never overtakes the Grant that it tells of. A driver
// never blocks in an effect: its queues are as large as the machine's [Limits].
//
// Which codes may end which effect, and in which order things may cross in the mailbox,
// is listed in package contract, to which the tests hold every driver.
//
// # What is borrowed
//
// Slices in events are the driver's and slices in effects are the machine's.
// Both are valid for that one step and its effects only; who wants to keep bytes
// copies them. The simulator overwrites them afterwards to prove it.
//
// # Two kinds of data plane
//
// On a fenced plane every store into a page is made by the process that owns it,
// inside a hold that fails when the grant has changed. There, Landed says which
// pages are whole, Revoke always ends, and no clock is trusted. On a leased plane
// hardware of the peer stores by itself and nobody can watch it: a write grant
// ends by the initiator's word, or by a Revoked that proves the mapping is gone.
package effects
