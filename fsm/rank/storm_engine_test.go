package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"pgregory.net/rapid"
)

// A stormEngine is what an engine has of its node.
type stormEngine struct {
	askers   map[effects.Request]pendingReply
	reserved []effects.Ticket
	got      []effects.Ticket
	draining bool
}

type stormCommand struct {
	body      effects.CommandBody
	pages     []effects.Page // a Reserve's own, or those that a Put has until they come back
	delivered bool
	code      effects.Code
	held      bool
	returned  bool
}

// isPutOpen says whether a Put has its pages.
func (c *stormCommand) isPutOpen() bool {
	_, put := c.body.(*engine.Put)
	return put && !c.returned && (!c.delivered || c.held)
}

func (s *storm) command(n *stormNode, body effects.CommandBody) *stormCommand {
	c := &stormCommand{body: body}
	ticket := effects.Ticket(s.id())
	if p, ok := body.(*engine.Put); ok {
		c.pages = append(c.pages, p.Pages...)
	}
	n.commands[ticket] = c
	s.step(n, &effects.Command{Ticket: ticket, Body: body})
	return c
}

// now gives a command that is delivered in its own step.
func (s *storm) runNow(n *stormNode, body effects.CommandBody) effects.Code {
	c := s.command(n, body)
	if !c.delivered {
		s.t.Fatalf("%s: %T was not delivered at once", n.name, body)
	}
	return c.code
}

func (s *storm) onDelivered(n *stormNode, e *effects.Deliver) {
	c := n.commands[e.Ticket]
	if c == nil || c.delivered {
		s.t.Fatalf("%s: #%d has two outcomes, or was never given (L1)", n.name, e.Ticket)
	}
	c.delivered, c.code, c.held = true, e.Code, e.Held
	if c.returned && (e.Held || len(e.Pages) > 0) {
		s.t.Fatalf("%s: #%d is held, and its memory came back before (S19)", n.name, e.Ticket)
	}
	switch c.body.(type) {
	case *engine.Reserve:
		if e.Code == effects.OK {
			c.pages = append(c.pages, e.Pages...)
			n.engine.reserved = append(n.engine.reserved, e.Ticket)
		}
	case *engine.Get:
		if e.Hits > 0 {
			n.engine.got = append(n.engine.got, e.Ticket)
		}
	}
}

func (s *storm) onReturned(n *stormNode, t effects.Ticket) {
	c := n.commands[t]
	if c == nil || c.returned || c.delivered && !c.held {
		s.t.Fatalf("%s: the memory of #%d comes back twice (M8)", n.name, t)
	}
	c.returned = true
}

// idlePages are pages that an engine may put: reserved, and in no put.
func (n *stormNode) idlePages() (idle []effects.Page) {
	busy := map[effects.Page]bool{}
	for _, c := range n.commands {
		if c.isPutOpen() {
			for _, p := range c.pages {
				busy[effects.Page{Index: p.Index, Generation: p.Generation}] = true
			}
		}
	}
	for _, t := range n.engine.reserved {
		for _, p := range n.commands[t].pages {
			if !busy[effects.Page{Index: p.Index, Generation: p.Generation}] {
				idle = append(idle, p)
			}
		}
	}
	return idle
}

