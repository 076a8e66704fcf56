package runtime

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/internal/asynclog"
)

// bg is for log records, which no caller's context belongs to.
var bg = context.Background()

// A Node is one running rank: one machine, one loop, one pool of pages. All methods are safe for
// concurrent use.
type Node struct {
	role         config.Role
	layout       protocol.Layout
	pageBytes    uint64
	pages        uint32
	share        uint32 // of them, for the engine to reserve
	poolKey      string // that says how many pages there are
	inProcess    bool   // all pages have bytes here
	deviceFrom   uint32 // the number of the first page of a second pool
	devicePages  uint32 // how many that has
	addressed    bool   // it has addresses for a device
	drainTimeout time.Duration
	cfg          rank.Config // the machine's, as the file has it
	sharedMode   p2p.Mode
	directories  bool // it asks some who has what
	layers       int  // of a chunk, each with a page of its own; 0: a page has a whole chunk
	prefills     *prefills
	own          *geometry.Geometry // of a pool that is the engine's own; nil: it is not

	batch    int // the most chunks of one command
	keyBytes int // the longest key
	log      *slog.Logger
	lines    *asynclog.Handler // of log, on their way

	machine machine // the loop's
	loop    *loop
	tickets *ticketTable
	world   *world

	tasks sync.WaitGroup

	beginning chan struct{} // holds a token while a Close begins, which drains; it is also the lock of closing
	closing   *closing      // nil until then

	alone   *FailAlone    // nil: it does not
	failed  chan struct{} // closed when it has, and failure is set
	failure *Failure
}

// Open starts a node and returns when it serves. The context bounds the opening alone; Close ends the
// node. cfg must have its layout (see config.Config.SetLayout) and is not changed.
func Open(ctx context.Context, cfg *config.Config, opts ...Option) (*Node, error) {
	o := options{log: slog.Default()}
	for _, set := range opts {
		set(&o)
	}
	if err := o.check(cfg); err != nil {
		return nil, err
	}
	servers, err := serversOf(cfg, o.rank)
	if err != nil {
		return nil, err
	}
	var key identity.Key
	if _, err := rand.Read(key[:]); err != nil {
		return nil, openFailed("randomness for the node's identity", "look at the system's source of it", err)
	}
	// Nothing that a node does waits for its log.
	lines := asynclog.New(o.log.Handler())
	o.log = slog.New(lines)
	b := building{ctx: ctx, cfg: cfg, options: o, lines: lines, servers: servers, key: key}
	n, err := b.build()
	if err != nil {
		err = errors.Join(err, b.unwind())
		lines.Flush(flushPatience)
		return nil, err
	}
	return n, nil
}

// NewSender opens a node that is a sender, or both. Close the node that it belongs to: Sender.Node.
func NewSender(ctx context.Context, cfg *config.Config, opts ...Option) (Sender, error) {
	if cfg != nil && !cfg.Role.Sends() {
		return Sender{}, wrong("open", "pd_role", cfg.Role.String(), "sender", "use NewReceiver, or set pd_role: sender")
	}
	n, err := Open(ctx, cfg, opts...)
	return Sender{n}, err
}

// NewReceiver opens a node that is a receiver, or both. Close the node that it belongs to: Receiver.Node.
func NewReceiver(ctx context.Context, cfg *config.Config, opts ...Option) (Receiver, error) {
	if cfg != nil && !cfg.Role.Receives() {
		return Receiver{}, wrong("open", "pd_role", cfg.Role.String(), "receiver", "use NewSender, or set pd_role: receiver")
	}
	n, err := Open(ctx, cfg, opts...)
	return Receiver{n}, err
}

// Sender is the node's prefill side; a node that has none refuses its commands.
func (n *Node) Sender() Sender { return Sender{n} }

// Receiver is the node's decode side; a node that has none refuses its commands. A node of pd_role both has the two,
// over one pool; its Close drains them together.
func (n *Node) Receiver() Receiver { return Receiver{n} }

// Node is the node that this side belongs to.
func (s Sender) Node() *Node { return s.node }

// Node is the node that this side belongs to.
func (r Receiver) Node() *Node { return r.node }

