package rank

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

const (
	pagesMax     = 4
	allocTimeout = effects.Second
	leaseTTL     = 10 * effects.Second
	helloRequest = effects.Request(1 << 40)
)

var key1 = identity.Key{1}

// fatal is what tests of both kinds can do.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// serving is a rank that receives, alone: its peers are bytes, and its driver only remembers what it was asked for.
type serving struct {
	t        fatal
	rank     *Rank
	rooms    *flow.Rooms
	pool     *memory.Pool
	out      effects.Effects
	now      effects.Time
	requests effects.Request
	tickets  effects.Ticket
	replies  map[effects.Request]protocol.AllocResponse
	outcomes map[effects.Ticket]effects.Deliver
	grants   []effects.Grant
	revokes  []effects.GrantID
	confirms []effects.Code
	stored   [][]byte         // into pages of ours
	tenants  *effects.Tenants // of the senders of messages; nil: all
	realm    effects.Realm    // of the senders of messages
	// isRenamed says that classes go to other peers while what landed for them is kept.
	isRenamed bool
}

func newServing(t fatal, change func(*Config)) *serving { return newShared(t, pagesMax, change) }

// newShared bounds what one class may have of the pool, in pages.
func newShared(t fatal, share uint32, change func(*Config)) *serving {
	t.Helper()
	cfg := Config{
		Role: RoleReceiver, Key: key1, Planes: []Plane{{Name: "shm", Blob: []byte("r")}},
		Common:  Common{Layout: layout, AllocTimeout: allocTimeout, Lease: leaseTTL, BatchMax: 8},
		Memory:  Memory{Pages: pagesMax, GrantsMax: 8, PeerSharePct: 100 * share / pagesMax},
		Store:   Store{ClaimTTL: 100 * effects.Second, ClaimsMax: 32},
		Peers:   Peers{LocalID: "r:1", PeersMax: 4},
		Engine:  Engine{GetWaitMax: 20 * effects.Second, GetsMax: 4},
		Pending: Pending{WaitersMax: 8, WaitingBytes: 1 << 20, BypassMax: 2},
	}
	if change != nil {
		change(&cfg)
	}
	r := &serving{t: t, now: effects.Time(effects.Second),
		replies: map[effects.Request]protocol.AllocResponse{}, outcomes: map[effects.Ticket]effects.Deliver{}}
	machine, err := New(cfg, 1, r.now)
	if err != nil {
		t.Fatalf("%v", err)
	}
	r.rank, r.rooms, r.pool = machine, &machine.sharedRooms, machine.pools.Pool(0)
	return r
}

// step is one step.
func (r *serving) step(ev effects.Event) {
	r.t.Helper()
	r.out.Reset()
	r.rank.Step(r.now, ev, &r.out)
	checkListings(r.t, r.rank, r.now)
	r.wantCountedOnce()
	for i := range r.out.Len() {
		switch e := r.out.At(i).(type) {
		case *effects.Reply:
			r.recordReply(e)
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
		case *effects.Store:
			r.stored = append(r.stored, append([]byte(nil), e.Bytes...))
		case *effects.Publish, *effects.Observe, *effects.Scatter: // The engine of a test takes no batch.
		default:
			r.t.Fatalf("a receiver asks for %T", e)
		}
	}
}

func (r *serving) recordReply(e *effects.Reply) {
	r.t.Helper()
	if e.Request >= helloRequest {
		return
	}
	if _, twice := r.replies[e.Request]; twice {
		r.t.Fatalf("request %d is answered twice", e.Request)
	}
	var m protocol.AllocResponse
	if len(e.Body) == 0 {
		m.AllocFailed = true
		r.replies[e.Request] = m
		return
	}
	lim := protocol.DefaultLimits()
	if err := m.Decode(append([]byte(nil), e.Body...), &lim); err != nil {
		r.t.Fatalf("the answer to request %d: %v", e.Request, err)
	}
	r.replies[e.Request] = m
}

// wantCountedOnce: each page that landed and is not free counts for one class, whatever waits for it or claims it.
func (r *serving) wantCountedOnce() {
	r.t.Helper()
	if r.isRenamed {
		return
	}
	kept, counted := uint32(0), uint32(0)
	for i := range r.pool.TotalPages() {
		if s := r.rank.PageState(0, i); s.Grant == 0 && s.Refs+s.Holds > 0 {
			kept++
		}
	}
	for class := range r.rank.links.CountClasses() {
		counted += r.pool.LandedPages(class)
	}
	if kept < counted || kept > counted && r.rank.cfg.Retention != store.Cache { // What a cache had is nobody's.
		r.t.Fatalf("%d pages that landed are kept, and %d count for somebody", kept, counted)
	}
}

// connectPeer is a peer that shook hands; n tells guests apart.
func (r *serving) connectPeer(n byte) effects.Incarnation {
	r.t.Helper()
	return r.connectFrom(n, 0)
}

// connectFrom is connectPeer for a peer that counts against an Origin.
func (r *serving) connectFrom(n byte, origin effects.Origin) effects.Incarnation {
	r.t.Helper()
	peer := effects.Incarnation{0xA0, n}
	size, _ := layout.PageBytes()
	m := protocol.HixlInitRequest{LocalID: []byte("p:1"), EngineID: []byte("p:1"), HasExt: true, Ext: protocol.HelloExt{
		ProtoMin: link.VersionMin, ProtoMax: link.VersionMax, Incarnation: protocol.UUID(peer), PageBytes: size, Layout: layout}}
	r.step(&effects.Received{Conn: 1, Origin: origin, Realm: r.realm, Channel: effects.ChannelInit, Request: helloRequest,
		Body: m.Append(nil)})
	for class := range r.rank.links.CountClasses() {
		if r.rank.links.PeerID(class) == peer {
			return peer
		}
	}
	r.t.Fatalf("guest %d was not let in", n)
	return peer
}

