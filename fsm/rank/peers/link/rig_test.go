package link

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

const (
	pageBytes    = 64
	replyTimeout = effects.Second
	backoffMin   = 10 * effects.Millisecond
	backoffMax   = 200 * effects.Millisecond
	peersMax     = 2
	leftoversMax = 12
	spokeFor     = 60 * effects.Second
)

var (
	key1, key2   = identity.Key{1}, identity.Key{2}
	ours         = key1.OutboundName("h1", 11, 12)
	theirs       = key2.InboundName(ours)
	receiverAddr = PeerAddr{Host: "h1", InitPort: 11, AllocPort: 12}
	layout       = protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: protocol.DtypeHalf,
		Shape: protocol.Shape{Dims: [4]uint32{2, 1, 4, 4}, N: 4}}
)

// rig is the room alone, with a driver that only remembers what it was asked for.
type rig struct {
	t       *testing.T
	links   Links
	peer    Links // the other end, which only answers
	pools   memory.Pools
	pool    *memory.Pool
	timers  kernel.Timers
	corrs   kernel.Corrs
	conns   kernel.Conns
	out     effects.Effects
	now     effects.Time
	conn    effects.Conn
	opens   []effects.Open
	sends   []effects.Send
	bodies  [][]byte
	closes  []effects.Conn
	drops   []effects.Link
	imports []effects.Import
	replies [][]byte
}

func config(key identity.Key) Config {
	return Config{
		Settings: Settings{LocalID: "h:1", PeersMax: peersMax}, Layout: layout, PageBytes: pageBytes, Pages: 4,
		Buffer: protocol.UUID{7, key[0]}, Key: key, PlaneNames: [][]byte{[]byte("shm"), []byte("tcp")},
		PlaneBlobs: [][]byte{[]byte("s"), []byte("t")}, ReplyTimeout: replyTimeout, BackoffMin: backoffMin,
		BackoffMax: backoffMax, Directions: 1, Wire: protocol.DefaultLimits(), LeftoversMax: leftoversMax,
		PlainsMax: 16, ProvenPeerBonus: spokeFor,
	}
}

func newRig(t *testing.T) *rig {
	r := &rig{
		t: t, links: New(config(key1), 1), peer: New(config(key2), 2),
		timers: kernel.NewTimers(32), corrs: kernel.NewCorrs(64), conns: kernel.NewConns(ConnsMax(peersMax)),
		now: effects.Time(effects.Second),
	}
	r.pools = memory.New(4, r.links.CountClasses(), prng.Shuffle{}, memory.PoolConfig{Pages: 4, ClassShare: 4})
	r.pool = r.pools.Pool(0)
	return r
}

// runStep runs a part of a step and takes what it asked for.
func (r *rig) runStep(f func(v *env.Env)) {
	r.out.Reset()
	f(&env.Env{
		Now: r.now, Out: &r.out, Pools: &r.pools, Pool: r.pool, Timers: &r.timers, Corrs: &r.corrs, Conns: &r.conns,
	})
	r.checkConns()
	for i := range r.out.Len() {
		switch e := r.out.At(i).(type) {
		case *effects.Open:
			r.opens = append(r.opens, *e)
		case *effects.Send:
			r.sends = append(r.sends, *e)
			r.bodies = append(r.bodies, append([]byte(nil), e.Body...))
		case *effects.Close:
			r.closes = append(r.closes, e.Conn)
		case *effects.Drop:
			r.drops = append(r.drops, e.Link)
		case *effects.Import:
			kept := *e
			kept.Blob = append([]byte(nil), e.Blob...)
			r.imports = append(r.imports, kept)
		case *effects.Reply:
			r.replies = append(r.replies, append([]byte(nil), e.Body...))
		case *effects.Observe:
		default:
			r.t.Fatalf("links ask for %T", e)
		}
	}
}

// checkConns holds that the connections which peers have are theirs by the table, and that there are no others.
func (r *rig) checkConns() {
	r.t.Helper()
	open := 0
	for slot := range r.links.out.peers.Slots() {
		h := r.links.out.peers.At(slot)
		p := r.links.out.peers.Get(h)
		if p == nil {
			continue
		}
		for i, c := range append([]Conn{p.conn}, p.lanes[:]...) {
			if c.id == 0 {
				continue
			}
			open++
			kind := kindOpenInit
			if i > 0 {
				kind = kindOpenLane + uint8(i-1)
			}
			if ref := r.conns.Find(c.id); ref.Owner != kernel.OwnerLink || ref.Subject != h || ref.Kind != kind {
				r.t.Fatalf("connection %d of peer %d, kind %d, is said to be %+v's", c.id, h, kind, ref)
			}
		}
	}
	if r.conns.Len() != open {
		r.t.Fatalf("%d connections in the table, %d with peers", r.conns.Len(), open)
	}
}

