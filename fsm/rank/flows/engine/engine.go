package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Config is the configuration of an Engine.
type Config struct {
	Settings
	Layout     protocol.Layout
	PageBytes  uint64
	BackoffMin effects.Duration // between attempts to notify the proxy
	BackoffMax effects.Duration
	TellsMax   uint32 // attempts to deliver one notification to the proxy
	BatchMax   uint32 // pages of one Reserve
	SharedMax  uint32 // pages that may be shared with the store; 0: none
	// InLine means that reservations wait in the allocation queue, together with peers' requests. Another room has that
	// queue.
	InLine bool
	Wire   protocol.Limits
}

// Engine contains the open commands of a rank's engine that do not depend on a flow: reserved and shared pages, the
// requests of which a proxy is to be notified, and the connection to the proxy.
type Engine struct {
	cfg       Config `snap:"share"`
	requests  requests
	reserves  reserves
	proxy     proxy
	parts     parts
	shares    shares
	operation uint64 // number of the last put
}

// New returns an Engine without open commands. seed is a secret of this rank.
func New(cfg Config, seed uint64) Engine { return new(Engine).Emptied(cfg, seed) }

// Emptied returns what New returns, but reuses the memory of x, which must not be used afterwards.
func (x *Engine) Emptied(cfg Config, seed uint64) Engine {
	return Engine{
		cfg: cfg,
		requests: x.requests.emptied(requestsConfig{
			max: cfg.RequestsMax, ttl: cfg.RequestTTL, silent: cfg.Proxy.Host == "", seed: seed,
		}),
		reserves: x.reserves.emptied(reservesConfig{
			max: cfg.ReservesMax, pages: cfg.BatchMax, pageBytes: uint32(cfg.PageBytes), patience: cfg.ReserveTimeout,
			inLine: cfg.InLine,
		}),
		proxy:  newProxy(&cfg),
		shares: x.shares.emptied(min(cfg.ReservesMax, cfg.SharedMax), cfg.SharedMax),
	}
}

// Kinds of this room's completions, deadlines and tickets.
const (
	kindOpenProxy uint8 = iota + 1
	kindTell            // completion: a request's notification to the proxy
	kindReserve         // ticket of a Reserve, and deadline of its wait
	kindRequest         // deadline: a request's record expires
	kindProxy           // deadline: next attempt to notify the proxy
	kindShare           // ticket of a Share
	kindWithdraw        // ticket of a Withdraw that waits
)

func ref(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerEngine, Kind: kind, Subject: h}
}

// OnReserve handles a Reserve.
func (x *Engine) OnReserve(v *env.Env, t effects.Ticket, c *Reserve, draining bool) {
	if draining {
		TurnDown(v, t, effects.Draining, &effects.Why{})
		return
	}
	x.reserves.add(v, t, c)
}

// OnRelease handles a Release.
func (x *Engine) OnRelease(v *env.Env, t effects.Ticket, c *Release) {
	x.reserves.release(v, t, c)
}

// Abort ends a Reserve or a Withdraw that waits, and reports whether there was a command to end.
func (x *Engine) Abort(v *env.Env, of kernel.Ref) bool {
	if of.Kind == kindWithdraw {
		x.shares.abort(v, of.Subject)
		return true
	}
	if of.Kind != kindReserve || !x.reserves.waits(of.Subject) {
		return false
	}
	x.reserves.fail(v, of.Subject, effects.Cancelled)
	return true
}

// Admit gives free pages to waiting reservations, unless these wait in the allocation queue.
func (x *Engine) Admit(v *env.Env) { x.reserves.admit(v) }

// First returns the reservation that waits in the allocation queue, and how many pages it needs. First returns zero if
// there is none.
func (x *Engine) First() (table.Handle, uint32) { return x.reserves.first() }

// AdmitFirst gives pages to the reservation that First returned. The reservation must be next in the queue, the pages
// must be free, and the engine's share must allow them.
func (x *Engine) AdmitFirst(v *env.Env) { x.reserves.grantFirst(v) }

// LeftLine reports, once, that a reservation left the queue without pages, or joined the allocation queue. The rows
// behind the former, or the latter itself, may be served now.
func (x *Engine) LeftLine() bool { return x.reserves.leftLine() }

// Leave counts a batch out of its request. Leave must be called after the batch's outcome was delivered, because a
// receiver of the proxy's notification may rely on the outcome.
func (x *Engine) Leave(v *env.Env, request table.Handle, chunks uint32, code effects.Code) {
	if x.requests.leave(v, request, chunks, code) {
		x.proxy.maybeTell(v, &x.requests)
	}
}

// Enter counts a long-running operation in as a batch of a request, and returns the request. Last is called for the
// request when no further batch follows.
func (x *Engine) Enter(v *env.Env, id []byte) (table.Handle, effects.Code, *effects.Why) {
	return x.requests.join(v, id, false)
}

// MayEnter returns the code and the reason that Enter would return. MayEnter changes nothing.
func (x *Engine) MayEnter(v *env.Env, id []byte) (effects.Code, *effects.Why) {
	_, code, why := x.requests.admit(v, id)
	return code, why
}

// Last notes that no further batch of the request follows.
func (x *Engine) Last(request table.Handle) { x.requests.of(request).last = true }

// Operation returns a new number for a put. No other put has the same number.
func (x *Engine) Operation() uint64 {
	x.operation++
	return x.operation
}

// PutTimeout returns the time limit of a Put without Patience.
func (x *Engine) PutTimeout() effects.Duration { return x.cfg.PutTimeout }

// RequestIDMax returns the maximum length of a request id in bytes.
func (x *Engine) RequestIDMax() int { return int(x.cfg.RequestIDMax) }

// Request returns the id of a request, or nil for the zero handle.
func (x *Engine) Request(h table.Handle) []byte { return x.requests.name(h) }

// Step handles the completions of this room's effects: of notifications to the proxy, and of opening the connection for
// them.
func (x *Engine) Step(v *env.Env, of kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Opened:
		x.proxy.opened(v, &x.requests, ev)
	case *effects.SendDone:
		x.proxy.sendDone(v, &x.requests, of.Subject, ev.Code)
	default:
		kernel.Foreign("who notifies the proxy")
	}
}

// ConnLost handles the loss of a connection that may be the proxy's.
func (x *Engine) ConnLost(v *env.Env, conn effects.Conn) { x.proxy.connLost(v, &x.requests, conn) }

// Due handles this room's deadlines.
func (x *Engine) Due(v *env.Env, of kernel.Ref) {
	switch of.Kind {
	case kindReserve:
		x.reserves.due(v, of.Subject)
	case kindRequest:
		x.requests.due(of.Subject)
	case kindProxy:
		x.proxy.due(v, &x.requests)
	default:
		panic("BUG: a deadline of the engine's is of nothing")
	}
}

// DrainFirst refuses the first reservation that waits, and reports whether there was one.
func (x *Engine) DrainFirst(v *env.Env) bool { return x.reserves.failFirst(v, effects.Draining) }

// Left returns the number of rows that a drain waits for here: reservations, and requests of which the proxy is to be
// notified.
func (x *Engine) Left() int { return x.reserves.len() + x.proxy.left(&x.requests) }

// Reserves returns the number of reservations, waiting ones included.
func (x *Engine) Reserves() int { return x.reserves.len() }

// Requests returns the number of requests that are recorded, and how many of them the proxy was notified of.
func (x *Engine) Requests() (all, told int) { return x.requests.len(), x.requests.toldLen() }