func (s *storm) drawCommand(n *stormNode) {
	t := s.t
	ms := func(most int) effects.Duration {
		return effects.Duration(rapid.IntRange(1, most).Draw(t, "ms")) * effects.Millisecond
	}
	request := []byte(rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "request"))
	chunks := rapid.IntRange(1, 3).Draw(t, "chunks")
	var names []string
	for range chunks {
		names = append(names, rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key"))
	}
	if n.cfg.Role == RoleSender || n.cfg.Role == RoleBoth && rapid.Bool().Draw(t, "sends") {
		s.drawSender(n, ms, request, names)
		return
	}
	if n.cfg.Shares && rapid.Bool().Draw(t, "shares") {
		from := rapid.SampledFrom(s.nodes).Draw(t, "from") // Perhaps itself.
		if rapid.Bool().Draw(t, "it computes them") {
			for _, key := range keys(names) {
				from.storeChunk(key)
			}
		}
		s.command(n, &p2p.Bring{
			From: p2p.Peer{Host: from.name, InitPort: 1}, Request: append([]byte("w"), request...), Keys: keys(names),
			Timeout: ms(1500),
		})
		return
	}
	switch rapid.IntRange(0, 10).Draw(t, "command") {
	case 0, 1, 2:
		s.command(n, &engine.Get{Request: request, Keys: keys(names), Wait: ms(1000)})
	case 3, 4, 5:
		s.command(n, &engine.Fetch{Request: request, Keys: keys(names), Timeout: ms(2000)})
	case 6:
		s.runNow(n, &engine.Contains{Keys: keys(names)})
	case 7:
		s.runNow(n, &engine.Abandon{Request: request})
	case 8:
		s.release(n, &n.engine.got, unpin)
	case 9:
		s.runNow(n, &engine.GiveUp{Request: request, Keys: keys(names)})
	default:
		s.runNow(n, &engine.Abort{Target: s.drawTarget(n)})
	}
}

func (s *storm) drawSender(n *stormNode, ms func(int) effects.Duration, request []byte, names []string) {
	t := s.t
	switch rapid.IntRange(0, 7).Draw(t, "command") {
	case 0, 1:
		s.command(n, &engine.Reserve{Count: uint32(len(names)), Timeout: ms(1000)})
	case 2, 3, 4, 5:
		idle := n.idlePages()
		if len(idle) == 0 {
			return
		}
		names = names[:min(len(names), len(idle))]
		idle = idle[:len(names)]
		for i := range idle {
			idle[i].Length = 32
		}
		var to []string
		for _, other := range s.nodes {
			if other.cfg.Role.Receives() && other != n {
				to = append(to, other.name)
			}
		}
		s.command(n, &engine.Put{
			Peer:    engine.Peer{Host: rapid.SampledFrom(to).Draw(t, "to"), InitPort: 1, AllocPort: 2},
			Request: request, Keys: keys(names), Pages: idle, Layout: layout, LastChunkTokens: 4, Timeout: ms(3000),
			Last: len(request) > 0 && rapid.Bool().Draw(t, "last"),
		})
	case 6:
		s.release(n, &n.engine.reserved, giveBack)
	default:
		s.runNow(n, &engine.Abort{Target: s.drawTarget(n)})
	}
}

// drawTarget is a command to abort, perhaps one that is over.
func (s *storm) drawTarget(n *stormNode) effects.Ticket {
	return effects.Ticket(rapid.Uint64Range(max(1, s.ids-min(s.ids-1, 40)), s.ids).Draw(s.t, "target"))
}

// release gives back something that the engine has, if that is possible now.
func (s *storm) release(n *stormNode, of *[]effects.Ticket, by func(effects.Ticket) effects.CommandBody) {
	if len(*of) == 0 {
		return
	}
	i := rapid.IntRange(0, len(*of)-1).Draw(s.t, "which")
	if s.runNow(n, by((*of)[i])) == effects.OK {
		*of = append((*of)[:i:i], (*of)[i+1:]...)
	}
}

func unpin(t effects.Ticket) effects.CommandBody { return &engine.Unpin{Got: t} }

func giveBack(t effects.Ticket) effects.CommandBody { return &engine.Release{Reserved: t} }

// storeChunk gives a node's cache a chunk, if there is a page for it.
func (n *stormNode) storeChunk(key []byte) {
	v, s := &n.rank.env.Env, &n.rank.sharedRooms.Store
	if v.Pool == nil || v.Pool.FreePages() == 0 || !s.HasRoom(1) || n.engine.draining {
		return
	}
	page := v.Pool.TakePages(1, nil)[0]
	page.Length = uint32(n.rank.flowConfig.PageBytes)
	h := s.BeginFill(s.HashKey(key), key)
	if !s.EndFill(h, page, true) {
		v.Pool.DropRef(page)
	}
	s.DropUnused(h, v)
}
