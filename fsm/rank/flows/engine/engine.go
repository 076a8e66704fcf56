package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Config is what an Engine needs to know.
type Config struct {
	Layout         protocol.Layout
	PageBytes      uint64
	PutTimeout     effects.Duration // of a Put that says no patience
	ReserveTimeout effects.Duration // of a Reserve that says none
	RequestTTL     effects.Duration // for which a request is remembered, open or told
	BackoffMin     effects.Duration // between tries to tell the proxy
	BackoffMax     effects.Duration
	Proxy          effects.Addr // no host: nobody is told
	Rank           uint32       // told to the proxy
	TellsMax       uint32       // tries to hand over one word to the proxy
	BatchMax       uint32       // pages of a Reserve
	PutsMax        uint32
	ReservesMax    uint32
	RequestsMax    uint32
	RequestIDMax   uint32 // bytes
	SharedMax      uint32 // pages that the store has as well; 0: none can be shared
	InLine         bool   // reserves wait in one line with peers' requests, which another room has
	Wire           protocol.Limits
}

// Engine has what is open for a rank's engine whatever flow carries it out: pages that are reserved, and the requests
// that a proxy waits for, with the connection by which it hears of them.
type Engine struct {
	cfg       Config `snap:"share"`
	requests  requests
	reserves  reserves
	proxy     proxy
	parts     parts
	shares    shares
	operation uint64 // of the last put
}

// New returns one with nothing open. seed is a secret of this rank.
func New(cfg Config, seed uint64) Engine { return new(Engine).Emptied(cfg, seed) }

// Emptied returns what New does, in the memory of x, which is not used any more.
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
	kindTell            // a request, of which the proxy is told
	kindReserve         // its ticket, and when it gives up waiting
	kindRequest         // when one is forgotten
	kindProxy           // when to try the proxy again
	kindShare           // the ticket of what is shared
	kindWithdraw        // that of who waits for its end
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

// Abort ends a reserve or a Withdraw that waits, and says whether it did.
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

// Admit gives pages that became free to those who wait for them.
func (x *Engine) Admit(v *env.Env) { x.reserves.admit(v) }

// First is the reserve that stands in the line which reserves share with peers' requests, and how many pages it asks
// for; zero if none does.
func (x *Engine) First() (table.Handle, uint32) { return x.reserves.first() }

// AdmitFirst gives it its pages: it is its turn, they are free, and the engine's share allows them.
func (x *Engine) AdmitFirst(v *env.Env) { x.reserves.grantFirst(v) }

// LeftLine says, once, that somebody left the line for pages without any, or joined the one that is shared with peers'
// requests: who is behind may get some, or who came.
func (x *Engine) LeftLine() bool { return x.reserves.leftLine() }

// Leave counts a batch with its outcome out of its request. It comes after the outcome: who is told by the proxy may
// rely on that.
func (x *Engine) Leave(v *env.Env, request table.Handle, chunks uint32, code effects.Code) {
	if x.requests.leave(v, request, chunks, code) {
		x.proxy.maybeTell(v, &x.requests)
	}
}

// Enter counts something in as a batch of a request, which may go on for long and says Last when no other follows.
func (x *Engine) Enter(v *env.Env, id []byte) (table.Handle, effects.Code, *effects.Why) {
	return x.requests.join(v, id, false)
}

// MayEnter says whether Enter would do so. It changes nothing.
func (x *Engine) MayEnter(v *env.Env, id []byte) (effects.Code, *effects.Why) {
	_, code, why := x.requests.admit(v, id)
	return code, why
}

// Last notes that no batch of a request follows those that are in.
func (x *Engine) Last(request table.Handle) { x.requests.of(request).last = true }

// Operation is a number for a put, which no other has.
func (x *Engine) Operation() uint64 {
	x.operation++
	return x.operation
}

// PutTimeout is the patience of a put that says none.
func (x *Engine) PutTimeout() effects.Duration { return x.cfg.PutTimeout }

// RequestIDMax is how many bytes the id of a request may have.
func (x *Engine) RequestIDMax() int { return int(x.cfg.RequestIDMax) }

// Request is the id of a request; none of no request.
func (x *Engine) Request(h table.Handle) []byte { return x.requests.name(h) }

// Step takes what became of what this room asked for: notifications, and the connection for them.
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

// ConnLost is told of a connection that may be the proxy's.
func (x *Engine) ConnLost(v *env.Env, conn effects.Conn) { x.proxy.connLost(v, &x.requests, conn) }

// Due takes this room's deadlines.
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

// DrainFirst ends the first of the reserves that wait, and says whether there was one.
func (x *Engine) DrainFirst(v *env.Env) bool { return x.reserves.failFirst(v, effects.Draining) }

// Left counts what a drain waits for here: reserves, and requests of which the proxy is to be told.
func (x *Engine) Left() int { return x.reserves.len() + x.proxy.left(&x.requests) }

// Reserves is the number of reservations, waiting ones included.
func (x *Engine) Reserves() int { return x.reserves.len() }

// Requests is the number of requests that are remembered, and of those of which the proxy was told.
func (x *Engine) Requests() (all, told int) { return x.requests.len(), x.requests.toldLen() }
