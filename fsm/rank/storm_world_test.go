package rank

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/protocol"
	"pgregory.net/rapid"
)

// A storm joins ranks by a driver that keeps its contract and nothing more: whatever is under way ends in any
// order, well or not, now or much later, twice asked or never heard. Each node has a clock of its own.
type storm struct {
	t            *rapid.T
	now          effects.Time
	leased       bool
	calm         bool       // faults have ceased
	faults       int        // one in so many completions is a failure
	dropsDone    bool       // no done is ever handed over
	liar         *stormNode // changes what it says; nil: no node does
	nodes        []*stormNode
	items        []*stormItem
	sentMessages []sentMessage // messages that may be heard again
	ids          uint64
	effects      effects.Effects
}

type stormNode struct {
	name        string
	cfg         Config
	rank        *Rank
	skew        effects.Duration
	incarnation int
	out         map[effects.Corr]string // outstanding, by what it is
	conns       map[effects.Conn]*stormConn
	links       map[effects.Link]*stormLink
	grants      map[effects.GrantID]bool // revocations under way
	asked       map[effects.Request]bool // requests that wait for their answer here
	drops       int

	commands map[effects.Ticket]*stormCommand
	engine   stormEngine
}

type stormConn struct {
	channel     effects.Channel
	peer        *stormNode
	incarnation int // of the peer
	asks        []*stormAsk
	lost        bool // whoever has it was told that it is lost
}

// A stormAsk is a question that has no completion yet.
type stormAsk struct {
	corr    effects.Corr
	request effects.Request
	answer  bool // it is in the mailbox, and will be the Send's completion
}

// findAsk is the question of a request; nil if it has its completion.
func (c *stormConn) findAsk(r effects.Request) *stormAsk {
	for _, a := range c.asks {
		if a.request == r {
			return a
		}
	}
	return nil
}

// removeAsk takes a question off.
func (c *stormConn) removeAsk(a *stormAsk) {
	c.asks = slices.DeleteFunc(c.asks, func(b *stormAsk) bool { return a == b })
}

// openAsks are the questions that a connection takes with it when it goes.
func (c *stormConn) openAsks() (open []*stormAsk) {
	for _, a := range c.asks {
		if !a.answer {
			open = append(open, a)
		}
	}
	return open
}

type stormLink struct {
	peer        *stormNode
	who         effects.Incarnation // its name for whoever imported it
	incarnation int
}

// A stormItem happens when its turn comes. one of a node's former life never does.
type stormItem struct {
	what        string
	to          *stormNode
	incarnation int
	do          func()
	lose        func() // what happens instead when it is lost; nil: it cannot be
}

type sentMessage struct {
	to      *stormNode
	channel effects.Channel
	body    []byte
}

func (s *storm) id() uint64 { s.ids++; return s.ids }

func (s *storm) clock(n *stormNode) effects.Time { return s.now.Add(n.skew) }

func (s *storm) start(n *stormNode) {
	former := new(Rank)
	if n.rank != nil && rapid.Bool().Draw(s.t, "in the memory of the life before") {
		former = n.rank
	}
	rank, err := Recycle(former, n.cfg, 1000*s.id(), s.clock(n))
	if err != nil {
		s.t.Fatal(err)
	}
	n.rank = rank
	n.incarnation++
	n.out, n.conns, n.links = map[effects.Corr]string{}, map[effects.Conn]*stormConn{}, map[effects.Link]*stormLink{}
	n.grants, n.asked, n.commands, n.drops = map[effects.GrantID]bool{}, map[effects.Request]bool{},
		map[effects.Ticket]*stormCommand{}, 0
	n.engine = stormEngine{}
}

func (s *storm) push(to *stormNode, what string, do, lose func()) {
	s.items = append(s.items, &stormItem{what: what, to: to, incarnation: to.incarnation, do: do, lose: lose})
}

// event is an item that is a completion of something outstanding.
func (s *storm) complete(n *stormNode, what string, corr effects.Corr, ev func() effects.Event) {
	s.push(n, what, func() { s.completed(n, corr, ev()) }, nil)
}

func (s *storm) completed(n *stormNode, corr effects.Corr, ev effects.Event) {
	if _, ok := n.out[corr]; !ok {
		s.t.Fatalf("%s: the driver of this test completes %T twice", n.name, ev)
	}
	delete(n.out, corr)
	s.step(n, ev)
}

func (s *storm) step(n *stormNode, ev effects.Event) {
	out := &s.effects
	out.Reset()
	n.rank.Step(s.clock(n), ev, out)
	checkListings(s.t, n.rank, s.clock(n))
	s.t.Logf("%d ms: %s hears %T %.100s", s.now/effects.Time(effects.Millisecond), n.name, ev, fmt.Sprintf("%+v", ev))
	for i := range out.Len() {
		s.t.Logf("   %T %.100s", out.At(i), fmt.Sprintf("%+v", out.At(i)))
		s.executeEffect(n, out.At(i))
	}
	out.Scribble()
	s.checkNode(n)
}

