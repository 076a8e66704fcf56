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
	// InAllocQueue means that reservations wait in the allocation queue, together with peers' requests. Another room
	// has that queue.
	InAllocQueue bool
	Wire         protocol.Limits
}

// Engine contains the open commands of a rank's engine that do not depend on a flow: reserved and shared pages, the
// requests of which a proxy is to be notified, and the connection to the proxy.
type Engine struct {
	cfg           Config `snap:"share"`
	requests      requests
	reserves      reserves
	proxy         proxy
	following     followingPuts
	shares        shares
	lastOperation uint64 // operation number of the last put
}

// New returns an Engine without open commands. seed is a secret of this rank.
func New(cfg Config, seed uint64) Engine { return new(Engine).Recycle(cfg, seed) }

// Recycle returns what New returns, but reuses the memory of x, which must not be used afterwards.
func (x *Engine) Recycle(cfg Config, seed uint64) Engine {
	return Engine{
		cfg: cfg,
		requests: x.requests.recycle(requestsConfig{
			max: cfg.RequestsMax, ttl: cfg.RequestTTL, noProxy: cfg.Proxy.Host == "", seed: seed,
		}),
		reserves: x.reserves.recycle(reservesConfig{
			max: cfg.ReservesMax, pages: cfg.BatchMax, pageBytes: uint32(cfg.PageBytes), timeout: cfg.ReserveTimeout,
			inAllocQueue: cfg.InAllocQueue,
		}),
		proxy:  newProxy(&cfg),
		shares: x.shares.recycle(min(cfg.ReservesMax, cfg.SharedMax), cfg.SharedMax),
	}
}

// Kinds of this room's completions, deadlines and tickets.
const (
	kindOpenProxy uint8 = iota + 1
	kindNotify          // completion: a request's notification to the proxy
	kindReserve         // ticket of a Reserve, and deadline of its wait
	kindRequest         // deadline: a request's record expires
	kindProxy           // deadline: next attempt to notify the proxy
	kindShare           // ticket of a Share
	kindWithdraw        // ticket of a Withdraw that waits
)

func engineRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerEngine, Kind: kind, Subject: h}
}

// OnReserve handles a Reserve.
func (x *Engine) OnReserve(v *env.Env, t effects.Ticket, c *Reserve, draining bool) {
	if draining {
		RefuseCommand(v, t, effects.Draining, &effects.Why{})
		return
	}
	x.reserves.addReserve(v, t, c)
}

// OnRelease handles a Release.
func (x *Engine) OnRelease(v *env.Env, t effects.Ticket, c *Release) {
	x.reserves.releaseReserve(v, t, c)
}

// AbortCommand ends a Reserve or a Withdraw that waits, and reports whether there was a command to end.
func (x *Engine) AbortCommand(v *env.Env, ref kernel.Ref) bool {
	if ref.Kind == kindWithdraw {
		x.shares.abortWithdraw(v, ref.Subject)
		return true
	}
	if ref.Kind != kindReserve || !x.reserves.isWaiting(ref.Subject) {
		return false
	}
	x.reserves.failReserve(v, ref.Subject, effects.Cancelled)
	return true
}

// GrantWaiting gives free pages to waiting reservations, unless these wait in the allocation queue.
func (x *Engine) GrantWaiting(v *env.Env) { x.reserves.grantWaiting(v) }

// FirstReserve returns the reservation that waits in the allocation queue, and how many pages it needs. FirstReserve
// returns zero if there is none.
func (x *Engine) FirstReserve(v *env.Env) (table.Handle, uint32) { return x.reserves.firstWaiting(v) }

// GrantFirst gives pages to the reservation that FirstReserve returned. The reservation must be next in the queue, the
// pages must be free, and the engine's share must allow them.
func (x *Engine) GrantFirst(v *env.Env) { x.reserves.grantFirst(v) }

// TakeQueueMoved reports, once, that a reservation left the queue without pages, or joined the allocation queue. The
// rows behind the former, or the latter itself, may be served now.
func (x *Engine) TakeQueueMoved() bool { return x.reserves.takeQueueMoved() }

// LeaveRequest counts a batch out of its request. LeaveRequest must be called after the batch's outcome was delivered,
// because a receiver of the proxy's notification may rely on the outcome.
func (x *Engine) LeaveRequest(v *env.Env, request table.Handle, chunks uint32, code effects.Code) {
	if x.requests.leaveRequest(v, request, chunks, code) {
		x.proxy.sendNext(v, &x.requests)
	}
}

// JoinRequest counts a long-running operation in as a batch of a request, and returns the request. The caller calls
// MarkLast when no further batch of the request follows.
func (x *Engine) JoinRequest(v *env.Env, id []byte) (table.Handle, effects.Code, *effects.Why) {
	return x.requests.joinRequest(v, id, false)
}

// CheckJoin returns the code and the reason that JoinRequest would return. CheckJoin changes nothing.
func (x *Engine) CheckJoin(v *env.Env, id []byte) (effects.Code, *effects.Why) {
	_, code, why := x.requests.checkJoin(v, id)
	return code, why
}

// MarkLast notes that no further batch of the request follows.
func (x *Engine) MarkLast(request table.Handle) { x.requests.get(request).last = true }

// NextOperation returns a new number for a put. No other put has the same number.
func (x *Engine) NextOperation() uint64 {
	x.lastOperation++
	return x.lastOperation
}

// PutTimeout returns the time limit of a Put without Timeout.
func (x *Engine) PutTimeout() effects.Duration { return x.cfg.PutTimeout }

// RequestIDMax returns the maximum length of a request id in bytes.
func (x *Engine) RequestIDMax() int { return int(x.cfg.RequestIDMax) }

// RequestID returns the id of a request, or nil for the zero handle.
func (x *Engine) RequestID(h table.Handle) []byte { return x.requests.requestID(h) }

// Step handles the completions of this room's effects: of notifications to the proxy, and of opening the connection for
// them.
func (x *Engine) Step(v *env.Env, ref kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Opened:
		x.proxy.onOpened(v, &x.requests, ev)
	case *effects.SendDone:
		x.proxy.onSendDone(v, &x.requests, ref.Subject, ev.Code)
	default:
		kernel.PanicUnexpected("the notifier of the proxy")
	}
}

// OnConnLost handles the loss of a connection that may be the proxy's.
func (x *Engine) OnConnLost(v *env.Env, conn effects.Conn) { x.proxy.onConnLost(v, &x.requests, conn) }

// OnTimer handles this room's deadlines.
func (x *Engine) OnTimer(v *env.Env, ref kernel.Ref) {
	switch ref.Kind {
	case kindReserve:
		x.reserves.onTimer(v, ref.Subject)
	case kindRequest:
		x.requests.onTimer(ref.Subject)
	case kindProxy:
		x.proxy.onTimer(v, &x.requests)
	default:
		panic("BUG: a deadline of the engine's is of nothing")
	}
}

// DrainFirst refuses the first reservation that waits, and reports whether there was one.
func (x *Engine) DrainFirst(v *env.Env) bool { return x.reserves.failFirst(v, effects.Draining) }

// CountUnnotified returns the number of requests of which the proxy is to be notified.
func (x *Engine) CountUnnotified() int { return x.proxy.countUnnotified(&x.requests) }

// CountReserves returns the number of reservations, waiting ones included.
func (x *Engine) CountReserves() int { return x.reserves.len() }

// CountRequests returns the number of requests that are recorded, and how many of them the proxy was notified of.
func (x *Engine) CountRequests() (all, notified int) {
	return x.requests.len(), x.requests.countNotified()
}
