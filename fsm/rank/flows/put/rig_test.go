package put_test

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/push"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

const (
	pageBytes = 64
	pagesMax  = 4

	attemptsMax = 3
)

var (
	key1, key2 = identity.Key{1}, identity.Key{2}
	ours       = key1.OutboundName("r", 1, 2)
	theirs     = key2.InboundName(ours)
	buffer     = protocol.UUID{7}
	peer       = engine.Peer{Host: "r", InitPort: 1, AllocPort: 2}
	layout     = protocol.Layout{
		Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf, Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 4}, N: 4},
	}
)

// config is what tests change.
type config struct {
	Leased               bool
	Window               uint16
	Proxy                effects.Addr
	PutTimeout           effects.Duration
	BreakerTTL           effects.Duration
	PutsMax, ReservesMax uint32
}

// rig is the source that pushes, with the rooms that it stands on, and a driver that only remembers what it was asked
// for.
type rig struct {
	t           *testing.T
	cfg         flow.Config
	commands    engine.Engine
	source      push.Source
	breakers    link.Breakers
	links       link.Links
	peer        link.Links // the other end of a handshake
	pools       memory.Pools
	pool        *memory.Pool
	timers      kernel.Timers
	openTickets kernel.Tickets
	corrs       kernel.Corrs
	openConns   kernel.Conns
	out         effects.Effects
	now         effects.Time
	freed       uint64
	tickets     effects.Ticket
	conns       effects.Conn
	outcomes    map[effects.Ticket]effects.Deliver
	opens       []effects.Open
	sends       []effects.Send
	imports     []effects.Import
	posts       []effects.Post
	transfers   []effects.Transfer
	cancels     []effects.Corr
	closes      []effects.Conn
	returns     []effects.Ticket
}

func newRig(t *testing.T, change func(*config)) *rig {
	t.Helper()
	return newWindowRig(t, 1, change)
}

// newWindowRig has links on which so many requests may be in flight at a time.
func newWindowRig(t *testing.T, window uint16, change func(*config)) *rig {
	t.Helper()
	c := config{PutTimeout: 10 * effects.Second, PutsMax: 4, ReservesMax: 4}
	if change != nil {
		change(&c)
	}
	cfg := flow.Config{
		Settings: flow.Settings{
			Layout: layout, Leased: c.Leased, AllocTimeout: effects.Second, ReplyTimeout: 2 * effects.Second,
			Lease: 10 * effects.Second, LeaseGuard: effects.Second, BackoffMin: 10 * effects.Millisecond,
			BackoffMax: effects.Second, BatchMax: 4, Window: c.Window, Wire: protocol.DefaultLimits(),
		},
		PageBytes: pageBytes, PeersMax: 2, AttemptsMax: attemptsMax,
	}
	end := func(key identity.Key, id protocol.UUID) link.Config {
		return link.Config{
			Settings: link.Settings{LocalID: "x:1", PeersMax: cfg.PeersMax}, Layout: layout, PageBytes: pageBytes,
			Pages: pagesMax, Buffer: id, Key: key, PlaneNames: [][]byte{[]byte("p")},
			PlaneBlobs: [][]byte{[]byte("b")}, Bearer: cfg.Leased, ReplyTimeout: cfg.ReplyTimeout,
			BackoffMin: cfg.BackoffMin, BackoffMax: cfg.BackoffMax, Directions: 1, Wire: cfg.Wire, Window: window,
		}
	}
	r := &rig{
		t: t, cfg: cfg, openTickets: kernel.NewTickets(16), timers: kernel.NewTimers(64),
		corrs: kernel.NewCorrs(64), openConns: kernel.NewConns(64),
		now:      effects.Time(effects.Second),
		outcomes: map[effects.Ticket]effects.Deliver{},
	}
	r.links, r.peer = link.New(end(key1, protocol.UUID{3}), 1), link.New(end(key2, buffer), 2)
	r.pools = memory.New(1, 1, prng.Shuffle{}, memory.PoolConfig{Pages: pagesMax, ClassShare: 1})
	r.pool = r.pools.Pool(0)
	r.commands = engine.New(engine.Config{
		Settings: engine.Settings{
			PutTimeout: c.PutTimeout, ReserveTimeout: 2 * effects.Second, RequestTTL: 100 * effects.Second,
			Proxy: c.Proxy, PutsMax: c.PutsMax, ReservesMax: c.ReservesMax, RequestsMax: 2, RequestIDMax: 8,
		},
		Layout: layout, PageBytes: pageBytes, BackoffMin: cfg.BackoffMin, BackoffMax: cfg.BackoffMax,
		BatchMax: cfg.BatchMax, TellsMax: 10, Wire: cfg.Wire,
	}, 1)
	r.source = r.source.Recycle(c.PutsMax, 0, cfg.PeersMax, 1)
	r.breakers = link.NewBreakers(c.BreakerTTL, 4*int(cfg.PeersMax), 1)
	return r
}

