package runtime

import (
	"context"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
)

// A Producer is the prefill side of a node that registers the engine's own blocks (register.engine_id). It lends
// finished blocks, and the node writes the blocks to the consumer that registers for them.
type Producer struct{ node *Node }

// Producer returns the side of the node that writes into registered blocks. Without register.engine_id its methods
// fail.
func (n *Node) Producer() Producer { return Producer{n} }

// Node returns the node that this side belongs to.
func (p Producer) Node() *Node { return p.node }

// FinishedRequest names the blocks of a request that is computed.
type FinishedRequest struct {
	Request  string // the engine's own id of the request
	Transfer string // id that the router gives the transfer at both ends; empty: the ends are matched by Request
	Blocks   []Blocks
	Lease    time.Duration        // 0: kv_lease_duration. An earlier deadline of the context replaces it
	Trace    effects.TraceContext // the caller's span (WithTracer)
}

// A Lending represents finished blocks that are lent until they are written. The blocks must not change until
// Returned.
type Lending struct{ command *asyncCommand[LendingResult] }

// LendingResult is the result of a Lending.
type LendingResult struct {
	Pages     int  // number of pages written, summed over all ranks of the consumer
	NotNeeded bool // a consumer had declined the blocks; nothing was lent
	InUse     bool // the blocks may still be read; Returned reports the end of that
	// Err is nil if each rank of the consumer that takes part of the blocks has its part. It is Expired if the lease
	// ended first.
	Err error
}

// Done returns a channel that delivers the one result, at the latest when the lease is over. Heartbeats of
// consumers extend the lease.
func (l *Lending) Done() <-chan LendingResult { return l.command.done }

// Returned returns a channel that is closed when nothing reads the blocks any more, whatever the result. Without
// LendingResult.InUse, the channel is closed before Done delivers the result.
func (l *Lending) Returned() <-chan struct{} { return l.command.group.Returned() }

// LendBlocks lends blocks to the one consumer that registers for them, or that has registered already, and returns
// at once. When ctx ends, the blocks are taken back: no new write starts.
func (p Producer) LendBlocks(ctx context.Context, x FinishedRequest) (*Lending, error) {
	const op = "lend blocks"
	n := p.node
	if err := n.requireBlocks(op); err != nil {
		return nil, err
	}
	if err := checkRequest(op, x.Request, x.Lease); err != nil {
		return nil, err
	}
	f, err := startAsync(ctx, n, op, &register.Finished{
		Request: []byte(x.Request), Transfer: []byte(x.Transfer), Blocks: x.Blocks,
		Lease: commandTimeout(ctx, x.Lease, n.cfg.RegistrationLease), Trace: n.startSpan(x.Trace),
	}, func(out Outcome) LendingResult {
		return LendingResult{Pages: out.Sent, NotNeeded: out.Skipped > 0, InUse: out.InUse, Err: outcomeError(ctx, op, out)}
	})
	if err != nil {
		return nil, err
	}
	return &Lending{f}, nil
}

// AbortRequest reports that a request will not be computed, or that blocks lent for it must not be written any more.
// Its Lending ends, and a consumer that has registered for the request, or that registers within a bounded time
// afterwards, is notified.
func (p Producer) AbortRequest(request, transfer string) error {
	const op = "abort request"
	n := p.node
	if err := n.requireBlocks(op); err != nil {
		return err
	}
	if err := checkRequest(op, request, 0); err != nil {
		return err
	}
	t, err := n.submitCommand(op, classEnding, &register.Aborted{Request: []byte(request), Transfer: []byte(transfer)})
	if err != nil {
		return err
	}
	if out := <-t.Done(); out.Code != effects.OK { // The machine answers in the step that takes the command.
		return (&Error{Op: op, Code: out.Code}).withDetails(out.Details)
	}
	return nil
}