func (r *rig) releaseLane(h table.Handle, lane Lane, conn effects.Conn) {
	r.runStep(func(v *env.Env) { r.links.ReleaseLane(v, h, lane, conn) })
}

func (r *rig) acquirePeer(w PeerAddr) (h table.Handle) {
	r.runStep(func(v *env.Env) { h = r.links.AcquirePeer(v, w) })
	return h
}

func (r *rig) closeCorr(c effects.Corr) kernel.Ref {
	r.t.Helper()
	ref, ok := r.corrs.Close(c)
	if !ok {
		r.t.Fatalf("corr %d is not outstanding", c)
	}
	return ref
}

// completeOpen completes the oldest Open.
func (r *rig) completeOpen(code effects.Code) (effects.Open, effects.Conn) {
	r.t.Helper()
	if len(r.opens) == 0 {
		r.t.Fatal("nothing was opened")
	}
	e := r.opens[0]
	r.opens = r.opens[1:]
	conn := effects.Conn(0)
	if code == effects.OK {
		r.conn++
		conn = r.conn
	}
	r.runStep(func(v *env.Env) {
		r.links.OnOpened(v, r.closeCorr(e.Corr), &effects.Opened{Corr: e.Corr, Conn: conn, Code: code})
	})
	return e, conn
}

// answerSend lets the other end answer the oldest Send, and changes the answer if change is set.
func (r *rig) answerSend(change func([]byte) []byte) effects.Conn {
	r.t.Helper()
	return r.answer(0, change)
}

// answerAs lets the other end answer the oldest Send with an identity.
func (r *rig) answerAs(server effects.Principal) {
	r.t.Helper()
	r.answer(server, nil)
}

func (r *rig) answer(server effects.Principal, change func([]byte) []byte) effects.Conn {
	r.t.Helper()
	if len(r.sends) == 0 {
		r.t.Fatal("nothing was sent")
	}
	e, body := r.sends[0], r.bodies[0]
	r.sends, r.bodies = r.sends[1:], r.bodies[1:]
	r.runStep(func(v *env.Env) {
		r.peer.HandleInit(v, &effects.Received{Conn: 1, Channel: effects.ChannelInit, Request: 1, Body: body},
			make([]uint32, r.peer.CountClasses()))
	})
	answer := r.replies[len(r.replies)-1]
	if change != nil {
		answer = change(answer)
	}
	r.runStep(func(v *env.Env) {
		r.links.OnReplied(v, r.closeCorr(e.Corr), &effects.Replied{Principal: server, Body: answer})
	})
	return e.Conn
}

func (r *rig) completeImport(code effects.Code, id effects.Link) effects.Import {
	r.t.Helper()
	if len(r.imports) == 0 {
		r.t.Fatal("nothing was imported")
	}
	e := r.imports[0]
	r.imports = r.imports[1:]
	r.runStep(func(v *env.Env) {
		r.links.OnImported(v, r.closeCorr(e.Corr), &effects.Imported{Corr: e.Corr, Link: id, Code: code})
	})
	return e
}

// shakeHands shakes hands to the end.
func (r *rig) shakeHands(id effects.Link) table.Handle {
	r.t.Helper()
	h := r.acquirePeer(receiverAddr)
	r.completeOpen(effects.OK)
	r.answerSend(nil)
	r.completeImport(effects.OK, id)
	r.answerSend(nil)
	r.wantState(h, Ready)
	return h
}

func (r *rig) wantState(h table.Handle, want State) {
	r.t.Helper()
	if got, cause := r.links.Outbound(h).State(); got != want {
		r.t.Fatalf("state %d because of %v; want %d", got, cause, want)
	}
}

// runNextTimer moves to the next deadline and lets it happen.
func (r *rig) runNextTimer() effects.Duration {
	r.t.Helper()
	at, ok := r.timers.NextDeadline()
	if !ok {
		r.t.Fatal("nothing is due")
	}
	waited := at.Sub(r.now)
	r.now = at
	ref, _ := r.timers.Pop(at)
	r.runStep(func(v *env.Env) { r.links.OnHandshakeTimer(v, ref) })
	return waited
}

// admitPeer lets somebody in who says hello, or returns zero.
func admitPeer(v *env.Env, l *Links, peer effects.Incarnation, busy []uint32) table.Handle {
	i := l.viewInbound(v)
	return i.admitPeer(peer, 0, busy)
}

func hasInbound(l *Links, peer effects.Incarnation) bool {
	i := l.viewInbound(nil)
	return i.findInbound(peer) != 0
}