// runStep runs one step with what the rank does around it.
func (r *rig) runStep(f func(e *flow.Env)) {
	r.t.Helper()
	r.out.Reset()
	e := &flow.Env{
		Env: env.Env{
			Now: r.now, Out: &r.out, Pools: &r.pools, Pool: r.pool, Timers: &r.timers, Corrs: &r.corrs, Conns: &r.openConns,
			Tickets: &r.openTickets,
		},
		Cfg: &r.cfg, Commands: &r.commands, Links: &r.links, Breakers: &r.breakers,
	}
	f(e)
	for h, ok := r.links.NextChanged(); ok; h, ok = r.links.NextChanged() {
		r.source.OnSignal(e, kernel.Ref{Subject: h}, flow.Signal{Kind: flow.PeerChanged})
	}
	for r.freed != r.pools.FreedCount() || r.commands.TakeQueueMoved() {
		r.freed = r.pools.FreedCount()
		r.commands.GrantWaiting(&e.Env)
	}
	for i := range r.out.Len() {
		switch e := r.out.At(i).(type) {
		case *effects.Open:
			r.opens = append(r.opens, *e)
		case *effects.Close:
			r.closes = append(r.closes, e.Conn)
		case *effects.Send:
			kept := *e
			kept.Body = append([]byte(nil), e.Body...)
			r.sends = append(r.sends, kept)
		case *effects.Post:
			kept := *e
			kept.Body = append([]byte(nil), e.Body...)
			r.posts = append(r.posts, kept)
		case *effects.Import:
			r.imports = append(r.imports, *e)
		case *effects.Transfer:
			kept := *e
			kept.Pairs = append([]effects.Pair(nil), e.Pairs...)
			r.transfers = append(r.transfers, kept)
		case *effects.Cancel:
			r.cancels = append(r.cancels, e.Corr)
		case *effects.Deliver:
			if _, twice := r.outcomes[e.Ticket]; twice {
				r.t.Fatalf("ticket %d is delivered twice", e.Ticket)
			}
			kept := *e
			kept.Pages = append([]effects.Page(nil), e.Pages...)
			r.outcomes[e.Ticket] = kept
		case *effects.Return:
			r.returns = append(r.returns, e.Ticket)
		case *effects.Publish, *effects.Observe, *effects.Drop:
		default:
			r.t.Fatalf("a sender asks for %T", e)
		}
	}
}

func (r *rig) nextTicket() effects.Ticket { r.tickets++; return r.tickets }

func (r *rig) reserve(n uint32, timeout effects.Duration) effects.Ticket {
	r.t.Helper()
	t := r.nextTicket()
	r.runStep(func(e *flow.Env) {
		r.commands.OnReserve(&e.Env, t, &engine.Reserve{Count: n, Timeout: timeout}, false)
	})
	return t
}

func (r *rig) release(of effects.Ticket) effects.Code {
	r.t.Helper()
	t := r.nextTicket()
	r.runStep(func(e *flow.Env) { r.commands.OnRelease(&e.Env, t, &engine.Release{Reserved: of}) })
	return r.outcomes[t].Code
}

func (r *rig) abort(target effects.Ticket) (code effects.Code) {
	r.t.Helper()
	r.runStep(func(e *flow.Env) {
		ref := r.openTickets.Find(target)
		if ref.Owner == kernel.OwnerEngine && !r.commands.AbortCommand(&e.Env, ref) ||
			ref.Owner == kernel.OwnerPushSource && !r.source.AbortCommand(e, ref) {
			code = effects.NotFound
		}
	})
	return code
}

func key(name string) []byte { return []byte("m@1@0@" + name + "@half") }

// put pushes the pages of a Reserve, one key for each.
func (r *rig) put(from effects.Ticket, change func(*engine.Put)) effects.Ticket {
	r.t.Helper()
	c := engine.Put{Peer: peer, Layout: layout, LastChunkTokens: 4}
	for i, page := range r.outcomes[from].Pages {
		page.Length = pageBytes
		c.Pages = append(c.Pages, page)
		c.Keys = append(c.Keys, key(string("abcdef"[i])))
	}
	if change != nil {
		change(&c)
	}
	t := r.nextTicket()
	r.runStep(func(e *flow.Env) { r.source.OnCommand(e, &effects.Command{Ticket: t, Body: &c}) })
	return t
}

func pop[T any](r *rig, list *[]T) T {
	r.t.Helper()
	if len(*list) == 0 {
		r.t.Fatalf("no %T was asked for", *list)
	}
	x := (*list)[0]
	*list = (*list)[1:]
	return x
}

func (r *rig) closeCorr(c effects.Corr) kernel.Ref {
	r.t.Helper()
	ref, ok := r.corrs.Close(c)
	if !ok {
		r.t.Fatalf("corr %d is not outstanding", c)
	}
	return ref
}

func (r *rig) completeOpen() effects.Channel {
	r.t.Helper()
	open := pop(r, &r.opens)
	r.conns++
	ev := &effects.Opened{Corr: open.Corr, Conn: r.conns}
	ref := r.closeCorr(open.Corr)
	r.runStep(func(e *flow.Env) {
		if ref.Owner == kernel.OwnerLink {
			r.links.OnOpened(&e.Env, ref, ev)
		} else {
			r.commands.Step(&e.Env, ref, ev)
		}
	})
	return open.Channel
}

