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

// Blocks are blocks of a request in one KV-cache group, in the order of the sequence; see [geometry.Blocks]. Logical
// has numbers of logical blocks, First the absolute position of the first one in kernel blocks. What a call is given
// must not change before it has its outcome.
type Blocks = geometry.Blocks

// ProducerPeer is where one rank of a producer listens: its pd_peer_host, and its ports of pd_peer_init_port and
// pd_peer_alloc_port.
type ProducerPeer = register.Peer

// Block is the memory of one kernel block in one region, which is the place of a layer in register.layers: its cells
// one after the other, by heads. It is the engine's, but for as long as a Reception or a Lending has it: then nobody
// writes to it, and of a Reception nobody reads it. The slice must not be used once Close was called.
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

// Geometry says what lies in which block, and with [geometry.Producers] which ranks a Registration is for. It is the
// node's, and only to be read; nil where the pool is not the engine's own.
func (n *Node) Geometry() *geometry.Geometry { return n.own }

// wantOwn refuses calls of a node whose pool is not the engine's own.
func (n *Node) wantOwn(op string) error {
	if n.own != nil {
		return nil
	}
	if err := n.tickets.isOver(op); err != nil {
		return err // Which is more than that.
	}
	e := wrong(op, "register.engine_id", "none", "a name", "set register.engine_id, and what belongs to it")
	e.Code = effects.Unsupported
	return e
}

// checkRequest says what is wrong with what a call says of a request.
func checkRequest(op, request string, patience time.Duration) error {
	switch {
	case request == "":
		return wrong(op, "Request", "empty", "the engine's id of the request", "name the request")
	case patience < 0:
		return wrong(op, "Patience", patience.String(), "0 or more", "leave it 0 for what is configured")
	}
	return nil
}

// checkProducers says what is wrong with where ranks of a producer are said to listen.
func checkProducers(op string, at []ProducerPeer) error {
	if len(at) == 0 {
		return wrong(op, "Producers", "empty", "at least one", "name each rank of the producer that has a part of the blocks")
	}
	for i, p := range at {
		field := "Producers[" + strconv.Itoa(i) + "]"
		host := p.Host
		// A plain engine of vLLM has a name of the gateway's in place of a host.
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

// A following is a command whose outcome nobody waits for: it goes to a channel, and the end of a context takes the
// command back until then.
type following[T any] struct {
	lot  *lot
	done chan T

	mu   sync.Mutex
	over bool
	stop func() bool
}

// follow gives the machine a command. made makes of its outcome what the caller hears; it must not block.
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
			_, _ = n.submit("abort", ending, &engine.Abort{Target: l.tickets[0].id}) // Refused, it ends by its own time.
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop = stop; f.over {
		stop()
	}
	return f, nil
}

// end says that there is nothing to take back any more.
func (f *following[T]) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over = true; f.stop != nil {
		f.stop()
	}
}

// failed is the error of an outcome, nil for OK.
func failed(ctx context.Context, op string, out Outcome) error {
	if out.Code == effects.OK {
		return nil
	}
	code, cause := endOf(ctx, out.Code)
	return (&Error{Op: op, Code: code, Cause: cause}).because(out.Why)
}
