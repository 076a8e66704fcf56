package effects

// A Machine is a pure state machine: the same events at the same instants give the same effects. The machine of kvferry
// is fsm/rank. The simulator can run any other machine as well, beside ranks or alone.
type Machine interface {
	// Step consumes one event that was dequeued at now, and appends to out the effects that the driver must carry out.
	// now never runs backwards.
	Step(now Time, ev Event, out *Effects)
	// Deadline returns the next instant at which the machine wants a Tick; ok is false when the machine waits for
	// events only.
	Deadline() (t Time, ok bool)
}

// Limits bounds the completions of each kind that a machine has outstanding at a time. Drivers size their queues by
// these limits, so that carrying out an effect never blocks.
type Limits struct {
	Transfers int // Transfer without TransferDone or Settled
	Sends     int // Open, Send, Post, Import, Drop without their completion
	Revokes   int // Revoke without Revoked
	Copies    int // Copy without CopyDone or Settled
	Scatters  int // Scatter without Scattered
	Verifies  int // Verify without Verified
	Commands  int // Command without Deliver, or whose Return is still to follow
	// PagesPerBatch is the largest number of pages that one Transfer, Copy, Grant, Publish, Scatter, Verify, Deliver or
	// Landed names.
	PagesPerBatch int
}