// shakeHands plays the handshake that the first put began, up to the lane for asking.
func (r *rig) shakeHands() {
	r.t.Helper()
	answer := func() {
		e := pop(r, &r.sends)
		var out effects.Effects
		pools := memory.New(1, 3, prng.Shuffle{}, memory.PoolConfig{Pages: 1, ClassShare: 1})
		hello := &effects.Received{Conn: 1, Request: 1, Channel: effects.ChannelInit, Body: e.Body}
		r.peer.HandleInit(&env.Env{Now: r.now, Out: &out, Pools: &pools, Pool: pools.Pool(0)}, hello, make([]uint32, 3))
		reply, ok := out.At(0).(*effects.Reply)
		if !ok {
			r.t.Fatal("no answer to the handshake")
		}
		ref := r.closeCorr(e.Corr)
		r.runStep(func(e *flow.Env) { r.links.OnReplied(&e.Env, ref, &effects.Replied{Body: reply.Body}) })
	}
	r.completeOpen()
	answer()
	imported := &effects.Imported{Corr: pop(r, &r.imports).Corr, Link: 5}
	ref := r.closeCorr(imported.Corr)
	r.runStep(func(e *flow.Env) { r.links.OnImported(&e.Env, ref, imported) })
	answer()
	r.completeOpen()
}

// popRequest is the request that went out last.
func (r *rig) popRequest() (effects.Send, protocol.AllocRequest) {
	r.t.Helper()
	e := pop(r, &r.sends)
	var m protocol.AllocRequest
	lim := protocol.DefaultLimits()
	if err := m.Decode(e.Body, &lim); err != nil {
		r.t.Fatal(err)
	}
	return e, m
}

// replyTo answers a request.
func (r *rig) replyTo(to effects.Send, m protocol.AllocResponse) {
	r.t.Helper()
	ref := r.closeCorr(to.Corr)
	r.runStep(func(e *flow.Env) { r.source.Step(e, ref, &effects.Replied{Corr: to.Corr, Body: m.Append(nil)}) })
}

// grantReply is a reply that gives these pages of the peer's buffer.
func grantReply(pages ...int64) protocol.AllocResponse {
	m := protocol.AllocResponse{HasExt: true}
	m.Ext = protocol.AllocReplyExt{Version: 1, Grant: 77, LeaseNS: uint64(8 * effects.Second)}
	for _, page := range pages {
		m.RemoteIndexes = append(m.RemoteIndexes, page)
		m.RemoteUUIDs = append(m.RemoteUUIDs, buffer)
		m.Ext.Generations = append(m.Ext.Generations, uint64(100+page))
	}
	return m
}

func (r *rig) completeTransfer(x effects.Transfer, code effects.Code, settled bool) {
	r.t.Helper()
	ref, ok := r.corrs.Peek(x.Corr)
	if !ok {
		r.t.Fatalf("transfer %d is not outstanding", x.Corr)
	}
	if settled {
		r.corrs.Close(x.Corr)
	}
	done := &effects.TransferDone{Corr: x.Corr, Code: code, Settled: settled, At: r.now}
	r.runStep(func(e *flow.Env) { r.source.Step(e, ref, done) })
}

func (r *rig) settleTransfer(x effects.Transfer) {
	r.t.Helper()
	ref := r.closeCorr(x.Corr)
	r.runStep(func(e *flow.Env) { r.source.Step(e, ref, &effects.Settled{Corr: x.Corr}) })
}

func (r *rig) advance(d effects.Duration) {
	r.t.Helper()
	end := r.now.Add(d)
	for {
		at, ok := r.timers.NextDeadline()
		if !ok || at > end {
			break
		}
		r.now = max(r.now, at)
		ref, _ := r.timers.Pop(r.now)
		r.runStep(func(e *flow.Env) {
			switch ref.Owner {
			case kernel.OwnerLink:
				r.links.OnHandshakeTimer(&e.Env, ref)
			case kernel.OwnerEngine:
				r.commands.OnTimer(&e.Env, ref)
			default:
				r.source.OnTimer(e, ref)
			}
		})
	}
	r.now = end
}

func (r *rig) wantOutcome(t effects.Ticket, code effects.Code, isHeld bool) effects.Deliver {
	r.t.Helper()
	d, ok := r.outcomes[t]
	if !ok || d.Code != code || d.Held != isHeld {
		r.t.Fatalf("ticket %d: delivered %v, %v, held %v; want %v, held %v", t, ok, d.Code, d.Held, code, isHeld)
	}
	return d
}

func (r *rig) wantOpen(t effects.Ticket) {
	r.t.Helper()
	if d, ok := r.outcomes[t]; ok {
		r.t.Fatalf("ticket %d was delivered as %v; it should be open", t, d.Code)
	}
}
