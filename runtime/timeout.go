package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime/config"
)

// Every call that takes a context follows one rule for time. A command's deadline is set by the timeout of the call,
// or by the configured timeout if that is 0, and by the context's deadline if that is earlier. When the time is over,
// the command ends in the way of the command's kind: a Put, a Fetch or a Drain as Expired, a Reserve as NoMemory, a
// Get with the prefix of the chunks that have arrived. Only a caller that cancels the context aborts the command,
// which then ends as Cancelled, unless the command had ended before.

// callTimes has the time limits of calls that state none. Reload replaces them.
type callTimes struct {
	put, bring, recall, drain effects.Duration
}

// times returns the time limits for the calls that begin now.
func (n *Node) times() *callTimes { return n.callTimes.Load() }

// Reload puts those values of cfg into force that a running node can take: put_timeout, recall.timeout,
// p2p_sync_get_timeout_s and pd_shutdown_timeout_sec, for the calls that begin from now on, of engines of an agent too;
// and tenant_share_pct, for the requests that are served from now on, if the node limits the pages of tenants and still
// does. Config.Changes says which other keys have changed; these need another Open.
func (n *Node) Reload(cfg *config.Config) {
	n.setCallTimes(cfg)
	if pct := cfg.Machine.TenantSharePct; n.limitsTenants && pct < 100 {
		// A node that is closing refuses the command, and needs no new limit.
		_, _ = n.submitCommand("reload", classEnding, &rank.SetTenantShare{Pct: pct})
	}
}

func (n *Node) setCallTimes(cfg *config.Config) {
	m := &cfg.Machine
	n.callTimes.Store(&callTimes{put: m.PutTimeout, bring: m.BringTimeout, recall: m.RecallTimeout, drain: toNanos(cfg.DrainTimeout)})
}

// DrainTimeout returns how long a Close may take that begins now.
func (n *Node) DrainTimeout() time.Duration { return time.Duration(n.times().drain) }

// commandTimeout returns the time that a command has: the requested time, or byDefault if none was requested, but no
// longer than the time until the context's deadline.
func commandTimeout(ctx context.Context, requested time.Duration, byDefault effects.Duration) effects.Duration {
	if requested <= 0 {
		requested = time.Duration(byDefault)
	}
	if deadline, ok := ctx.Deadline(); ok {
		requested = min(requested, time.Until(deadline))
	}
	return effects.Duration(max(requested, 1))
}

// shouldAbort reports whether the end of a context aborts the commands. The expiry of the context's deadline does not:
// the commands have the same deadline and end by themselves. If the commands were aborted as well, chance would decide
// whether a command ends as Expired or as Cancelled.
func shouldAbort(ctx context.Context) bool {
	_, timed := ctx.Deadline()
	return ctx.Err() != nil && (!timed || !errors.Is(ctx.Err(), context.DeadlineExceeded))
}

// callerCode returns the code and the cause that the caller receives for a command that ended with code.
func callerCode(ctx context.Context, code effects.Code) (effects.Code, error) {
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

// deadlineCause returns context.DeadlineExceeded if the context's deadline has passed, and nil otherwise. The machine
// starts to count a command's time later than the caller, so a command that the machine ends for lack of time ends
// after the deadline.
func deadlineCause(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// contextCode returns the code for a wait of the caller that ended because the context ended.
func contextCode(ctx context.Context) effects.Code {
	code, _ := callerCode(ctx, effects.Expired)
	return code
}