// checkNode is what holds after every step.
func (s *storm) checkNode(n *stormNode) {
	st := n.rank.Stats()
	s.checkPool(n, 0, 0, st.PagesFree, st.PagesTotal)
	s.checkPool(n, 0, st.PagesTotal, st.ArenaFree, st.ArenaTotal)
	s.checkPool(n, 0, st.PagesTotal+st.ArenaTotal, st.DeviceFree, st.DeviceTotal)
	if high := int(n.rank.cfg.highWater()); n.cfg.Pull && int(n.rank.pools.Pool(0).LeasedPages())-n.rank.p2pOwner.Loans().CountPins() >
		high {
		s.t.Fatalf("%s offers %d pages, high water is %d", n.name, st.PagesLeased, high)
	}
	lim, count := n.rank.Limits(), map[string]int{}
	for _, what := range n.out {
		count[what]++
	}
	for what, got := range map[string][2]int{
		"transfers": {count["read"], lim.Transfers}, "copies": {count["copy"], lim.Copies},
		"scatters": {count["scatter"], lim.Scatters},
		"revokes":  {len(n.grants), lim.Revokes}, "sends": {count["send"] + n.drops, lim.Sends},
	} {
		if got[0] > got[1] {
			s.t.Fatalf("%s has %d %s under way, its limit is %d", n.name, got[0], what, got[1])
		}
	}
	if got, want := st.Outstanding, len(n.out); got != want {
		s.t.Fatalf("%s counts %d effects outstanding, there are %d", n.name, got, want)
	}
}

func (s *storm) checkPool(n *stormNode, pool effects.PoolID, first, free, total int) {
	used := 0
	for i := range total {
		if p := n.rank.PageState(pool, uint32(first+i)); p != (memory.State{Generation: p.Generation}) {
			used++
		}
	}
	if used+free != total {
		s.t.Fatalf("%s: pool %d has %d pages used, %d free, %d in all (S5)", n.name, pool, used, free, total)
	}
}

// isLeased says whether a grant to read stands at its owner.
func (n *stormNode) isLeased(id effects.GrantID) bool {
	open, quarantined := n.rank.pools.GrantState(id)
	return open && !quarantined
}

// nodeAt is the node that listens on a host; nil if none does.
func (s *storm) nodeAt(host string) *stormNode {
	for _, n := range s.nodes {
		if n.name == host {
			return n
		}
	}
	return nil
}

// crash ends a node's life. What it had under way never comes back to it; what it said may still arrive.
func (s *storm) crash(n *stormNode) {
	old := n.rank.Incarnation()
	s.start(n)
	kept := s.items[:0]
	for _, it := range s.items {
		if it.to != n || it.incarnation == n.incarnation {
			kept = append(kept, it)
		}
	}
	s.items = kept
	for _, other := range s.nodes {
		for id, c := range other.conns {
			if c.peer == n && c.incarnation != n.incarnation {
				s.loseConn(other, id)
			}
		}
		for id, l := range other.links {
			if l.peer == n && l.incarnation != n.incarnation {
				s.loseLink(other, id)
			}
		}
		if other != n {
			s.push(other, "LinkLost", func() { s.step(other, &effects.LinkLost{Peer: old}) }, nil)
		}
	}
}

// loseConn lets a client hear that its connection is gone: its request first.
func (s *storm) loseConn(n *stormNode, id effects.Conn) {
	c := n.conns[id]
	s.push(n, "ConnLost", func() {
		if n.conns[id] != c {
			return
		}
		for _, a := range c.openAsks() {
			if n.conns[id] == c { // Else the first that heard closed it, and the others hear of that.
				c.removeAsk(a)
				s.completed(n, a.corr, &effects.Unanswered{Corr: a.corr, Code: effects.PeerLost})
			}
		}
		if n.conns[id] == c && len(c.asks) == 0 {
			c.lost = true
			s.step(n, &effects.ConnLost{Conn: id})
		}
	}, nil)
}

// loseLink lets a node hear that a link is gone.
func (s *storm) loseLink(n *stormNode, id effects.Link) {
	l := n.links[id]
	s.push(n, "LinkLost", func() {
		if n.links[id] == l {
			l.incarnation = -1 // Nothing is read over it any more.
			s.step(n, &effects.LinkLost{Link: id, Peer: l.who})
		}
	}, nil)
}

// deliver brings a message to a node's server.
func (s *storm) deliver(to *stormNode, from effects.Conn, channel effects.Channel, body []byte,
	answer effects.Request) {
	if answer != 0 {
		to.asked[answer] = true
	}
	s.step(to, &effects.Received{Conn: from, Channel: channel, Request: answer, Body: append([]byte(nil), body...)})
}

func describe(body []byte) string {
	t, err := protocol.PeekTag(body, nil)
	if err != nil {
		return "garbage"
	}
	return fmt.Sprint(t)
}
