package world

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Node is one process: a machine, the memory of its pool, and its engine. What belongs to one life is replaced as a
// whole when it starts again.
type Node struct {
	ID     int32
	Facets facets
	Pulls  bool // others read its chunks
	Delays bool // it keeps offers
	Caches bool // it keeps what nobody expects any more
	Lends  bool // what it has is lent to peers who ask for it
	Moved  bool // this life has a second address, where ends are told to it and leases renewed
	Life   uint32
	Up     bool
	Thaw   int64 `snap:"instant"` // frozen until then
	Frozen int64 // how long it was frozen in all, for deadlines
	Clock

	Machine effects.Machine
	target  *commTarget       // of a plane of communicators
	Listens []effects.Channel `snap:"share"` // on which channels
	Side    any               `snap:"share"` // what the system keeps of this life
	User    bool              // its machine is a user's, and no rank
	Out     effects.Effects   `snap:"scratch"`
	Memory
	Grants    map[effects.GrantID]*Grant `snap:"bag"`
	Links     []*Link                    `snap:"skip"` // that this life imported, in order
	Missed    []Delivery                 `snap:"bag"`  // what was told to it while it was down
	TickAt    int64                      `snap:"skip"` // of the one outstanding tick; 0 is none
	TickGen   uint64                     `snap:"skip"`
	Keys      map[uint64]uint32          `snap:"share"` // by the hashes of this life's machine
	Known     int                        `snap:"skip"`  // those in there are numbered below
	Backlog   []Delivery                 // what came while it was frozen, in order
	thawed    []Delivery                 `snap:"scratch"` // a backlog's memory, for the next
	planeAt   int64                      `snap:"skip"`    // plane completions keep their order
	Steps     uint64                     `snap:"skip"`
	Busy      bool                       `snap:"skip"` // its machine has work left of the instant of its last step
	busy      int                        `snap:"skip"` // steps since it had none
	Trap      Trap
	twice     bool                    // it will crash again as soon as it is up
	again     uint64                  // the fault that says so, by its place in the plan
	slow      int64                   // until then each of its steps takes long
	Leaving   bool                    // it was told to drain, or will be
	Draining  bool                    // its machine was told to
	ordinals  [draw.Labels]uint64     `snap:"skip"` // per label, for draws about this life
	opened    map[plan.Subject]uint32 `snap:"skip"` // connections of this life to each server, to name the next
	transfers uint32                  `snap:"skip"` // of this life, likewise
	copies    uint32                  `snap:"skip"` // likewise

	events scratch `snap:"scratch"`
}

// Memory is what pages a life of a node has.
type Memory struct {
	Pool   *Pool `snap:"whole"`
	Arena  int   `snap:"skip"` // of so many pages at the end of Pool nobody has any but peers, who read copies there
	Second int   `snap:"skip"` // so many pages at the end of Pool, behind an arena, peers know by a buffer of their own
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

// Pools is what memory a life of a node has.
type Pools struct {
	Pages     uint32
	Arena     uint32 // beside Pages
	Second    uint32 // of a second pool beside both, which peers know as SecondBuffer
	PageBytes uint32
	Leased    bool             // peers keep out of it when their time is over, by themselves
	Writes    effects.Duration // how long a peer may write what it was granted
	Reads     effects.Duration // and read what it was lent
	Buffer    effects.BufferID // what peers call it

	SecondBuffer effects.BufferID
}

// start gives n a new life.
func (n *Node) start(w *World) error {
	m, err := w.System.Boot(w, n)
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

// Subject names this life in draws.
func (n *Node) Subject() plan.Subject { return plan.AboutNode(n.ID, n.Life) }

// It is the node in sentences of failures, itsPage one of its pages, and itsGrant a grant of its present life.
func (n *Node) It() oracle.Node                          { return oracle.Node(n.ID) }
func (n *Node) ItsPage(index uint32) oracle.Page         { return oracle.Page{Node: n.ID, Index: index} }
func (n *Node) ItsGrant(id effects.GrantID) oracle.Grant { return oracle.Grant{Node: n.ID, ID: id} }

// draw draws for a node under a label; every label counts by itself.
func (n *Node) draw(w *World, l draw.Label) draw.Of {
	n.ordinals[l]++
	return draw.Hash(w.Seed, l, uint64(n.Subject()), n.ordinals[l])
}

// serves says whether a node listens on a channel.
func (n *Node) serves(ch effects.Channel) bool { return slices.Contains(n.Listens, ch) }

// Lives says whether this life of a node goes on.
func (w *World) Lives(node int32, life uint32) bool {
	n := w.Nodes[node]
	return n.Up && n.Life == life
}

// InArena says whether a page is of the arena, InSecond whether it is of the second pool, and Engines is how many others
// there are.
func (m *Memory) InArena(index uint32) bool  { return int(index) >= m.Engines() && !m.InSecond(index) }
func (m *Memory) InSecond(index uint32) bool { return int(index) >= m.Engines()+m.Arena }
func (m *Memory) Engines() int               { return len(m.Pool.Pages) - m.Arena - m.Second }

// PagesShown is how many pages a node has, and page is the one with a number, as its driver and its machine know it.
func (m *Memory) PagesShown() int { return len(m.Pool.Pages) }

// Thaws says whether a node goes on in this instant after it was frozen: deadlines that lie apart fall into one step then,
// and what the step said first may be over at its end.
func (n *Node) Thaws(now int64) bool { return n.Thaw == now && n.Frozen > 0 }
