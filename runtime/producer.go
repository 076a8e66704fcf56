package runtime

import (
	"context"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
)

// A Producer is the prefill side of a node whose engine's own blocks are registered (register.engine_id): it lends
// blocks that are finished, and they are written to whoever registers for them.
type Producer struct{ node *Node }

// Producer is the node's side that writes into registered blocks; a node without register.engine_id refuses its calls.
func (n *Node) Producer() Producer { return Producer{n} }

// Node is the node that this side belongs to.
func (p Producer) Node() *Node { return p.node }

// Finished names blocks of a request that is computed.
type Finished struct {
	Request  string // the engine's own id of it
	Transfer string // what the router calls the transfer at both ends; empty: the two are found by Request
	Blocks   []Blocks
	Lease    time.Duration // 0: kv_lease_duration. A context's deadline that is earlier counts instead
}

// A Lending is what is finished, until it is written. Its blocks are not to change until Returned.
type Lending struct{ f *following[Written] }

// Written is how a Lending ended.
type Written struct {
	Pages     int   // that were written, over all ranks of the consumer's
	NotNeeded bool  // a consumer had said that nobody needs it; nothing was lent
	Held      bool  // the blocks may still be read; Returned tells when that ends
	Err       error // nil: each rank of the consumer's that has a part of them has it. Expired: the lease was over first
}

// Done gives the one outcome: when the lease is over at the latest, which heartbeats of consumers make longer.
func (l *Lending) Done() <-chan Written { return l.f.done }

// Returned is closed once nothing reads the blocks any more, whatever the outcome; before Done gives one that is not
// Held.
func (l *Lending) Returned() <-chan struct{} { return l.f.lot.Returned() }

// Finished lends blocks to the one consumer that registers for them, or has, and returns at once. The end of ctx takes
// them back: no write begins any more.
func (p Producer) Finished(ctx context.Context, x Finished) (*Lending, error) {
	const op = "finished"
	n := p.node
	if err := n.wantOwn(op); err != nil {
		return nil, err
	}
	if err := checkRequest(op, x.Request, x.Lease); err != nil {
		return nil, err
	}
	f, err := follow(ctx, n, op, &register.Finished{
		Request: []byte(x.Request), Transfer: []byte(x.Transfer), Blocks: x.Blocks,
		Lease: patienceOf(ctx, x.Lease, n.cfg.RegistrationLease),
	}, func(out Outcome) Written {
		return Written{Pages: out.Sent, NotNeeded: out.Skipped > 0, Held: out.Held, Err: failed(ctx, op, out)}
	})
	if err != nil {
		return nil, err
	}
	return &Lending{f}, nil
}

// Aborted says that a request will not come, or that what is lent for it is not to be written any more: its Lending
// ends, and who registers for it hears so, also for a while after.
func (p Producer) Aborted(request, transfer string) error {
	const op = "aborted"
	n := p.node
	if err := n.wantOwn(op); err != nil {
		return err
	}
	if err := checkRequest(op, request, 0); err != nil {
		return err
	}
	t, err := n.submit(op, ending, &register.Aborted{Request: []byte(request), Transfer: []byte(transfer)})
	if err != nil {
		return err
	}
	if out := <-t.Done(); out.Code != effects.OK { // Answered by the step that takes it.
		return (&Error{Op: op, Code: out.Code}).because(out.Why)
	}
	return nil
}
