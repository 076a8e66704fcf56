package sim

import (
	"bytes"
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

// node is one process: a rank machine, the memory of its pool, and its engine.
// What belongs to one life is replaced as a whole when it starts again.
type node struct {
	id     int32
	sender bool
	host   string
	pulls  bool      // it is a sender whose chunks are read
	delays bool      // it is a receiver that keeps offers
	ports  [4]uint16 // by Channel-1
	life   uint32
	up     bool
	thaw   int64 `snap:"instant"` // frozen until then
	frozen int64 // how long it was frozen in all, for deadlines
	offset int64 // of its clock at the start
	drift  ppm   // of its clock

	machine     *rank.Rank
	cfg         rank.Config                `snap:"share"`
	incarnation effects.Incarnation        `snap:"skip"`
	key         identity.Key               `snap:"skip"` // of this life
	names       []effects.Incarnation      `snap:"skip"` // that it has for other nodes, once they were asked for
	out         effects.Effects            `snap:"scratch"`
	pool        *pool                      `snap:"whole"` // that peers touch; also the engine's, unless there are two
	device      *pool                      `snap:"skip"`  // the engine's, if there are
	grants      map[effects.GrantID]*grant `snap:"bag"`
	links       []*link                    `snap:"skip"` // that this life imported, in order
	missed      []delivery                 `snap:"bag"`  // what was told to it while it was down
	tickAt      int64                      `snap:"skip"` // of the one outstanding tick; 0 is none
	tickGen     uint64                     `snap:"skip"`
	keys        map[uint64]uint32          `snap:"share"` // by the hashes of this life's machine
	known       int                        `snap:"skip"`  // those in there are numbered below
	backlog     []delivery                 // what came while it was frozen, in order
	thawed      []delivery                 `snap:"scratch"` // a backlog's memory, for the next
	planeAt     int64                      `snap:"skip"`    // plane completions keep their order
	steps       uint64                     `snap:"skip"`
	trap        trap
	twice       bool               // it will crash again as soon as it is up
	again       uint64             // the fault that says so, by its place in the plan
	slow        int64              // until then each of its steps takes long
	leaving     bool               // it was told to drain, or will be
	draining    bool               // its machine was told to
	seen        queueSeen          // by the ledger
	ordinals    [labels]uint64     `snap:"skip"` // per label, for draws about this life
	opened      map[Subject]uint32 `snap:"skip"` // connections of this life to each server, to name the next
	transfers   uint32             `snap:"skip"` // of this life, likewise
	copies      uint32             `snap:"skip"` // likewise

	// callers has the names that this life has for who called it, by theirs, once they were asked for.
	callers map[effects.Incarnation]effects.Incarnation `snap:"scratch"`

	events scratch `snap:"scratch"`
}

// scratch holds one event of each kind, used again for every step.
type scratch struct {
	tick         effects.Tick
	command      effects.Command
	received     effects.Received
	opened       effects.Opened
	connLost     effects.ConnLost
	replied      effects.Replied
	unanswered   effects.Unanswered
	sendDone     effects.SendDone
	imported     effects.Imported
	linkLost     effects.LinkLost
	transferDone effects.TransferDone
	settled      effects.Settled
	copyDone     effects.CopyDone
	landed       effects.Landed
	revoked      effects.Revoked
	dropped      effects.Dropped
	pages        []effects.Page
}

// start gives n a new life.
func (w *world) start(n *node) error {
	cfg := w.plan.Rank
	cfg.Pages = w.plan.ReceiverPages
	cfg.Role = rank.RoleReceiver
	if cfg.Delay = n.delays; n.delays {
		cfg.StagingPages = min(w.source.Bounds.Staging, cfg.Pages)
	}
	if n.sender {
		cfg.Role, cfg.Pages, cfg.Proxy = rank.RoleSender, w.plan.SenderPages, effects.Addr{Host: w.proxyHost, Port: 1}
		cfg.Rank = uint32(n.id)
		if w.plan.Mismatch && n.id == 0 {
			cfg.Layout = otherLayout(hash(w.seed, drawIdentity, 0, 0))
		}
	}
	if n.pulls {
		cfg.Pull, cfg.DoneAddr = true, effects.Addr{Host: n.host, Port: n.ports[effects.ChannelDone-1]}
		cfg.HostPages = w.source.Topology.HostPages
		cfg.RenewAddr = effects.Addr{Host: n.host, Port: n.ports[effects.ChannelInit-1]}
	}
	cfg.LocalID = protocol.JoinedID(n.host, n.ports[0])
	cfg.Planes = []rank.Plane{{Name: "sim", Blob: []byte{byte(n.id), byte(n.life)}}}
	seed := uint64(hash(w.seed, drawIdentity, uint64(n.id), uint64(n.life)))
	cfg.Key = identity.KeyOf(seed)
	machine, err := rank.New(cfg, seed, w.clock(n))
	if err != nil {
		return fmt.Errorf("sim: node %d: %w", n.id, err)
	}
	n.machine, n.cfg, n.up = machine, cfg, true
	n.incarnation, n.key, n.names = machine.Incarnation(), cfg.Key, n.names[:0]
	if n.life > 0 {
		n.pool.past, n.grants = n.grants, nil
	}
	former := n.pool
	n.pool, n.device = w.newPool(n, cfg.Pages), nil
	if cfg.HostPages > 0 {
		n.device, n.pool = n.pool, w.newPool(n, cfg.HostPages)
		n.pool.number, n.pool.engines = rank.HostPool, n.device
	}
	if w.careless == memoryGivenOn && former != nil && former.after != afterNothing {
		w.giveOn(former, n.pool)
	}
	n.grants, n.keys, n.opened, n.callers = emptied(n.grants), emptied(n.keys), emptied(n.opened), emptied(n.callers)
	n.leaving, n.draining, n.seen = false, false, n.seen.emptied()
	n.known, n.transfers, n.copies, n.ordinals = 0, 0, 0, [labels]uint64{}
	n.links = n.links[:0]
	n.tickAt, n.trap, n.backlog = 0, trap{}, n.backlog[:0]
	n.out.Reset()
	w.ledger.started(n, machine.Buffer())
	return nil
}

// is says whether a name is one that this life of n has for anybody.
func (n *node) is(name effects.Incarnation) bool { return identity.OneLife(name, n.incarnation) }

// invited says whether n's machine gave this token to the peer of that name, to whom n is us.
func (n *node) invited(peer, us effects.Incarnation, token []byte) bool {
	want := n.key.Token("sim", peer, us)
	return bytes.Equal(token, want[:])
}

// subject names this life in draws.
func (n *node) subject() Subject { return aboutNode(n.id, n.life) }

// draw draws for a node under a label; every label counts by itself.
func (w *world) draw(l label, n *node) draw {
	n.ordinals[l]++
	return hash(w.seed, l, uint64(n.subject()), n.ordinals[l])
}
