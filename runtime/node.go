package runtime

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
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
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/span"
)

// bg is the context of log records, because a log record belongs to no caller.
var bg = context.Background()

// A Node is a running rank of kvferry: a state machine (fsm/rank), the event loop that steps the machine, and the pool
// of pages that the machine manages. All methods are safe for concurrent use.
type Node struct {
	role           config.Role
	layout         protocol.Layout
	pageBytes      uint64
	pages          uint32
	engineShare    uint32 // number of these pages that the engine may reserve
	limitsTenants  bool   // the pages of a tenant are limited
	poolKey        string // configuration key that sets the number of pages; error texts name it
	inProcess      bool   // every page has bytes in the memory of this process
	deviceFrom     uint32 // index of the first page of the second (device) pool
	devicePages    uint32 // number of pages in the second pool
	hasAddresses   bool   // the pages have addresses for a device
	gateway        Gateway
	callTimes      atomic.Pointer[callTimes]
	cfg            rank.Config // configuration of the machine, as read from the file
	sharedMode     p2p.Mode
	hasDirectories bool // the node asks directories for the location of chunks
	layers         int  // layers of a chunk, each in a page of its own; 0: a page holds a whole chunk
	prefills       *prefillTable
	blockGeometry  *geometry.Geometry // of a pool that is memory of the engine; nil: the pool is the node's

	tracer   span.Tracer     // nil: there are no traces
	verifier *plane.Verifier // nil: the node neither states nor compares checksums

	keysPerBatch int // limit of chunks in one command
	keyBytesMax  int // limit of the length of a key, in bytes
	log          *slog.Logger
	logHandler   *asynclog.Handler // asynchronous handler behind log

	machine machine // the state machine; only the loop may step it
	loop    *loop
	tickets *ticketTable
	driver  *rankDriver

	tasks sync.WaitGroup

	closeToken chan struct{} // token held while a Close starts and drains; also guards the field closing
	shutdown   *shutdown     // nil until the first Close has drained the node

	containment *FailureContainment // what to do when the rank fails alone; nil: a panic ends the process
	failed      chan struct{}       // closed after failure is set, when the rank has failed
	failure     *Failure
}

// Open starts a node and returns when the node serves. The context bounds only the opening; Close ends the node. cfg
// must have a layout (see config.Config.SetLayout), and Open does not change cfg. Open fails if cfg and the options do
// not fit together, or if a part of the node cannot be opened; then everything that was opened is closed again.
func Open(ctx context.Context, cfg *config.Config, opts ...Option) (*Node, error) {
	o := options{log: slog.Default()}
	for _, set := range opts {
		set(&o)
	}
	if err := o.validate(cfg); err != nil {
		return nil, err
	}
	servers, err := controlServers(cfg, o.rank)
	if err != nil {
		return nil, err
	}
	var key identity.Key
	if _, err := rand.Read(key[:]); err != nil {
		return nil, openError("randomness for the node's identity", "check the system's random source", err)
	}
	// The log is asynchronous, so that no work of the node waits for the log.
	lines := asynclog.New(o.log.Handler())
	o.log = slog.New(lines)
	b := nodeBuilder{ctx: ctx, cfg: cfg, options: o, logHandler: lines, servers: servers, key: key}
	n, err := b.buildNode()
	if err != nil {
		err = errors.Join(err, b.closeParts())
		lines.Flush(flushTimeout)
		return nil, err
	}
	return n, nil
}

// NewSender opens a node of role sender or both, and returns the sender side of the node. The call fails if the role
// of cfg does not send, and otherwise as Open does. The caller closes the node: Sender.Node().Close.
func NewSender(ctx context.Context, cfg *config.Config, opts ...Option) (Sender, error) {
	if cfg != nil && !cfg.Role.Sends() {
		return Sender{}, argumentError("open", "pd_role", cfg.Role.String(), "sender", "use NewReceiver, or set pd_role: sender")
	}
	n, err := Open(ctx, cfg, opts...)
	return Sender{n}, err
}

// NewReceiver opens a node of role receiver or both, and returns the node's receiver side. The call fails if the role
// of cfg does not receive, and otherwise as Open does. The caller closes the node: Receiver.Node().Close.
func NewReceiver(ctx context.Context, cfg *config.Config, opts ...Option) (Receiver, error) {
	if cfg != nil && !cfg.Role.Receives() {
		return Receiver{}, argumentError("open", "pd_role", cfg.Role.String(), "receiver", "use NewSender, or set pd_role: receiver")
	}
	n, err := Open(ctx, cfg, opts...)
	return Receiver{n}, err
}

// Sender returns the prefill side of the node. If the role of the node does not send, the methods of the Sender
// fail.
func (n *Node) Sender() Sender { return Sender{n} }

// Receiver returns the decode side of the node. If the role of the node does not receive, the methods of the Receiver
// fail. A node of pd_role both has both sides over a single pool, and Close drains both sides together.
func (n *Node) Receiver() Receiver { return Receiver{n} }

// Node returns the node that this side belongs to.
func (s Sender) Node() *Node { return s.node }

// Node returns the node that this side belongs to.
func (r Receiver) Node() *Node { return r.node }

