package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// One rule for time, for every call that takes a context: a command has until the earliest of its own patience, the
// configured time and the context's deadline, whichever of them that is, and ends as that kind of command ends when its
// time is over: a Put, a Fetch or a Drain as Expired, a Reserve as NoMemory, a Get with the prefix that is there. Only
// a caller who cancels the context takes it back, and then it ends as Cancelled, if it had not ended before.

// patienceOf is how long a command has: what was asked for, else byDefault, and no longer than the context leaves.
func patienceOf(ctx context.Context, asked time.Duration, byDefault effects.Duration) effects.Duration {
	if asked <= 0 {
		asked = time.Duration(byDefault)
	}
	if deadline, ok := ctx.Deadline(); ok {
		asked = min(asked, time.Until(deadline))
	}
	return effects.Duration(max(asked, 1))
}

// takesBack says whether the end of a context takes its commands back. Its deadline does not: they have it as their
// own, and end by themselves. Were they taken back too, chance would say which of the two came first.
func takesBack(ctx context.Context) bool {
	_, timed := ctx.Deadline()
	return ctx.Err() != nil && (!timed || !errors.Is(ctx.Err(), context.DeadlineExceeded))
}

// endOf is how a command that ended with code, and the wait for it, end for the caller.
func endOf(ctx context.Context, code effects.Code) (effects.Code, error) {
	if code != effects.Cancelled && code != effects.Expired {
		return code, nil
	}
	switch err := ctx.Err(); {
	case errors.Is(err, context.Canceled):
		return effects.Cancelled, err
	case err != nil:
		return effects.Expired, err
	}
	return code, nil
}

// outOfTime is the context's error if its deadline has passed. A machine counts its time from later on, so what it ends
// because that is over ends after the deadline.
func outOfTime(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// waitedOut is how a wait of the caller's own ended that its context ended.
func waitedOut(ctx context.Context) effects.Code {
	code, _ := endOf(ctx, effects.Expired)
	return code
}