// Sides are what the node is: "sender", "receiver" and "sharing" as it is configured, or "blocks" alone where the pool
// is the engine's own.
func (n *Node) Sides() []string {
	if n.own != nil {
		return []string{"blocks"}
	}
	var sides []string
	if n.role&config.Sender != 0 {
		sides = append(sides, "sender")
	}
	if n.role&config.Receiver != 0 {
		sides = append(sides, "receiver")
	}
	if n.cfg.Shares {
		sides = append(sides, "sharing")
	}
	return sides
}

// Layout is what a page holds: one full chunk, or with use_layerwise one layer of it. PageBytes is its size.
func (n *Node) Layout() protocol.Layout { return n.layout }

// PageBytes is the size of a page.
func (n *Node) PageBytes() int { return int(n.pageBytes) }

// Incarnation is the identity of this life of the node.
func (n *Node) Incarnation() effects.Incarnation { return n.machine.Incarnation() }

// Stats counts what the machine holds, between two of its steps. After Close, and of a rank that has failed, it is
// zero.
func (n *Node) Stats() (s rank.Stats) {
	n.loop.call(func() { s = n.machine.Stats() })
	return s
}

// Counts is how often each kind of fact was observed since Open.
func (n *Node) Counts() []Count { return n.world.facts.all() }

// LinesDropped is how many lines of the log were dropped since Open, because it took them too slowly. The log says so,
// too, as soon as
// it takes lines again.
func (n *Node) LinesDropped() uint64 { return n.lines.Dropped() }

// flushPatience is how long the last lines of a node's log may take to be written.
const flushPatience = time.Second

// Servers are the channels that the node serves, with the ports really bound.
func (n *Node) Servers() []control.Server { return n.world.control.Servers() }

func (n *Node) submit(op string, c class, body effects.CommandBody) (*Ticket, error) {
	t, err := n.tickets.begin(op, c)
	if err != nil {
		return nil, err
	}
	n.loop.mailbox.Post(&effects.Command{Ticket: t.id, Body: body})
	return t, nil
}

// Close ends the node: it drains within pd_shutdown_timeout_sec (or the context's deadline, whichever
// is sooner), then closes sockets and planes and unmaps the pool. With pages in the engine's hands it
// closes nothing and returns an error that counts their handles; release them and call it again.
//
// From there on the node ends, whatever becomes of the context. If that is over first, Close says Expired and what has
// not ended
// yet; that goes on by itself, and the pool is unmapped when nothing is at it any more. Close may be called again, from
// anywhere,
// and waits for the same end; where memory could not be given back it tries once more. Nil says that all of it is gone.
//
// Of a rank that has failed alone it waits for the end of everything but the memory, which stays, and says Failed.
func (n *Node) Close(ctx context.Context) error {
	c, drained, err := n.begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(drained, c.wait(ctx, n, n.drainTimeout))
}

// begin drains the node and begins to take it down, once.
func (n *Node) begin(ctx context.Context) (c *closing, drained, refused error) {
	select {
	case n.beginning <- struct{}{}: // Also where ctx has ended.
	default:
		select {
		case n.beginning <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, &Error{Op: "close", Code: waitedOut(ctx), Cause: ctx.Err(),
				Remedy: "another Close drains the node; close again to wait for its end"}
		}
	}
	defer func() { <-n.beginning }()
	if n.closing == nil {
		if _, drained = n.Drain(ctx); n.tickets.hasFallen() {
			drained = nil // wait says it.
		}
		// What waited has been answered, so what the machine still counts is the engine's. Its word is better
		// than a count of our own: a handle is made a moment after the machine gave the pages.
		if s := n.Stats(); s.Reserves+s.Gets > 0 {
			return nil, nil, &Error{Op: "close", Code: effects.Invalid, Count: s.Reserves + s.Gets,
				Remedy: fmt.Sprintf("%d page handles are out; release them and close again", s.Reserves+s.Gets)}
		}
		n.tickets.refuse(effects.Closed)
		n.closing = n.take()
		return n.closing, drained, nil
	}
	select {
	case <-n.closing.over:
		if n.closing.left {
			n.closing = n.take()
		}
	default:
	}
	return n.closing, nil, nil
}
