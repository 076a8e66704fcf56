package runtime

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
)

// Blocks are the blocks of a request in a KV-cache group, in the order of the sequence; see [geometry.Blocks]. Logical
// contains the numbers of logical blocks, and First is the absolute position of the first logical block in kernel
// blocks. The slices that are passed to a call must not change before the call's outcome has been delivered.
type Blocks = geometry.Blocks

// ProducerPeer is the address of a rank of a producer: pd_peer_host, and ports of pd_peer_init_port and
// pd_peer_alloc_port.
type ProducerPeer = register.Peer

// Block returns the memory of a kernel block in a region, that is, of a layer in the order of register.layers: the
// block's cells in sequence, by heads. The call fails if region or block is out of range, if the pool is not the
// engine's own, or if the pool is in the memory of a device.
//
// Invariant (M8): the memory belongs to the engine except while a Reception or a Lending uses the block. During that
// time the engine must not write the block, and must not read a block of a Reception. The slice must not be used
// after Close was called.
func (n *Node) Block(region, block int) ([]byte, error) {
	const op = "block"
	if err := n.wantOwn(op); err != nil {
		return nil, err
	}
	if err := n.tickets.isOver(op); err != nil {
		return nil, err
	}
	switch g := n.own; {
	case region < 0 || region >= len(g.Layers):
		return nil, wrong(op, "region", strconv.Itoa(region), upTo(0, len(g.Layers)-1), "regions count from 0")
	case block < 0 || block >= int(g.Blocks):
		return nil, wrong(op, "block", strconv.Itoa(block), upTo(0, int(g.Blocks)-1), "kernel blocks count from 0")
	}
	m, here := n.world.memory.(*processMemory)
	if !here {
		return nil, &Error{Op: op, Code: effects.Unsupported, Remedy: "the pool is in the memory of a device"}
	}
	return m.pool.PageRange(n.own.Page(uint32(region), uint32(block), 0), n.own.Shares()), nil
}

// Geometry returns the layout of the blocks, and with [geometry.Producers] the ranks that a Registration has to name.
// The result belongs to the node and is read-only, and nil if the pool is not the engine's own.
func (n *Node) Geometry() *geometry.Geometry { return n.own }

// wantOwn returns an error if the node's pool is not the engine's own.
func (n *Node) wantOwn(op string) error {
	if n.own != nil {
		return nil
	}
	if err := n.tickets.isOver(op); err != nil {
		return err // A node that has ended is the more important fact.
	}
	e := wrong(op, "register.engine_id", "none", "a name", "set register.engine_id, and what belongs to it")
	e.Code = effects.Unsupported
	return e
}

// checkRequest returns an error if a call's request id or patience is invalid.
func checkRequest(op, request string, patience time.Duration) error {
	switch {
	case request == "":
		return wrong(op, "Request", "empty", "the engine's id of the request", "name the request")
	case patience < 0:
		return wrong(op, "Patience", patience.String(), "0 or more", "leave it 0 for what is configured")
	}
	return nil
}

// checkProducers returns an error if an address of a producer's ranks is missing or invalid.
func checkProducers(op string, at []ProducerPeer) error {
	if len(at) == 0 {
		return wrong(op, "Producers", "empty", "at least one", "name each rank of the producer that has a part of the blocks")
	}
	for i, p := range at {
		field := "Producers[" + strconv.Itoa(i) + "]"
		host := p.Host
		// A plain vLLM engine has a name of the gateway instead of a host.
		if !gateway.IsPlain(effects.Addr{Host: host}) {
			if err := plainHost(op, field+".Host", &host); err != nil {
				return err
			}
		}
		switch {
		case host != p.Host:
			return wrong(op, field+".Host", strconv.Quote(p.Host), host, "write an IPv6 address without brackets here")
		case p.Host == "":
			return wrong(op, field+".Host", "empty", "a host", "name where that rank listens: its pd_peer_host")
		case p.InitPort == 0:
			return wrong(op, field+".InitPort", "0", "a port", "give that rank's port of pd_peer_init_port")
		case p.Port == 0:
			return wrong(op, field+".Port", "0", "a port", "give that rank's port of pd_peer_alloc_port")
		}
	}
	return nil
}

// A following is a command that delivers the outcome to a channel, without a waiting goroutine. The end of the context
// aborts the command until the outcome has been delivered.
type following[T any] struct {
	lot  *lot
	done chan T

	mu   sync.Mutex
	over bool
	stop func() bool
}

// follow gives the machine a command. The function made converts the outcome for the caller and must not block.
func follow[T any](ctx context.Context, n *Node, op string, body effects.CommandBody, made func(Outcome) T) (
	*following[T], error,
) {
	f := &following[T]{done: make(chan T, 1)}
	l, err := n.submitAll(op, work, []effects.CommandBody{body}, func(tickets []*Ticket) {
		tickets[0].told = func(out Outcome) {
			f.end()
			f.done <- made(out)
		}
	})
	if err != nil {
		return nil, err
	}
	f.lot = l
	stop := context.AfterFunc(ctx, func() {
		if takesBack(ctx) {
			// If the abort is refused, the command ends by timeout.
			_, _ = n.submit("abort", ending, &engine.Abort{Target: l.tickets[0].id})
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop = stop; f.over {
		stop()
	}
	return f, nil
}

// end records that the command has ended, so that the end of the context does not abort the command any more.
func (f *following[T]) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over = true; f.stop != nil {
		f.stop()
	}
}

// failed returns the error for an outcome, or nil for OK.
func failed(ctx context.Context, op string, out Outcome) error {
	if out.Code == effects.OK {
		return nil
	}
	code, cause := endOf(ctx, out.Code)
	return (&Error{Op: op, Code: code, Cause: cause}).because(out.Why)
}
