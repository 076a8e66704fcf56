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

// BlockBytes returns the memory of a kernel block in a region, that is, of a layer in the order of register.layers: the
// block's cells in sequence, by heads. The call fails if region or block is out of range, if the pool is not the
// engine's own, or if the pool is in the memory of a device.
//
// Invariant (M8): the memory belongs to the engine except while a Reception or a Lending uses the block. During that
// time the engine must not write the block, and must not read a block of a Reception. The slice must not be used
// after Close was called.
func (n *Node) BlockBytes(region, block int) ([]byte, error) {
	const op = "block bytes"
	if err := n.requireBlocks(op); err != nil {
		return nil, err
	}
	if err := n.tickets.refusalForWork(op); err != nil {
		return nil, err
	}
	switch g := n.blockGeometry; {
	case region < 0 || region >= len(g.Layers):
		return nil, argumentError(op, "region", strconv.Itoa(region), formatRange(0, len(g.Layers)-1), "regions count from 0")
	case block < 0 || block >= int(g.Blocks):
		return nil, argumentError(op, "block", strconv.Itoa(block), formatRange(0, int(g.Blocks)-1), "kernel blocks count from 0")
	}
	m, inProcess := n.driver.memory.(*processMemory)
	if !inProcess {
		return nil, &Error{Op: op, Code: effects.Unsupported, Remedy: "the pool is in the memory of a device"}
	}
	return m.pool.PageRange(n.blockGeometry.PageNumber(uint32(region), uint32(block), 0), n.blockGeometry.SharesPerBlock()), nil
}

// Geometry returns the layout of the blocks, and with [geometry.ProducersOf] the ranks that a Registration has to name.
// The result belongs to the node and is read-only, and nil if the pool is not the engine's own.
func (n *Node) Geometry() *geometry.Geometry { return n.blockGeometry }

// requireBlocks returns an error if the node's pool is not the engine's own.
func (n *Node) requireBlocks(op string) error {
	if n.blockGeometry != nil {
		return nil
	}
	if err := n.tickets.refusalForWork(op); err != nil {
		return err // A node that has ended is the more important fact.
	}
	e := argumentError(op, "register.engine_id", "none", "a name", "set register.engine_id and the keys that it requires")
	e.Code = effects.Unsupported
	return e
}

// checkRequest returns an error if a call's request id or timeout is invalid.
func checkRequest(op, request string, timeout time.Duration) error {
	switch {
	case request == "":
		return argumentError(op, "Request", "empty", "the engine's id of the request", "name the request")
	case timeout < 0:
		return argumentError(op, "Timeout", timeout.String(), "0 or more", "set 0 for the configured value")
	}
	return nil
}

// checkProducers returns an error if an address of a producer's ranks is missing or invalid.
func checkProducers(op string, at []ProducerPeer) error {
	if len(at) == 0 {
		return argumentError(op, "Producers", "empty", "at least one", "name each rank of the producer that has a part of the blocks")
	}
	for i, p := range at {
		field := "Producers[" + strconv.Itoa(i) + "]"
		host := p.Host
		// A plain vLLM engine has a name of the gateway instead of a host.
		if !gateway.IsPlain(effects.Addr{Host: host}) {
			if err := normalizeHost(op, field+".Host", &host); err != nil {
				return err
			}
		}
		switch {
		case host != p.Host:
			return argumentError(op, field+".Host", strconv.Quote(p.Host), host, "write an IPv6 address without brackets here")
		case p.Host == "":
			return argumentError(op, field+".Host", "empty", "a host", "give that rank's pd_peer_host")
		case p.InitPort == 0:
			return argumentError(op, field+".InitPort", "0", "a port", "give that rank's port of pd_peer_init_port")
		case p.Port == 0:
			return argumentError(op, field+".Port", "0", "a port", "give that rank's port of pd_peer_alloc_port")
		}
	}
	return nil
}

// An asyncCommand is a command that delivers the outcome to a channel, without a waiting goroutine. The end of the
// context aborts the command until the outcome has been delivered.
type asyncCommand[T any] struct {
	group *commandGroup
	done  chan T

	mu        sync.Mutex
	ended     bool
	stopAbort func() bool
}

// startAsync gives the machine a command. The function convert converts the outcome for the caller and must not block.
func startAsync[T any](ctx context.Context, n *Node, op string, body effects.CommandBody, convert func(Outcome) T) (
	*asyncCommand[T], error,
) {
	f := &asyncCommand[T]{done: make(chan T, 1)}
	l, err := n.submitAll(op, classWork, []effects.CommandBody{body}, func(tickets []*Ticket) {
		tickets[0].onOutcome = func(out Outcome) {
			f.markEnded()
			f.done <- convert(out)
		}
	})
	if err != nil {
		return nil, err
	}
	f.group = l
	stop := context.AfterFunc(ctx, func() {
		if shouldAbort(ctx) {
			// If the abort is refused, the command ends by timeout.
			_, _ = n.submitCommand("abort", classEnding, &engine.Abort{Target: l.tickets[0].id})
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopAbort = stop; f.ended {
		stop()
	}
	return f, nil
}

// markEnded records that the command has ended, so that the end of the context does not abort the command any more.
func (f *asyncCommand[T]) markEnded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended = true; f.stopAbort != nil {
		f.stopAbort()
	}
}

// outcomeError returns the error for an outcome, or nil for OK.
func outcomeError(ctx context.Context, op string, out Outcome) error {
	if out.Code == effects.OK {
		return nil
	}
	code, cause := callerCode(ctx, out.Code)
	return (&Error{Op: op, Code: code, Cause: cause}).withDetails(out.Details)
}
