package receiver

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/draw"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/memory"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

const (
	pageBytes    = 64
	pagesMax     = 4
	allocTimeout = effects.Second
	leaseTTL     = 10 * effects.Second
)

var (
	key1   = identity.Key{1}
	layout = protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf, Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 4}, N: 4}}
)

// fatal is what tests of both kinds can do.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// rig is the room alone, with what the rank does around it after each event.
type rig struct {
	t        fatal
	r        Receiver
	links    link.Links
	pools    memory.Pools
	pool     *memory.Pool
	timers   kernel.Timers
	given    kernel.Tickets
	out      effects.Effects
	now      effects.Time
	freed    uint64
	requests effects.Request
	tickets  effects.Ticket
	replies  map[effects.Request]protocol.AllocResponse
	outcomes map[effects.Ticket]effects.Deliver
	grants   []effects.Grant
	revokes  []effects.GrantID
	confirms []effects.Code
}

func newRig(t fatal, change func(*flow.RoomsConfig)) *rig { return newShared(t, pagesMax, change) }

// newShared bounds what one class may have of the pool.
func newShared(t fatal, share uint32, change func(*flow.RoomsConfig)) *rig {
	cfg := flow.RoomsConfig{
		Layout: layout, PageBytes: pageBytes, Buffer: protocol.UUID{9}, AllocTimeout: allocTimeout, Lease: leaseTTL,
		ClaimTTL: 100 * effects.Second, GetWaitMax: 20 * effects.Second, BatchMax: 8, WaitersMax: 8,
		WaitingBytes: 1 << 20, GrantsMax: 8, GetsMax: 4,
		PagesMax: pagesMax, ClaimsMax: 32, EntriesMax: 16, OvertakesMax: 2, RenewsMax: 512, NotifyMax: 5,
		Wire: protocol.DefaultLimits(),
	}
	if change != nil {
		change(&cfg)
	}
	r := &rig{t: t, timers: kernel.NewTimers(128), given: kernel.NewTickets(64), now: effects.Time(effects.Second),
		replies: map[effects.Request]protocol.AllocResponse{}, outcomes: map[effects.Ticket]effects.Deliver{}}
	r.links = link.New(link.Config{Layout: layout, PageBytes: pageBytes, Pages: pagesMax, Key: key1, PeersMax: 4,
		Directions: 1, InboundTTL: cfg.ClaimTTL, Bearer: cfg.Bearer, PlainsMax: 16, LeftoversMax: 12,
		Wire: protocol.DefaultLimits()}, 1)
	one := memory.PoolConfig{Pages: pagesMax, Share: share}
	r.pools = memory.New(int(cfg.GrantsMax), r.links.Classes(), draw.Shuffle{}, one)
	r.pool = r.pools.Pool(0)
	r.r = New(cfg, r.links.Classes(), 1)
	return r
}

func (r *rig) do(f func(v *env.Env)) {
	r.t.Helper()
	r.out.Reset()
	v := &env.Env{Now: r.now, Out: &r.out, Pools: &r.pools, Pool: r.pool, Timers: &r.timers, Tickets: &r.given}
	f(v)
	r.r.Wake(v)
	for r.freed != r.pools.Freed() || r.r.Shifted() {
		r.freed = r.pools.Freed()
		r.r.Admit(v, &r.links, &engine.Engine{})
	}
	r.wantCountedOnce()
	for i := range r.out.Len() {
		switch e := r.out.At(i).(type) {
		case *effects.Reply:
			if _, twice := r.replies[e.Request]; twice {
				r.t.Fatalf("request %d is answered twice", e.Request)
			}
			var m protocol.AllocResponse
			if len(e.Body) == 0 {
				m.AllocFailed = true
				r.replies[e.Request] = m
				break
			}
			lim := protocol.DefaultLimits()
			if err := m.Decode(append([]byte(nil), e.Body...), &lim); err != nil {
				r.t.Fatalf("the answer to request %d: %v", e.Request, err)
			}
			r.replies[e.Request] = m
		case *effects.Deliver:
			if _, twice := r.outcomes[e.Ticket]; twice {
				r.t.Fatalf("ticket %d is delivered twice", e.Ticket)
			}
			kept := *e
			kept.Pages = append([]effects.Page(nil), e.Pages...)
			r.outcomes[e.Ticket] = kept
		case *effects.Grant:
			kept := *e
			kept.Pages = append([]effects.Page(nil), e.Pages...)
			r.grants = append(r.grants, kept)
		case *effects.Revoke:
			r.revokes = append(r.revokes, e.Grant)
		case *effects.Confirm:
			r.confirms = append(r.confirms, e.Code)
		case *effects.Observe:
		default:
			r.t.Fatalf("a receiver asks for %T", e)
		}
	}
}

// wantCountedOnce: each page that landed and is not free counts for one class, whatever waits for it or claims it.
func (r *rig) wantCountedOnce() {
	r.t.Helper()
	kept, counted := uint32(0), uint32(0)
	for i := range r.pool.Total() {
		if s := r.pools.Inspect(r.pool, i); s.Grant == 0 && s.Refs+s.Holds > 0 {
			kept++
		}
	}
	for class := range r.links.Classes() {
		counted += r.pool.Landed(class)
	}
	if kept < counted || kept > counted && r.r.Cfg.Retention != store.Cache { // What a cache had is nobody's.
		r.t.Fatalf("%d pages that landed are kept, and %d count for somebody", kept, counted)
	}
}

