package runtime

import (
	"context"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
)

// A Consumer is the decode side of a node whose engine's own blocks are registered (register.engine_id): it names
// blocks that it wants written, and their producer writes them when it has finished the request, or at once if it
// has.
type Consumer struct{ node *Node }

// Consumer is the node's side that has blocks written into; a node without register.engine_id refuses its calls.
func (n *Node) Consumer() Consumer { return Consumer{n} }

// Node is the node that this side belongs to.
func (c Consumer) Node() *Node { return c.node }

// A Registration names blocks that a producer is to write into.
type Registration struct {
	Request  string // the engine's own id of it
	Transfer string // what the router calls the transfer at both ends; empty: the two are found by Request
	Engine   string // the producer's register.engine_id; empty: whatever engine is there
	// Producers are its ranks that have a part of this rank's blocks, in the order of [geometry.Producers]: by stage, then
	// by rank. Ranks and Stages are its tp_size and pp_size.
	Producers     []ProducerPeer
	Ranks, Stages int
	Blocks        []Blocks      // by group; those that lack of the request, as far as limits.keys_per_batch pages
	Patience      time.Duration // 0: push_registration_timeout. A context's deadline that is earlier counts instead
}

// A Reception is a Registration under way. Its blocks are the node's until Returned.
type Reception struct{ f *following[Received] }

// Received is how a Reception ended.
type Received struct {
	Pages int   // that were written: all of them, or 0
	Held  bool  // the blocks may still be written; Returned tells when that ends
	Err   error // nil: each byte of the blocks is there
}

// Done gives the one outcome: at the Registration's patience at the latest.
func (r *Reception) Done() <-chan Received { return r.f.done }

// Returned is closed once nothing can write into the blocks any more, whatever the outcome. It is before Done gives one
// that is not Held. Where a producer does not answer any more, its link's end is the proof.
func (r *Reception) Returned() <-chan struct{} { return r.f.lot.Returned() }

// Register has blocks written, and returns at once. The end of ctx takes that back until there is an outcome, which
// comes all the same. Of a reception that does not end well the content of the blocks means nothing. Refused by the
// machine, such as where a block is another command's, it ends as Invalid by Done.
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

// Expected is a request that a consumer will register for, or will not.
type Expected struct {
	Request, Transfer string
	Producers         []ProducerPeer // all ranks that have it
	Patience          time.Duration  // 0: push_registration_timeout
}

// Expect keeps what a producer lends of a request until it is registered for: its ranks are told at once, and every
// sixth of kv_lease_duration. The channel gives how that ended: nil when a Registration of that name came. The end of
// ctx ends it.
func (c Consumer) Expect(ctx context.Context, x Expected) (<-chan error, error) {
	const op = "expect"
	f, err := c.errand(ctx, op, &x, false)
	if err != nil {
		return nil, err
	}
	return f.done, nil
}

// NotNeeded tells a producer that nobody will register for a request, so that it gives its blocks back, and waits until
// each rank has heard. An error says that one may not have; its lease ends all the same.
func (c Consumer) NotNeeded(ctx context.Context, x Expected) error {
	const op = "not needed"
	f, err := c.errand(ctx, op, &x, true)
	if err != nil {
		return err
	}
	return <-f.done
}

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

// checkSizes says what is wrong with the sizes of a producer.
func checkSizes(op string, ranks, stages int) error {
	switch {
	case ranks < 1 || ranks > geometry.RanksMax:
		return wrong(op, "Ranks", strconv.Itoa(ranks), upTo(1, geometry.RanksMax), "give the producer's tp_size")
	case stages < 1 || stages > geometry.StagesMax:
		return wrong(op, "Stages", strconv.Itoa(stages), upTo(1, geometry.StagesMax), "give the producer's pp_size")
	}
	return nil
}
