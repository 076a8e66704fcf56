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
	ID           int32
	Roles        roles
	OffersChunks bool   // peers read the node's chunks
	KeepsOffers  bool   // keeps deferred offers
	IsCache      bool   // keeps chunks that no request expects any more
	LendsChunks  bool   // lends chunks to peers on request
	Moved        bool   // this incarnation has a second address, to which peers send done messages and lease renewals
	Roams        bool   // the node listens at both addresses, and names either
	Incarnation  uint32 // number of the incarnation, from 0
	Up           bool
	ResumeAt     int64 `snap:"instant"` // the process is frozen until this instant
	FrozenTime   int64 // total time spent frozen, for deadlines
	Clock

	Machine effects.Machine
	target  *commTarget       // of a plane of communicators
	Listens []effects.Channel `snap:"share"` // the channels on which the node listens
	State   any               `snap:"share"` // the system's own state of this node
	Custom  bool              // the machine is a user's and not a rank
	Proof   Proof             // what the node proves on its connections
	// The policy gives the node no role from ForbiddenFrom on, before ForbiddenUntil. Small worlds have no such time.
	ForbiddenFrom, ForbiddenUntil int64 `snap:"skip"`
	// ChangesHost says that every second incarnation of a user's node runs on another host.
	ChangesHost bool
	Out         effects.Effects `snap:"scratch"`
	Memory
	Grants        map[effects.GrantID]*Grant `snap:"bag"`
	Links         []*Link                    `snap:"skip"` // imported by this incarnation, in order
	Missed        []Delivery                 `snap:"bag"`  // one-way messages that arrived while the node was down
	TickAt        int64                      `snap:"skip"` // when the outstanding tick is due; 0: none is outstanding
	TickGen       uint64                     `snap:"skip"`
	Keys          map[uint64]uint32          `snap:"share"` // by the hashes of this incarnation's machine
	NumberedKeys  int                        `snap:"skip"`  // number of entries of Keys that are numbered
	Backlog       []Delivery                 // deliveries that arrived while the node was frozen, in order
	spareBacklog  []Delivery                 `snap:"scratch"` // memory of an earlier backlog, for the next one
	poolQueue     planeQueue                 `snap:"skip"`    // of what lands and of revocations
	copyQueue     planeQueue                 `snap:"skip"`    // of copies within the node
	StepCount     uint64                     `snap:"skip"`
	Busy          bool                       `snap:"skip"` // the machine has more work at the instant of the last step
	busySteps     int                        `snap:"skip"` // number of consecutive steps with Busy
	Trap          Trap
	crashesAgain  bool                    // crashes again as soon as the node is up
	faultIndex    uint64                  // place in the plan of the fault that sets twice
	slowUntil     int64                   // until then each step takes long
	Leaving       bool                    // the node was asked to drain, or will be
	Draining      bool                    // the machine was asked to drain
	drawCounts    [draw.LabelCount]uint64 `snap:"skip"` // number of draws so far under each label, in this incarnation
	connCounts    map[plan.Subject]uint32 `snap:"skip"` // connections of this incarnation to each server, to name the next
	transferCount uint32                  `snap:"skip"` // transfers of this incarnation, to name the next
	copyCount     uint32                  `snap:"skip"` // copies of this incarnation, to name the next

	events eventBuffers `snap:"scratch"`
}

// Memory describes the pages of an incarnation of a node. Pool contains the engine's pages, then the arena, then the
// pages of the second pool.
type Memory struct {
	Pool        *Pool `snap:"whole"`
	ArenaPages  int   `snap:"skip"` // number of arena pages, which only peers access: they read copies there
	SecondPages int   `snap:"skip"` // number of pages of the second pool, which peers address by a buffer of its own
}

// eventBuffers holds one event of each kind, which is used again in every step.
type eventBuffers struct {
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
	verified     effects.Verified
	revoked      effects.Revoked
	dropped      effects.Dropped
	pages        []effects.Page
}

// Pools describes the memory of an incarnation of a node.
type Pools struct {
	Pages       uint32
	ArenaPages  uint32 // number of arena pages, in addition to Pages
	SecondPages uint32 // number of pages of a second pool, in addition to both; peers address it as SecondBuffer
	PageBytes   uint32
	Leased      bool             // peers stop by themselves when their lease ends
	WriteTime   effects.Duration // how long a write grant allows a peer to write
	ReadTime    effects.Duration // how long a read lease allows a peer to read
	Buffer      effects.BufferID // by which peers address the memory

	SecondBuffer effects.BufferID
}