// guest is a peer that shook hands; n tells guests apart.
func (r *rig) guest(n byte) effects.Incarnation {
	r.t.Helper()
	who := effects.Incarnation{0xA0, n}
	m := protocol.HixlInitRequest{LocalID: []byte("p:1"), EngineID: []byte("p:1"), HasExt: true, Ext: protocol.HelloExt{
		ProtoMin: 2, ProtoMax: 2, Incarnation: protocol.UUID(who), PageBytes: pageBytes, Layout: layout}}
	v := env.Env{Now: r.now, Out: &effects.Effects{}, Pools: &r.pools, Pool: r.pool, Timers: &r.timers, Tickets: &r.given}
	r.links.OnInit(&v, &effects.Received{Conn: 1, Channel: effects.ChannelInit, Request: 1 << 40, Body: m.Append(nil)}, r.r.Busy())
	if _, ok := r.links.Inbound(&v, who, key1.For(who)); !ok {
		r.t.Fatalf("guest %d was not let in", n)
	}
	return who
}

func key(name string) []byte { return []byte("m@1@0@" + name + "@half") }

func keysOf(names ...string) (list [][]byte) {
	for _, name := range names {
		list = append(list, key(name))
	}
	return list
}

// numbered are n keys that nobody else has.
func numbered(from, n int) (list [][]byte) {
	for i := range n {
		list = append(list, key(fmt.Sprintf("%x", from+i)))
	}
	return list
}

// ask sends an AllocRequest; change may make it another.
func (r *rig) ask(who effects.Incarnation, list [][]byte, change func(*protocol.AllocRequest)) effects.Request {
	r.t.Helper()
	r.requests++
	request := r.requests
	m := protocol.AllocRequest{Keys: list, Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, LastChunkTokens: 4}
	if who != (effects.Incarnation{}) {
		m.HasExt = true
		m.Ext = protocol.AllocExt{Version: 2, Incarnation: protocol.UUID(who), To: protocol.UUID(key1.For(who)), Operation: uint64(request), Attempt: 1,
			PatienceNS: uint64(allocTimeout), Request: []byte("r")}
	}
	if change != nil {
		change(&m)
	}
	r.do(func(v *env.Env) {
		r.r.OnAlloc(v, &r.links, &effects.Received{Conn: effects.Conn(request), Channel: effects.ChannelAlloc, Request: request, Body: m.Append(nil)})
	})
	return request
}

// granted says which pages a request got; ok is false while it waits.
func (r *rig) granted(q effects.Request) (pages []int64, code effects.Code, ok bool) {
	m, ok := r.replies[q]
	return m.RemoteIndexes, effects.Code(m.Ext.Code), ok
}

func (r *rig) land(g effects.Grant, pages []effects.Page) {
	r.t.Helper()
	r.do(func(v *env.Env) {
		r.r.OnLanded(v, &effects.Landed{Landing: 1, Grant: g.ID, Peer: g.Peer, Pages: pages, Complete: len(pages) == len(g.Pages)})
	})
}

func (r *rig) revoked() {
	r.t.Helper()
	for _, id := range r.revokes {
		r.do(func(v *env.Env) { r.r.OnRevoked(v, &effects.Revoked{Grant: id}) })
	}
	r.revokes = nil
}

func (r *rig) advance(d effects.Duration) {
	r.t.Helper()
	end := r.now.Add(d)
	for {
		at, ok := r.timers.Next()
		if !ok || at > end {
			break
		}
		r.now = max(r.now, at)
		ref, _ := r.timers.Pop(r.now)
		r.do(func(v *env.Env) {
			if ref.Owner == kernel.OwnerStore {
				r.r.Store.Due(ref.Subject, v)
				return
			}
			r.r.OnTimer(v, ref)
		})
	}
	r.now = end
}

func (r *rig) get(wait effects.Duration, list [][]byte) effects.Ticket {
	r.t.Helper()
	r.tickets++
	t := r.tickets
	r.do(func(v *env.Env) { r.r.OnGet(v, t, &engine.Get{Request: []byte("r"), Keys: list, Wait: wait}) })
	return t
}

func (r *rig) release(got effects.Ticket) effects.Code {
	r.t.Helper()
	r.tickets++
	t := r.tickets
	r.do(func(v *env.Env) { r.r.OnRelease(v, t, &engine.Unpin{Got: got}) })
	return r.outcomes[t].Code
}

func (r *rig) wantGranted(q effects.Request, n int) {
	r.t.Helper()
	if pages, code, ok := r.granted(q); !ok || code != effects.OK || len(pages) != n {
		r.t.Fatalf("request %d got pages %v, code %v, answered %v; want %d pages", q, pages, code, ok, n)
	}
}

func (r *rig) wantWaits(qs ...effects.Request) {
	r.t.Helper()
	for _, q := range qs {
		if pages, code, ok := r.granted(q); ok {
			r.t.Fatalf("request %d got pages %v, code %v; it should wait", q, pages, code)
		}
	}
}

func (r *rig) wantRefused(q effects.Request, want effects.Code) {
	r.t.Helper()
	if m, ok := r.replies[q]; !ok || !m.AllocFailed || effects.Code(m.Ext.Code) != want || len(m.RemoteIndexes) != 0 {
		r.t.Fatalf("request %d: answered %v, failed %v as %v with pages %v; want %v", q, ok, m.AllocFailed, effects.Code(m.Ext.Code), m.RemoteIndexes, want)
	}
}
