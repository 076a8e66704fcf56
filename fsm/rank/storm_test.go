package rank

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"pgregory.net/rapid"
)

// Whatever engines ask for, and in whatever order what is under way ends, is lost, fails or is heard twice, while
// nodes crash and clocks are apart: no machine panics, pages are conserved (S5), the high-water mark and the limits
// hold at each step, each command has one outcome and its memory comes back once, nothing is answered twice, and no
// reader believes what it read under a loan that was over. When faults cease and time has passed, nothing is left. The
// simulator looks for all of that but one: that what is outstanding keeps to Limits, by which drivers make room. And
// TestRecycledIsNew begins where a storm has left its ranks.
func TestStormsOfPulls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStorm(t, false)
		for range rapid.IntRange(20, 400).Draw(t, "moments") {
			s.moment()
		}
		s.finishStorm()
	})
}

// Likewise of ranks that share what they have, as caches.
func TestStormsOfShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStorm(t, true)
		for range rapid.IntRange(20, 400).Draw(t, "moments") {
			s.moment()
		}
		s.finishStorm()
	})
}

// moment lets something happen.
func (s *storm) moment() {
	switch what := rapid.IntRange(0, 999).Draw(s.t, "moment"); {
	case what < 350:
		s.drawCommand(s.node())
	case what < 700:
		s.runItems(rapid.IntRange(1, 4).Draw(s.t, "n"), 100)
	case what < 850:
		s.runItems(rapid.IntRange(1, 20).Draw(s.t, "n"), 1)
	case what < 920:
		s.advance(rapid.IntRange(1, 300).Draw(s.t, "ms"))
	case what < 940:
		s.lose()
	case what < 970:
		s.replayMessage()
	case what < 985:
		s.breakConnOrLink()
	case what < 988:
		s.crash(s.node())
	case what < 989:
		if n := s.node(); !n.engine.draining {
			n.engine.draining = true
			s.command(n, &Drain{Timeout: effects.Second})
		}
	default:
		s.advance(rapid.IntRange(300, 4000).Draw(s.t, "ms"))
	}
}

