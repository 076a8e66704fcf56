package effects

// A Machine is a pure state machine: the same events at the same instants give
// the same effects. fsm/rank is the machine of kvferry. The
// simulator runs any other as well, beside ranks or alone.
type Machine interface {
	// Step consumes one event that was dequeued at now and appends to out what
	// must be done. now never runs backwards.
	Step(now Time, ev Event, out *Effects)
	// Deadline is the next instant at which the machine wants a Tick; ok is
	// false when it waits for nothing but events.
	Deadline() (t Time, ok bool)
}

// Limits are the most completions of each kind that a machine ever has
// outstanding. Drivers size their queues by them, so that carrying out an effect
// never blocks.
type Limits struct {
	Transfers int // Transfer without TransferDone or Settled
	Sends     int // Open, Send, Post, Import, Drop without their completion
	Revokes   int // Revoke without Revoked
	Copies    int // Copy without CopyDone or Settled
	Scatters  int // Scatter without Scattered
	Commands  int // Command without Deliver, or with a Return to come
	// PagesPerBatch is the most pages one Transfer, Copy, Grant, Publish, Scatter, Deliver or Landed speaks of.
	PagesPerBatch int
}
