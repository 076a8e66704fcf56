package runtime

import (
	"context"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
)

// A Consumer is the decode side of a node that registers the engine's own blocks (register.engine_id). The consumer
// registers blocks of a request, and the producer writes the blocks as soon as the request is finished.
//
// Example: the decode engine calls Register for a request that a prefill rank is still computing. The prefill rank
// reports the request as finished, writes the blocks, and the Reception's Done delivers the outcome.
type Consumer struct{ node *Node }

// Consumer returns the consumer side of the node. A node without register.engine_id refuses all calls of this side.
func (n *Node) Consumer() Consumer { return Consumer{n} }

// Node returns the node to which this side belongs.
func (c Consumer) Node() *Node { return c.node }

// A Registration names the blocks into which a producer writes.
type Registration struct {
	Request string // the engine's own id of the request
	// The router's id of the transfer, the same at both ends. If empty, the two ends are matched by Request.
	Transfer string
	Engine   string // the producer's register.engine_id; empty accepts any engine
	// Producers are the ranks of the producer that have a part of this rank's blocks, in the order of
	// [geometry.ProducersOf]: by stage, then by rank. Ranks and Stages are the producer's tp_size and pp_size.
	Producers     []ProducerPeer
	Ranks, Stages int
	// Blocks are the blocks that the request still lacks, by KV-cache group; at most limits.keys_per_batch pages.
	Blocks []Blocks
	// Timeout limits the time until the outcome; 0 selects push_registration_timeout. An earlier deadline of the
	// context takes precedence.
	Timeout time.Duration
	Trace   effects.TraceContext // the caller's span (WithTracer)
}

// A Reception is a Registration in progress. Invariant (M3, M8): the blocks belong to the node until the channel of
// Returned is closed, and the engine must not use the blocks before.
type Reception struct {
	command *asyncCommand[ReceptionResult]
}

// ReceptionResult is the outcome of a Reception.
type ReceptionResult struct {
	Pages int // the number of pages written: all of them, or 0
	// InUse means that the blocks may still be written to; Returned reports when that ends.
	InUse bool
	Err   error // nil means that every byte of the blocks has been written
}

// Done returns the channel that delivers the one outcome, at the latest after Registration.Timeout.
func (r *Reception) Done() <-chan ReceptionResult { return r.command.done }

// Returned returns a channel that is closed once nothing can write into the blocks any more, whatever the outcome.
// Without ReceptionResult.InUse, the channel is closed before Done delivers the outcome. If a producer does not answer
// any more, the end of the link to that producer is the proof that the producer cannot write.
func (r *Reception) Returned() <-chan struct{} { return r.command.group.Returned() }

// Register requests that blocks be written, and returns at once. If ctx is cancelled before the outcome, the
// registration is aborted; the outcome is delivered all the same. After any outcome with an error, the content of the
// blocks is undefined. If the machine refuses the registration, for example because a block belongs to another
// command, Done delivers Invalid.
func (c Consumer) Register(ctx context.Context, r Registration) (*Reception, error) {
	const op = "register"
	n := c.node
	if err := n.requireBlocks(op); err != nil {
		return nil, err
	}
	if err := checkRequest(op, r.Request, r.Timeout); err != nil {
		return nil, err
	}
	if err := checkProducers(op, r.Producers); err != nil {
		return nil, err
	}
	if err := checkProducerSizes(op, r.Ranks, r.Stages); err != nil {
		return nil, err
	}
	f, err := startAsync(ctx, n, op, &register.Register{
		Request: []byte(r.Request), Transfer: []byte(r.Transfer), Engine: []byte(r.Engine), Producers: r.Producers,
		Ranks: uint32(r.Ranks), Stages: uint32(r.Stages), Blocks: r.Blocks,
		Timeout: commandTimeout(ctx, r.Timeout, n.cfg.RegisterTimeout), Trace: n.startSpan(r.Trace),
	}, func(out Outcome) ReceptionResult {
		return ReceptionResult{Pages: out.Hits, InUse: out.InUse, Err: outcomeError(ctx, op, out)}
	})
	if err != nil {
		return nil, err
	}
	return &Reception{f}, nil
}

// RequestNotice names a request for which the consumer will register later, or will not register at all.
type RequestNotice struct {
	Request, Transfer string
	Producers         []ProducerPeer // all ranks of the producer that have a part of the request
	Timeout           time.Duration  // 0 selects push_registration_timeout
}

// Expect keeps alive the lease of the blocks that a producer holds for a request until the consumer registers for
// them: the producer's ranks are notified at once, and again every sixth of kv_lease_duration. The channel delivers
// the outcome: nil when a Registration of the same name was made. The end of ctx ends the command.
func (c Consumer) Expect(ctx context.Context, x RequestNotice) (<-chan error, error) {
	const op = "expect"
	f, err := c.notifyProducers(ctx, op, &x, false)
	if err != nil {
		return nil, err
	}
	return f.done, nil
}

// Decline notifies a producer that the consumer will not register for a request, so that the producer returns the
// blocks to the engine. The call waits until each rank has confirmed the message. An error means that a rank may not
// have received the message; the lease of the blocks still expires.
func (c Consumer) Decline(ctx context.Context, x RequestNotice) error {
	const op = "decline"
	f, err := c.notifyProducers(ctx, op, &x, true)
	if err != nil {
		return err
	}
	return <-f.done
}

// notifyProducers submits a register.Expect command, or a register.NotNeeded command if the request is declined.
func (c Consumer) notifyProducers(ctx context.Context, op string, x *RequestNotice, declined bool) (*asyncCommand[error], error) {
	n := c.node
	if err := n.requireBlocks(op); err != nil {
		return nil, err
	}
	if err := checkRequest(op, x.Request, x.Timeout); err != nil {
		return nil, err
	}
	if err := checkProducers(op, x.Producers); err != nil {
		return nil, err
	}
	request, transfer := []byte(x.Request), []byte(x.Transfer)
	timeout := commandTimeout(ctx, x.Timeout, n.cfg.RegisterTimeout)
	convert := func(out Outcome) error { return outcomeError(ctx, op, out) }
	if declined {
		return startAsync(ctx, n, op, &register.NotNeeded{
			Request: request, Transfer: transfer, Producers: x.Producers, Timeout: timeout}, convert)
	}
	return startAsync(ctx, n, op, &register.Expect{
		Request: request, Transfer: transfer, Producers: x.Producers, Timeout: timeout}, convert)
}

// checkProducerSizes returns an error if a producer's sizes are out of range.
func checkProducerSizes(op string, ranks, stages int) error {
	switch {
	case ranks < 1 || ranks > geometry.RanksMax:
		return argumentError(op, "Ranks", strconv.Itoa(ranks), formatRange(1, geometry.RanksMax), "give the producer's tp_size")
	case stages < 1 || stages > geometry.StagesMax:
		return argumentError(op, "Stages", strconv.Itoa(stages), formatRange(1, geometry.StagesMax), "give the producer's pp_size")
	}
	return nil
}