func newStorm(t *rapid.T, shares bool) *storm {
	s := &storm{t: t, now: effects.Time(effects.Second), leased: rapid.Bool().Draw(t, "leased")}
	s.dropsDone = rapid.IntRange(0, 4).Draw(t, "deaf") == 0
	s.faults = rapid.SampledFrom([]int{4, 20, 100}).Draw(t, "one in so many fails")
	few, both := rapid.Uint32Range(1, 4), shares || rapid.IntRange(0, 2).Draw(t, "both") == 0
	for i := range rapid.IntRange(2, 4).Draw(t, "ranks") {
		cfg := Config{
			Common: Common{
				Layout: layout, Leased: s.leased, ReadLeaseMax: 7 * effects.Second, Lease: 3 * effects.Second,
				LeaseGuard: 50 * effects.Millisecond, ReplyTimeout: 400 * effects.Millisecond,
				AllocTimeout: 200 * effects.Millisecond, BackoffMax: 300 * effects.Millisecond, BatchMax: 3,
				Carries: rapid.SampledFrom([]uint32{0, 32, 1 << 10}).Draw(t, "carries"),
			},
			Memory: Memory{Pages: rapid.Uint32Range(3, 8).Draw(t, "pages"), GrantsMax: few.Draw(t, "grants")},
			Store: Store{
				ClaimTTL: 4 * effects.Second, LocationsMax: 3 * few.Draw(t, "places"),
				ClaimsMax: 2 * few.Draw(t, "claims"),
			},
			Peers: Peers{
				BreakerTTL: 100 * effects.Millisecond, UnfitBackoff: 2 * effects.Second,
				PeersMax: rapid.Uint32Range(1, 2).Draw(t, "peers"),
			},
			Engine: Engine{
				AbandonTTL: effects.Second, GetWaitMax: 3 * effects.Second, RequestTTL: 2 * effects.Second,
				PutsMax: 1 + few.Draw(t, "puts"), RequestsMax: few.Draw(t, "requests"),
				GetsMax: few.Draw(t, "gets"), ReservesMax: 4,
			},
			Pending:  Pending{WaitersMax: few.Draw(t, "waiters")},
			Deferred: Deferred{LeadMin: 10 * effects.Millisecond, OffersMax: few.Draw(t, "offers")},
			Pipeline: Pipeline{FetchesMax: few.Draw(t, "fetches")},
			Offering: Offering{
				PullTTL:    3 * effects.Second,
				ReservePPM: rapid.SampledFrom([]uint32{ReserveNone, 300_000}).Draw(t, "reserve"),
			},
			Reading: Reading{ReadTimeout: effects.Second},
		}
		n := &stormNode{name: fmt.Sprintf("r%d", i),
			skew: effects.Duration(rapid.IntRange(0, 1000).Draw(t, "skew")) * effects.Second}
		switch cfg.Role = RoleReceiver; {
		case both:
			n.name = fmt.Sprintf("b%d", i)
			cfg.Role = RoleBoth
			cfg.EngineSharePct = rapid.SampledFrom([]uint32{30, 50, 100}).Draw(t, "engine's share")
			cfg.PeerSharePct = rapid.SampledFrom([]uint32{50, 100}).Draw(t, "a peer's share")
			if cfg.Shares = shares; shares {
				cfg.LookupAddr, cfg.PeerDoneAddr = effects.Addr{Host: n.name, Port: 5}, effects.Addr{Host: n.name, Port: 6}
				cfg.ShareTTL, cfg.LookupTimeout = 2*effects.Second, 500*effects.Millisecond
				cfg.ArenaPages = rapid.SampledFrom([]uint32{0, 1, 3, 6}).Draw(t, "arena")
				if cfg.ArenaPages == 0 {
					cfg.DevicePages = rapid.SampledFrom([]uint32{0, 1, 3, 6}).Draw(t, "second pool")
				}
				cfg.LoansMax, cfg.BringsMax = few.Draw(t, "loans"), 2*few.Draw(t, "brings")
				cfg.Lookups, cfg.Retention = rapid.Uint16Range(1, 3).Draw(t, "lookups"), store.Cache
			}
		case i%2 == 0:
			n.name = fmt.Sprintf("s%d", i)
			cfg.Role = RoleSender
		}
		if cfg.Role.Sends() {
			cfg.Pull, cfg.DoneAddr = true, effects.Addr{Host: n.name, Port: 3}
			if rapid.Bool().Draw(t, "renews") {
				cfg.RenewAddr = effects.Addr{Host: n.name, Port: 1}
			}
			if rapid.Bool().Draw(t, "proxy") {
				cfg.Proxy = effects.Addr{Host: "proxy", Port: 9}
			}
		}
		if cfg.Role.Receives() {
			cfg.Delay = rapid.Bool().Draw(t, "delay")
		}
		cfg.LocalID, cfg.Planes = n.name, []Plane{{Name: "shm", Blob: []byte(n.name)}}
		n.cfg = cfg
		s.nodes = append(s.nodes, n)
		s.start(n)
	}
	return s
}

func (s *storm) node() *stormNode {
	return s.nodes[rapid.IntRange(0, len(s.nodes)-1).Draw(s.t, "node")]
}

func (s *storm) takeItem(i int) *stormItem {
	it := s.items[i]
	s.items = append(s.items[:i:i], s.items[i+1:]...)
	return it
}

func (s *storm) runItem(it *stormItem) {
	if it.incarnation == it.to.incarnation {
		it.do()
	}
}

// runItems lets n things happen, each of the first few that are under way.
func (s *storm) runItems(n, few int) {
	for ; n > 0 && len(s.items) > 0; n-- {
		s.runItem(s.takeItem(rapid.IntRange(0, min(few, len(s.items))-1).Draw(s.t, "item")))
	}
}

func (s *storm) lose() {
	for i, it := range s.items {
		if it.lose != nil && rapid.Bool().Draw(s.t, "this") {
			s.takeItem(i)
			it.lose()
			return
		}
	}
}

// advance lets time pass, and each machine have the Ticks that are due by then.
func (s *storm) advance(ms int) {
	s.now = s.now.Add(effects.Duration(ms) * effects.Millisecond)
	for _, n := range s.nodes {
		for i := 0; ; i++ {
			at, ok := n.rank.Deadline()
			if !ok || at > s.clock(n) {
				break
			}
			if i > 200 {
				s.t.Fatalf("%s wants one Tick after the other", n.name)
			}
			s.step(n, &effects.Tick{})
		}
	}
}