// Sides returns the names of the node's sides: "sender", "receiver" and "sharing" as configured, or only "blocks"
// if the pool is the memory of the engine.
func (n *Node) Sides() []string {
	if n.blockGeometry != nil {
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

// Layout returns the layout of a page: a page holds one full chunk, or with use_layerwise one layer of a chunk.
// PageBytes returns the size of a page.
func (n *Node) Layout() protocol.Layout { return n.layout }

// PageBytes returns the size of a page in bytes.
func (n *Node) PageBytes() int { return int(n.pageBytes) }

// Incarnation returns the identity of this run of the node.
func (n *Node) Incarnation() effects.Incarnation { return n.machine.Incarnation() }

// Stats returns the machine's counts of its current contents, taken between two steps of the machine. After Close,
// and for a rank that has failed, Stats returns zeros.
func (n *Node) Stats() (s rank.Stats) {
	n.loop.runBetween(func() { s = n.machine.Stats() })
	return s
}

// Gateway returns the node's gateway, if there is one and it counts its work.
func (n *Node) Gateway() (CountingGateway, bool) {
	g, ok := n.gateway.(CountingGateway)
	return g, ok
}

// FactCounts returns, for each kind of fact, how often the node has observed that kind since Open.
func (n *Node) FactCounts() []FactCount { return n.driver.facts.listCounts() }

// DroppedLogLines returns the number of log lines that were dropped since Open because the log handler took lines too
// slowly. The node also writes a line about the loss to the log, as soon as the handler takes lines again.
func (n *Node) DroppedLogLines() uint64 { return n.logHandler.DroppedLines() }

// flushTimeout bounds the time to write the last lines of a node's log.
const flushTimeout = time.Second

// Servers returns the control channels that the node serves, with the ports that are really bound.
func (n *Node) Servers() []control.Server { return n.driver.control.Servers() }

func (n *Node) submitCommand(op string, c commandClass, body effects.CommandBody) (*Ticket, error) {
	t, err := n.tickets.beginTicket(op, c)
	if err != nil {
		return nil, err
	}
	n.loop.mailbox.Post(&effects.Command{Ticket: t.id, Body: body})
	return t, nil
}

// Close ends the node. The call drains the node within pd_shutdown_timeout_sec (or until the deadline of ctx,
// whichever is sooner), then closes sockets and planes, and unmaps the pool. If the engine still has page handles,
// Close closes nothing and returns an error that counts the handles; the caller releases the handles and calls Close
// again.
//
// After the drain the node is taken down whatever becomes of ctx. If ctx ends first, Close returns an Expired
// error that lists the parts that have not ended yet. The shutdown continues in the background, and the pool is
// unmapped when nothing uses the pool any more. Close may be called again, from any goroutine, and then waits for
// the same shutdown; if some memory could not be given back, Close tries again. A nil error says that all parts of
// the node are gone.
//
// If the rank has failed alone (see FailureContainment), Close waits for the end of everything except the memory, which
// stays mapped, and returns a Failed error.
func (n *Node) Close(ctx context.Context) error {
	c, drained, err := n.beginShutdown(ctx)
	if err != nil {
		return err
	}
	return errors.Join(drained, c.awaitEnd(ctx, n, n.DrainTimeout()))
}

// ReloadSecurity makes the node look at the files of cfg.Security now, instead of within 10 s. New files are in force for
// the connections that follow.
func (n *Node) ReloadSecurity() { n.driver.guard.Reload() }

// beginShutdown drains the node and starts to take the node down; later calls return the same closing. refused is the
// error of a Close that starts nothing: another Close still drains the node when ctx ends, or page handles are
// out.
func (n *Node) beginShutdown(ctx context.Context) (c *shutdown, drained, refused error) {
	select {
	case n.closeToken <- struct{}{}: // Without looking at ctx: an ended ctx may also take the token.
	default:
		select {
		case n.closeToken <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, &Error{Op: "close", Code: contextCode(ctx), Cause: ctx.Err(),
				Remedy: "another Close drains the node; close again to wait for its end"}
		}
	}
	defer func() { <-n.closeToken }()
	if n.shutdown == nil {
		if _, drained = n.Drain(ctx); n.tickets.hasFailed() {
			drained = nil // closing.awaitEnd reports the failure.
		}
		// The drain has answered every waiting command, so the pages that the machine still counts belong to the
		// engine. The machine's count is used because a count of handles would be late: a handle is made a moment
		// after the machine granted its pages.
		if s := n.Stats(); s.Reserves+s.Gets > 0 {
			return nil, nil, &Error{Op: "close", Code: effects.Invalid, Count: s.Reserves + s.Gets,
				Remedy: fmt.Sprintf("%d page handles have not been released; release them and close again", s.Reserves+s.Gets)}
		}
		n.tickets.refuseNew(effects.Closed)
		n.shutdown = n.startShutdown()
		return n.shutdown, drained, nil
	}
	select {
	case <-n.shutdown.done:
		if n.shutdown.memoryLeft {
			n.shutdown = n.startShutdown()
		}
	default:
	}
	return n.shutdown, nil, nil
}