func key(name string) []byte { return []byte("m@1@0@" + name + "@half") }

func keysOf(names ...string) (list [][]byte) {
	for _, name := range names {
		list = append(list, key(name))
	}
	return list
}

// numberedKeys are n keys that nobody else has.
func numberedKeys(from, n int) (list [][]byte) {
	for i := range n {
		list = append(list, key(fmt.Sprintf("%x", from+i)))
	}
	return list
}

// requestPages sends an AllocRequest; change may make it another.
func (r *serving) requestPages(who effects.Incarnation, list [][]byte, change func(*protocol.AllocRequest)) effects.Request {
	r.t.Helper()
	r.requests++
	request := r.requests
	m := protocol.AllocRequest{
		Keys: list, Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, LastChunkTokens: 4,
	}
	if who != (effects.Incarnation{}) {
		m.HasExt = true
		m.Ext = protocol.AllocExt{
			Version: link.VersionMax, Incarnation: protocol.UUID(who), To: protocol.UUID(key1.InboundName(who)), Operation: uint64(request),
			Attempt: 1, PatienceNS: uint64(allocTimeout), Request: []byte("r"),
		}
	}
	if change != nil {
		change(&m)
	}
	r.step(&effects.Received{
		Conn: effects.Conn(request), Realm: r.realm, Channel: effects.ChannelAlloc, Request: request, Body: m.Append(nil),
	})
	return request
}

// commitAndAbort sends a message without keys: which grants are whole, and which are given back. It says whether all
// are committed.
func (r *serving) commitAndAbort(who effects.Incarnation, commit, abort []effects.GrantID) bool {
	r.t.Helper()
	numbers := func(ids []effects.GrantID) (list []uint64) {
		for _, id := range ids {
			list = append(list, uint64(id))
		}
		return list
	}
	q := r.requestPages(who, nil, func(m *protocol.AllocRequest) {
		m.Ext.Commit, m.Ext.Abort = numbers(commit), numbers(abort)
	})
	return len(r.replies[q].Ext.Committed) == len(commit)
}

func (r *serving) commit(who effects.Incarnation, id effects.GrantID) bool {
	r.t.Helper()
	return r.commitAndAbort(who, []effects.GrantID{id}, nil)
}

// grantedPages says which pages a request got; ok is false while it waits.
func (r *serving) grantedPages(q effects.Request) (pages []int64, code effects.Code, ok bool) {
	m, ok := r.replies[q]
	return m.RemoteIndexes, effects.Code(m.Ext.Code), ok
}

func (r *serving) landPages(g effects.Grant, pages []effects.Page) {
	r.t.Helper()
	r.step(&effects.Landed{Landing: 1, Grant: g.ID, Peer: g.Peer, Pages: pages, Complete: len(pages) == len(g.Pages)})
}

func (r *serving) confirmRevokes() {
	r.t.Helper()
	for _, id := range r.revokes {
		r.step(&effects.Revoked{Grant: id})
	}
	r.revokes = nil
}

func (r *serving) advance(d effects.Duration) {
	r.t.Helper()
	end := r.now.Add(d)
	for {
		at, ok := r.rank.Deadline()
		if !ok || at > end {
			break
		}
		r.now = max(r.now, at)
		r.step(&effects.Tick{})
	}
	r.now = end
}

// command gives the engine's command.
func (r *serving) command(body effects.CommandBody) effects.Ticket {
	r.t.Helper()
	r.tickets++
	t := r.tickets
	r.step(&effects.Command{Ticket: t, Body: body})
	return t
}

func (r *serving) get(wait effects.Duration, list [][]byte) effects.Ticket {
	r.t.Helper()
	return r.command(&engine.Get{Request: []byte("r"), Keys: list, Wait: wait})
}

func (r *serving) release(got effects.Ticket) effects.Code {
	r.t.Helper()
	return r.outcomes[r.command(&engine.Unpin{Got: got})].Code
}

func (r *serving) wantGranted(q effects.Request, n int) {
	r.t.Helper()
	if pages, code, ok := r.grantedPages(q); !ok || code != effects.OK || len(pages) != n {
		r.t.Fatalf("request %d got pages %v, code %v, answered %v; want %d pages", q, pages, code, ok, n)
	}
}

func (r *serving) wantWaits(qs ...effects.Request) {
	r.t.Helper()
	for _, q := range qs {
		if pages, code, ok := r.grantedPages(q); ok {
			r.t.Fatalf("request %d got pages %v, code %v; it should wait", q, pages, code)
		}
	}
}

func (r *serving) wantRefused(q effects.Request, want effects.Code) {
	r.t.Helper()
	m, ok := r.replies[q]
	if code := effects.Code(m.Ext.Code); !ok || !m.AllocFailed || code != want || len(m.RemoteIndexes) != 0 {
		r.t.Fatalf("request %d: answered %v, failed %v as %v with pages %v; want %v", q, ok, m.AllocFailed, code,
			m.RemoteIndexes, want)
	}
}