// replayMessage lets a message that was sent at any time be heard once more, over a connection of nobody's.
func (s *storm) replayMessage() {
	if len(s.sentMessages) == 0 {
		return
	}
	h := s.sentMessages[rapid.IntRange(0, len(s.sentMessages)-1).Draw(s.t, "message")]
	request := effects.Request(s.id())
	if h.channel == effects.ChannelDone {
		request = 0
	}
	body := append([]byte(nil), h.body...)
	if n := rapid.IntRange(0, 3).Draw(s.t, "spoilt"); !s.leased {
		// Where nobody watches, a lie about a lease or a grant is believed.
		for ; n > 0; n-- {
			body[rapid.IntRange(0, len(body)-1).Draw(s.t, "at")] = rapid.Byte().Draw(s.t, "byte")
		}
	}
	s.deliver(h.to, effects.Conn(s.id()|1<<41), h.channel, body, request)
}

func (s *storm) breakConnOrLink() {
	n := s.node()
	for id := effects.Conn(1); id <= effects.Conn(s.ids); id++ {
		if c := n.conns[id]; c != nil && c.peer != nil && rapid.Bool().Draw(s.t, "connection") {
			s.loseConn(n, id)
			return
		}
	}
	for id := effects.Link(1); id <= effects.Link(s.ids); id++ {
		if n.links[id] != nil && rapid.Bool().Draw(s.t, "link") {
			s.loseLink(n, id)
			return
		}
	}
}

// runUntilIdle lets everything end that is under way, in any order, while time passes.
func (s *storm) runUntilIdle(seconds int) {
	for range 4 * seconds {
		for n := 0; len(s.items) > 0; n++ {
			if n > 5000 {
				s.t.Fatal("never at rest")
			}
			s.runItem(s.takeItem(rapid.IntRange(0, min(3, len(s.items)-1)).Draw(s.t, "item")))
		}
		s.advance(250)
	}
}

// finishStorm: faults cease, and nothing is left.
func (s *storm) finishStorm() {
	s.calm, s.dropsDone = true, false
	s.runUntilIdle(16)
	for _, n := range s.nodes {
		for t, c := range n.commands {
			if !c.delivered {
				s.t.Fatalf("%s: #%d %T has no outcome (L1)", n.name, t, c.body)
			}
			if c.isPutOpen() {
				s.t.Fatalf("%s: the memory of #%d never came back (M8)", n.name, t)
			}
		}
		if st := n.rank.Stats(); st.PagesLeased+st.Puts+st.PendingRequests+st.Grants+st.Fetches+
			st.Staged+st.Outstanding+st.Offers+st.Locations+st.Requests+st.Claims > 0 {
			s.t.Fatalf("%s: left before the drain: %+v (S17)", n.name, st)
		}
		for len(n.engine.got) > 0 {
			s.release(n, &n.engine.got, unpin)
		}
		for len(n.engine.reserved) > 0 {
			s.release(n, &n.engine.reserved, giveBack)
		}
		if !n.engine.draining {
			if c := s.command(n, &Drain{Timeout: effects.Second}); !c.delivered || c.code != effects.OK {
				s.t.Fatalf("%s: nothing is left, and its drain goes on: %+v", n.name, n.rank.Stats())
			}
		}
	}
	s.runUntilIdle(4)
	for _, n := range s.nodes {
		want := Stats{PagesTotal: int(n.cfg.Pages), PagesFree: int(n.cfg.Pages),
			ArenaTotal: int(n.cfg.ArenaPages), ArenaFree: int(n.cfg.ArenaPages),
			DeviceTotal: int(n.cfg.DevicePages), DeviceFree: int(n.cfg.DevicePages)}
		got := n.rank.Stats()
		want.OutboundPeers, want.InboundPeers = got.OutboundPeers, got.InboundPeers // They stay until others need their place.
		want.PagesLeasedMax, want.StagedMax = got.PagesLeasedMax, got.StagedMax
		if got != want {
			s.t.Fatalf("%s: left after the drain: %+v (S17)", n.name, got)
		}
	}
}
