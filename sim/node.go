package sim

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// node is one process: a machine, the memory of its pool, and its engine.
// What belongs to one life is replaced as a whole when it starts again.
type node struct {
	id     int32
	facets facets
	pulls  bool // others read its chunks
	delays bool // it keeps offers
	caches bool // it keeps what nobody expects any more
	lends  bool // what it has may be read back
	life   uint32
	up     bool
	// sentBefore are the requests of its life on connections with a window.
	sentBefore []sentBefore `snap:"skip"`
	thaw       int64        `snap:"instant"` // frozen until then
	frozen     int64        // how long it was frozen in all, for deadlines
	offset     int64        // of its clock at the start
	drift      ppm          // of its clock

	machine effects.Machine
	target  *commTarget       // of a plane of communicators
	listens []effects.Channel `snap:"share"` // on which channels
	own     *ownNode          `snap:"share"` // nil: it is a rank
	pd
	out       effects.Effects            `snap:"scratch"`
	pool      *pool                      `snap:"whole"` // that peers touch; also the engine's, unless there are two
	device    *pool                      `snap:"skip"`  // the engine's, if there are
	grants    map[effects.GrantID]*grant `snap:"bag"`
	links     []*link                    `snap:"skip"` // that this life imported, in order
	missed    []delivery                 `snap:"bag"`  // what was told to it while it was down
	tickAt    int64                      `snap:"skip"` // of the one outstanding tick; 0 is none
	tickGen   uint64                     `snap:"skip"`
	keys      map[uint64]uint32          `snap:"share"` // by the hashes of this life's machine
	known     int                        `snap:"skip"`  // those in there are numbered below
	backlog   []delivery                 // what came while it was frozen, in order
	thawed    []delivery                 `snap:"scratch"` // a backlog's memory, for the next
	planeAt   int64                      `snap:"skip"`    // plane completions keep their order
	steps     uint64                     `snap:"skip"`
	trap      trap
	twice     bool                    // it will crash again as soon as it is up
	again     uint64                  // the fault that says so, by its place in the plan
	slow      int64                   // until then each of its steps takes long
	leaving   bool                    // it was told to drain, or will be
	draining  bool                    // its machine was told to
	ordinals  [draw.Labels]uint64     `snap:"skip"` // per label, for draws about this life
	opened    map[plan.Subject]uint32 `snap:"skip"` // connections of this life to each server, to name the next
	transfers uint32                  `snap:"skip"` // of this life, likewise
	copies    uint32                  `snap:"skip"` // likewise

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

// pools is what memory a life of a node has.
type pools struct {
	pages     uint32
	hostPages uint32 // of a pool that peers read, where that is another
	host      effects.PoolID
	pageBytes uint32
	leased    bool             // peers keep out of it when their time is over, by themselves
	writes    effects.Duration // how long a peer may write what it was granted
	reads     effects.Duration // and read what it was lent
	buffer    effects.BufferID // what peers call it
}

// start gives n a new life.
func (w *world) start(n *node) error {
	m, err := w.system.boot(w, n)
	if err != nil {
		return fmt.Errorf("sim: node %d: %w", n.id, err)
	}
	n.up = true
	if n.life > 0 {
		n.pool.past, n.grants = n.grants, nil
	}
	former := n.pool
	n.pool, n.device = w.newPool(n, &m, m.pages), nil
	if m.hostPages > 0 {
		n.device, n.pool = n.pool, w.newPool(n, &m, m.hostPages)
		n.pool.number, n.pool.engines = m.host, n.device
	}
	if w.careless == memoryGivenOn && former != nil && former.after != afterNothing {
		w.giveOn(former, n.pool)
	}
	if w.plan.Communicators && n.own == nil {
		n.target = newCommTarget(w.seed)
	}
	n.grants, n.keys, n.opened = emptied(n.grants), emptied(n.keys), emptied(n.opened)
	n.leaving, n.draining = false, false
	n.known, n.transfers, n.copies, n.ordinals = 0, 0, 0, [draw.Labels]uint64{}
	n.links = n.links[:0]
	n.tickAt, n.trap, n.backlog = 0, trap{}, n.backlog[:0]
	n.out.Reset()
	if n.own == nil {
		w.oracles.started(n, m.buffer)
	}
	return nil
}

// subject names this life in draws.
func (n *node) subject() plan.Subject { return plan.AboutNode(n.id, n.life) }

// it is the node in sentences of failures, itsPage one of its pages, and itsGrant a grant of its present life.
func (n *node) it() oracle.Node                          { return oracle.Node(n.id) }
func (n *node) itsPage(index uint32) oracle.Page         { return oracle.Page{Node: n.id, Index: index} }
func (n *node) itsGrant(id effects.GrantID) oracle.Grant { return oracle.Grant{Node: n.id, ID: id} }

// draw draws for a node under a label; every label counts by itself.
func (w *world) draw(l draw.Label, n *node) draw.Of {
	n.ordinals[l]++
	return draw.Hash(w.seed, l, uint64(n.subject()), n.ordinals[l])
}

// serves says whether a node listens on a channel.
func (n *node) serves(ch effects.Channel) bool { return slices.Contains(n.listens, ch) }
