package world

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Node is a process: a machine, the memory of its pool, and its engine. The state that belongs to one incarnation is
// replaced as a whole when the node starts again.
type Node struct {
	ID     int32
	Facets facets
	Pulls  bool   // peers read the node's chunks
	Delays bool   // keeps deferred offers
	Caches bool   // keeps chunks that no request expects any more
	Lends  bool   // lends chunks to peers on request
	Moved  bool   // this incarnation has a second address, to which peers send done messages and lease renewals
	Life   uint32 // number of the incarnation, from 0
	Up     bool
	Thaw   int64 `snap:"instant"` // the process is frozen until this instant
	Frozen int64 // total time spent frozen, for deadlines
	Clock

	Machine effects.Machine
	target  *commTarget       // of a plane of communicators
	Listens []effects.Channel `snap:"share"` // the channels on which the node listens
	Side    any               `snap:"share"` // the system's own state of this node
	User    bool              // the machine is a user's and not a rank
	Out     effects.Effects   `snap:"scratch"`
	Memory
	Grants    map[effects.GrantID]*Grant `snap:"bag"`
	Links     []*Link                    `snap:"skip"` // imported by this incarnation, in order
	Missed    []Delivery                 `snap:"bag"`  // one-way messages that arrived while the node was down
	TickAt    int64                      `snap:"skip"` // when the outstanding tick is due; 0: none is outstanding
	TickGen   uint64                     `snap:"skip"`
	Keys      map[uint64]uint32          `snap:"share"` // by the hashes of this incarnation's machine
	Known     int                        `snap:"skip"`  // number of entries of Keys that are numbered
	Backlog   []Delivery                 // deliveries that arrived while the node was frozen, in order
	thawed    []Delivery                 `snap:"scratch"` // memory of an earlier backlog, for the next one
	planeAt   int64                      `snap:"skip"`    // when the latest plane completion is due: keeps them in order
	Steps     uint64                     `snap:"skip"`
	Busy      bool                       `snap:"skip"` // the machine has more work at the instant of the last step
	busy      int                        `snap:"skip"` // number of consecutive steps with Busy
	Trap      Trap
	twice     bool                    // crashes again as soon as the node is up
	again     uint64                  // place in the plan of the fault that sets twice
	slow      int64                   // until then each step takes long
	Leaving   bool                    // the node was asked to drain, or will be
	Draining  bool                    // the machine was asked to drain
	ordinals  [draw.Labels]uint64     `snap:"skip"` // number of draws so far under each label, in this incarnation
	opened    map[plan.Subject]uint32 `snap:"skip"` // connections of this incarnation to each server, to name the next
	transfers uint32                  `snap:"skip"` // transfers of this incarnation, to name the next
	copies    uint32                  `snap:"skip"` // copies of this incarnation, to name the next

	events scratch `snap:"scratch"`
}

// Memory describes the pages of an incarnation of a node. Pool contains the engine's pages, then the arena, then the
// pages of the second pool.
type Memory struct {
	Pool   *Pool `snap:"whole"`
	Arena  int   `snap:"skip"` // number of arena pages, which only peers access: they read copies there
	Second int   `snap:"skip"` // number of pages of the second pool, which peers address by a buffer of its own
}

// scratch holds one event of each kind, which is used again in every step.
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

// Pools describes the memory of an incarnation of a node.
type Pools struct {
	Pages     uint32
	Arena     uint32 // number of arena pages, in addition to Pages
	Second    uint32 // number of pages of a second pool, in addition to both; peers address it as SecondBuffer
	PageBytes uint32
	Leased    bool             // peers stop by themselves when their lease ends
	Writes    effects.Duration // how long a write grant allows a peer to write
	Reads     effects.Duration // how long a read lease allows a peer to read
	Buffer    effects.BufferID // by which peers address the memory

	SecondBuffer effects.BufferID
}

// start begins a new incarnation of n.
func (n *Node) start(w *World) error {
	m, err := w.System.Boot(n)
	if err != nil {
		return fmt.Errorf("sim: node %d: %w", n.ID, err)
	}
	n.Up = true
	if n.Life > 0 {
		n.Pool.past, n.Grants = n.Grants, nil
	}
	former := n.Pool
	n.Pool, n.Arena, n.Second = n.newPool(w, &m, m.Pages+m.Arena+m.Second), int(m.Arena), int(m.Second)
	n.Pool.second, n.Pool.from = m.SecondBuffer, m.Pages+m.Arena
	if w.Careless == MemoryGivenOn && former != nil && former.after != afterNothing {
		former.giveOn(w, n.Pool)
	}
	if w.Setting.Communicators && !n.User {
		n.target = newCommTarget(w.Seed)
	}
	n.Grants, n.Keys, n.opened = Emptied(n.Grants), Emptied(n.Keys), Emptied(n.opened)
	n.Leaving, n.Draining = false, false
	n.Busy, n.busy = false, 0
	n.Known, n.transfers, n.copies, n.ordinals = 0, 0, 0, [draw.Labels]uint64{}
	n.Links = n.Links[:0]
	n.TickAt, n.Trap, n.Backlog = 0, Trap{}, n.Backlog[:0]
	n.Out.Reset()
	if !n.User {
		OnStarted.Report(&w.Panel, n.ID, Started{n, m.Buffer})
		w.Buffers[m.Buffer] = n.Pool
		if m.Second > 0 {
			w.Buffers[m.SecondBuffer] = n.Pool
		}
	}
	return nil
}

// Subject names this incarnation in draws.
func (n *Node) Subject() plan.Subject { return plan.AboutNode(n.ID, n.Life) }

// AsSubject returns the node as a subject of a failure. PageSubject returns a page of the node as a subject, and
// GrantSubject a grant of the present incarnation.
func (n *Node) It() oracle.Node                          { return oracle.Node(n.ID) }
func (n *Node) ItsPage(index uint32) oracle.Page         { return oracle.Page{Node: n.ID, Index: index} }
func (n *Node) ItsGrant(id effects.GrantID) oracle.Grant { return oracle.Grant{Node: n.ID, ID: id} }

// draw returns the next draw for a node under a label. Each label has a separate count.
func (n *Node) draw(w *World, l draw.Label) draw.Of {
	n.ordinals[l]++
	return draw.Hash(w.Seed, l, uint64(n.Subject()), n.ordinals[l])
}

// serves reports whether the node listens on a channel.
func (n *Node) serves(ch effects.Channel) bool { return slices.Contains(n.Listens, ch) }

// Lives reports whether an incarnation of a node is still running.
func (w *World) Lives(node int32, life uint32) bool {
	n := w.Nodes[node]
	return n.Up && n.Life == life
}

// InArena reports whether a page belongs to the arena, and InSecondPool whether a page belongs to the second pool.
// EnginePages returns the number of the remaining pages.
func (m *Memory) InArena(index uint32) bool  { return int(index) >= m.Engines() && !m.InSecond(index) }
func (m *Memory) InSecond(index uint32) bool { return int(index) >= m.Engines()+m.Arena }
func (m *Memory) Engines() int               { return len(m.Pool.Pages) - m.Arena - m.Second }

// PagesShown returns the number of pages of a node.
func (m *Memory) PagesShown() int { return len(m.Pool.Pages) }

// Thaws reports whether the node has resumed at this instant after it was frozen. Deadlines at different times then
// expire in one step, so what the step reports first may no longer hold at its end.
func (n *Node) Thaws(now int64) bool { return n.Thaw == now && n.Frozen > 0 }