// startIncarnation begins a new incarnation of n.
func (n *Node) startIncarnation(w *World) error {
	pools, err := w.System.BootNode(n)
	if err != nil {
		return fmt.Errorf("sim: node %d: %w", n.ID, err)
	}
	n.Up = true
	if n.Incarnation > 0 {
		n.Pool.pastGrants, n.Grants = n.Grants, nil
	}
	former := n.Pool
	n.Pool, n.ArenaPages, n.SecondPages = n.newPool(w, &pools, pools.Pages+pools.ArenaPages+pools.SecondPages), int(pools.ArenaPages),
		int(pools.SecondPages)
	n.Pool.secondBuffer, n.Pool.secondFirst = pools.SecondBuffer, pools.Pages+pools.ArenaPages
	if w.DriverMistake == MemoryReused && former != nil && former.state != poolNormal {
		former.giveToNextRank(w, n.Pool)
	}
	if w.Conditions.Communicators && !n.Custom {
		n.target = newCommTarget(w)
	}
	n.Grants, n.Keys, n.connCounts = RecycleMap(n.Grants), RecycleMap(n.Keys), RecycleMap(n.connCounts)
	n.Leaving, n.Draining = false, false
	n.Busy, n.busySteps = false, 0
	n.NumberedKeys, n.transferCount, n.copyCount, n.drawCounts = 0, 0, 0, [draw.LabelCount]uint64{}
	n.Links = n.Links[:0]
	n.TickAt, n.Trap, n.Backlog = 0, Trap{}, n.Backlog[:0]
	n.Out.Reset()
	if !n.Custom {
		OnNodeStarted.Report(&w.Panel, n.ID, NodeStarted{n, pools.Buffer})
		w.Buffers[pools.Buffer] = n.Pool
		if pools.SecondPages > 0 {
			w.Buffers[pools.SecondBuffer] = n.Pool
		}
	}
	return nil
}

// Subject names this incarnation in draws.
func (n *Node) Subject() plan.Subject { return plan.AboutNode(n.ID, n.Incarnation) }

// AsSubject returns the node as a subject of a failure. PageSubject returns a page of the node as a subject, and
// GrantSubject a grant of the present incarnation.
func (n *Node) AsSubject() oracle.Node                       { return oracle.Node(n.ID) }
func (n *Node) PageSubject(index uint32) oracle.Page         { return oracle.Page{Node: n.ID, Index: index} }
func (n *Node) GrantSubject(id effects.GrantID) oracle.Grant { return oracle.Grant{Node: n.ID, ID: id} }

// nextDraw returns the next draw for a node under a label. Each label has a separate count.
func (n *Node) nextDraw(w *World, l draw.Label) draw.Value {
	n.drawCounts[l]++
	return draw.Hash(w.Seed, l, uint64(n.Subject()), n.drawCounts[l])
}

// listensOn reports whether the node listens on a channel.
func (n *Node) listensOn(ch effects.Channel) bool { return slices.Contains(n.Listens, ch) }

// IsRunning reports whether an incarnation of a node is still running.
func (w *World) IsRunning(node int32, life uint32) bool {
	n := w.Nodes[node]
	return n.Up && n.Incarnation == life
}

// InArena reports whether a page belongs to the arena, and InSecondPool whether a page belongs to the second pool.
// EnginePages returns the number of the remaining pages.
func (m *Memory) InArena(index uint32) bool {
	return int(index) >= m.EnginePages() && !m.InSecondPool(index)
}
func (m *Memory) InSecondPool(index uint32) bool { return int(index) >= m.EnginePages()+m.ArenaPages }
func (m *Memory) EnginePages() int               { return len(m.Pool.Pages) - m.ArenaPages - m.SecondPages }

// PageCount returns the number of pages of a node.
func (m *Memory) PageCount() int { return len(m.Pool.Pages) }

// FrozenSince returns for how long the node has been frozen since FrozenTime was before, by the node's own clock, which
// may run fast: 1.1 s of simulated time may be 1.13 s of its clock.
func (n *Node) FrozenSince(before int64) effects.Duration {
	return n.ReadingAt(n.FrozenTime).Sub(n.ReadingAt(before))
}

// ResumesAt reports whether the node has resumed at this instant after it was frozen. Deadlines at different times then
// expire in one step, so what the step reports first may no longer hold at its end.
func (n *Node) ResumesAt(now int64) bool { return n.ResumeAt == now && n.FrozenTime > 0 }
