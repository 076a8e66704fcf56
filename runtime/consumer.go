package runtime

import (
	"context"
	"strconv"
	"time"

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
	// [geometry.Producers]: by stage, then by rank. Ranks and Stages are the producer's tp_size and pp_size.
	Producers     []ProducerPeer
	Ranks, Stages int
	// Blocks are the blocks that the request still lacks, by KV-cache group; at most limits.keys_per_batch pages.
	Blocks []Blocks
	// Patience limits the time until the outcome; 0 selects push_registration_timeout. An earlier deadline of the
	// context takes precedence.
	Patience time.Duration
}

// A Reception is a Registration in progress. Invariant (M3, M8): the blocks belong to the node until the channel of
// Returned is closed, and the engine must not use the blocks before.
type Reception struct{ f *following[Received] }

// Received is the outcome of a Reception.
type Received struct {
	Pages int // the number of pages written: all of them, or 0
	// Held means that the blocks may still be written to; Returned reports when that ends.
	Held bool
	Err  error // nil means that every byte of the blocks has been written
}

// Done returns the channel that delivers the one outcome, at the latest after Registration.Patience.
func (r *Reception) Done() <-chan Received { return r.f.done }

// Returned returns a channel that is closed once nothing can write into the blocks any more, whatever the outcome.
// Without Received.Held, the channel is closed before Done delivers the outcome. If a producer does not answer any
// more, the end of the link to that producer is the proof that the producer cannot write.
func (r *Reception) Returned() <-chan struct{} { return r.f.lot.Returned() }

// Register requests that blocks be written, and returns at once. If ctx is cancelled before the outcome, the
// registration is aborted; the outcome is delivered all the same. After any outcome with an error, the content of the
// blocks is undefined. If the machine refuses the registration, for example because a block belongs to another
// command, Done delivers Invalid.
func (c Consumer) Register(ctx context.Context, r Registration) (*Reception, error) {
	const op = "register"
	n := c.node
	if err := n.wantOwn(op); err != nil {
		return nil, err
	}
	if err := checkRequest(op, r.Request, r.Patience); err != nil {
		return nil, err
	}
	if err := checkProducers(op, r.Producers); err != nil {
		return nil, err
	}
	if err := checkSizes(op, r.Ranks, r.Stages); err != nil {
		return nil, err
	}
	f, err := follow(ctx, n, op, &register.Register{
		Request: []byte(r.Request), Transfer: []byte(r.Transfer), Engine: []byte(r.Engine), Producers: r.Producers,
		Ranks: uint32(r.Ranks), Stages: uint32(r.Stages), Blocks: r.Blocks,
		Patience: patienceOf(ctx, r.Patience, n.cfg.RegisterTimeout),
	}, func(out Outcome) Received {
		return Received{Pages: out.Hits, Held: out.Held, Err: failed(ctx, op, out)}
	})
	if err != nil {
		return nil, err
	}
	return &Reception{f}, nil
}

// Expected names a request for which the consumer will register later, or will not register at all.
type Expected struct {
	Request, Transfer string
	Producers         []ProducerPeer // all ranks of the producer that have a part of the request
	Patience          time.Duration  // 0 selects push_registration_timeout
}

// Expect keeps alive the lease of the blocks that a producer holds for a request until the consumer registers for
// them: the producer's ranks are notified at once, and again every sixth of kv_lease_duration. The channel delivers
// the outcome: nil when a Registration of the same name was made. The end of ctx ends the command.
func (c Consumer) Expect(ctx context.Context, x Expected) (<-chan error, error) {
	const op = "expect"
	f, err := c.errand(ctx, op, &x, false)
	if err != nil {
		return nil, err
	}
	return f.done, nil
}

// NotNeeded notifies a producer that the consumer will not register for a request, so that the producer returns the
// blocks to the engine. The call waits until each rank has confirmed the message. An error means that a rank may not
// have received the message; the lease of the blocks still expires.
func (c Consumer) NotNeeded(ctx context.Context, x Expected) error {
	const op = "not needed"
	f, err := c.errand(ctx, op, &x, true)
	if err != nil {
		return err
	}
	return <-f.done
}

// errand submits a register.Expect command, or a register.NotNeeded command if the request is declined.
func (c Consumer) errand(ctx context.Context, op string, x *Expected, skip bool) (*following[error], error) {
	n := c.node
	if err := n.wantOwn(op); err != nil {
		return nil, err
	}
	if err := checkRequest(op, x.Request, x.Patience); err != nil {
		return nil, err
	}
	if err := checkProducers(op, x.Producers); err != nil {
		return nil, err
	}
	request, transfer := []byte(x.Request), []byte(x.Transfer)
	patience := patienceOf(ctx, x.Patience, n.cfg.RegisterTimeout)
	made := func(out Outcome) error { return failed(ctx, op, out) }
	if skip {
		return follow(ctx, n, op, &register.NotNeeded{
			Request: request, Transfer: transfer, Producers: x.Producers, Patience: patience}, made)
	}
	return follow(ctx, n, op, &register.Expect{
		Request: request, Transfer: transfer, Producers: x.Producers, Patience: patience}, made)
}

// checkSizes returns an error if a producer's sizes are out of range.
func checkSizes(op string, ranks, stages int) error {
	switch {
	case ranks < 1 || ranks > geometry.RanksMax:
		return wrong(op, "Ranks", strconv.Itoa(ranks), upTo(1, geometry.RanksMax), "give the producer's tp_size")
	case stages < 1 || stages > geometry.StagesMax:
		return wrong(op, "Stages", strconv.Itoa(stages), upTo(1, geometry.StagesMax), "give the producer's pp_size")
	}
	return nil
}
