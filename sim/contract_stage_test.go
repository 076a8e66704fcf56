package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The simulated drivers play the same scenarios as every real driver, over many seeds: each seed may end in any allowed
// way, and together the seeds must reach every allowed ending.
func TestPushScenarios(t *testing.T) { runScenarios(t, contract.Pushes()) }

// The same for reads.
func TestPullScenarios(t *testing.T) { runScenarios(t, contract.Pulls()) }

// The same for several grants over the same pages.
func TestOverlapScenarios(t *testing.T) { runScenarios(t, contract.OverlappingGrants()) }

// The same for two concurrent accesses to the pages of a grant. The seed decides whether the accesses overlap, and the
// ledger judges each access.
func TestHolderScenarios(t *testing.T) {
	runScenarios(t, slices.Concat(contract.ConcurrentAccesses(true), contract.BusyThreads(true)))
}

// The same for connections.
func TestAskScenarios(t *testing.T) { runScenarios(t, contract.Requests()) }

// The same for connections with several requests in flight.
func TestMatchScenarios(t *testing.T) { runScenarios(t, contract.ConcurrentRequests()) }

// A machine breaks the contract if it has more requests in flight on a connection than the window allows, whatever the
// Checker of the machine reports. A machine also breaks the contract if it opens a window on a channel on which replies
// cannot be matched to requests.
func TestWindowsAreHeld(t *testing.T) {
	alloc := effects.ChannelAlloc
	for _, c := range []struct {
		channel effects.Channel
		window  uint16
		sends   int
		story   string
	}{
		{alloc, 0, 1, ""}, {alloc, 0, 2, "1 of 1 requests"}, {alloc, 1, 2, "1 of 1 requests"}, {alloc, 3, 3, ""},
		{alloc, 3, 4, "3 of 3 requests"}, {effects.ChannelInit, 2, 0, "opens init with a window of 2"},
	} {
		s := newStage(t, 1)
		a, to := s.w.Nodes[contract.A], s.ServerAddr(c.channel)
		s.w.CarryOut(a, &effects.Open{Corr: 1, Channel: c.channel, Window: c.window, Addr: to})
		for i := range c.sends {
			s.w.CarryOut(a, &effects.Send{Corr: effects.Corr(2 + i), Conn: 1, Body: []byte("q")})
		}
		switch f := s.w.Failure; {
		case (f == nil) != (c.story == ""):
			t.Errorf("%+v: %v", c, f)
		case f != nil && !strings.Contains(fmt.Sprint(f), c.story):
			t.Errorf("%+v: %v", c, f)
		}
	}
}

func runScenarios[S contract.Stage](t *testing.T, scenarios []contract.Scenario[S]) {
	const seeds = 300
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			ends := map[contract.Ending]int{}
			for seed := range uint64(seeds) {
				st := newStage(t, seed)
				end, err := s.Run(any(st).(S))
				if st.w.Failure != nil {
					t.Fatalf("seed %d: %v", seed, st.w.Failure)
				}
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				ends[end]++
			}
			for _, e := range s.Endings {
				if ends[e] == 0 {
					t.Errorf("none of %d seeds ended as %v; there were %v", seeds, e, ends)
				}
			}
		})
	}
}

// A stage is a world of two nodes without machines: the scenario supplies the effects, and receives the events that the
// machines would receive.
type stage struct {
	w        *trial
	events   []stageEvent
	jobCount uint32
	pauses   uint64
}

type stageEvent struct {
	at contract.End
	ev effects.Event
}

func newStage(t *testing.T, seed uint64) *stage {
	p := plan.New()
	p.Seed = seed
	p.Topology.SenderPages, p.Topology.ReceiverPages = 8, 8
	p.Topology.Sums = true
	p.Rates = map[plan.Fault]int{plan.FaultLossUnnoticed: 500}
	w, err := newTrial(Options{}, &p)
	if err != nil {
		t.Fatal(err)
	}
	b := w.Nodes[contract.B]
	b.OffersChunks = true
	b.Listens = append(slices.Clone(pd.ChannelsOf(b)), effects.ChannelLookup, effects.ChannelMeta)
	s := &stage{w: w}
	w.Script = s
	w.NewJob(0, int32(contract.A), int32(contract.B)) // Some tests need a job.
	return s
}

// HandleEvent implements eventScript. The world uses the memory of events again, so each kept event is copied.
func (s *stage) HandleEvent(n *world.Node, ev effects.Event) {
	switch e := ev.(type) {
	case *effects.Opened:
		ev = cloneEvent(e)
	case *effects.Received:
		e = cloneEvent(e)
		e.Body = slices.Clone(e.Body)
		ev = e
	case *effects.Replied:
		e = cloneEvent(e)
		e.Body = slices.Clone(e.Body)
		ev = e
	case *effects.Landed:
		e = cloneEvent(e)
		e.Pages = slices.Clone(e.Pages)
		ev = e
	case *effects.Unanswered:
		ev = cloneEvent(e)
	case *effects.SendDone:
		ev = cloneEvent(e)
	case *effects.ConnLost:
		ev = cloneEvent(e)
	case *effects.Imported:
		ev = cloneEvent(e)
	case *effects.LinkLost:
		ev = cloneEvent(e)
		if e.Link != 0 {
			s.w.Links[e.Link-1].LossReported = false // The event is in the mailbox, and the scenario may not have read it yet.
		}
	case *effects.TransferDone:
		ev = cloneEvent(e)
	case *effects.Settled:
		ev = cloneEvent(e)
	case *effects.Revoked:
		ev = cloneEvent(e)
	case *effects.Scattered:
		ev = cloneEvent(e)
	case *effects.Dropped:
		ev = cloneEvent(e)
	case *effects.Tick, *effects.Command:
		return // A scenario has no deadlines and no engine.
	}
	s.events = append(s.events, stageEvent{contract.End(n.ID), ev})
}

func cloneEvent[E any](e *E) *E {
	c := *e
	return &c
}

// passTime lets some time pass, often none and seldom much, because nodes are not equally fast between effects.
func (s *stage) passTime() {
	s.pauses++
	switch d := draw.Hash(s.w.Seed, draw.Engine, 0, s.pauses); {
	case d.ChancePermille(50):
		s.w.RunUntil(s.w.Now+int64(d.Rehash().Duration(0, 2*effects.Second)), nil)
	case d.ChancePermille(700):
		s.w.RunUntil(s.w.Now+int64(d.Rehash().HeavyTail(2*s.w.Conditions.MessageTime+2*s.w.Conditions.DeviceTime)), nil)
	}
}

// Do implements contract.Stage.
func (s *stage) Do(at contract.End, e effects.Effect) {
	s.passTime()
	n := s.w.Nodes[at]
	if p, ok := e.(*effects.Publish); ok { // The engine has returned these pages before.
		for _, page := range p.Pages {
			n.Pool.Pages[page.Index].Reserved = 0
			n.Pool.UpdateInUse(page.Index)
		}
	}
	s.w.CarryOut(n, e)
}

// Next implements contract.Stage.
func (s *stage) Next() (contract.End, effects.Event, bool) {
	s.w.RunUntil(s.w.Now+int64(1000*effects.Second), func() bool { return len(s.events) > 0 })
	if len(s.events) == 0 {
		return 0, nil, false
	}
	x := s.events[0]
	s.events = s.events[1:]
	return x.at, x.ev, true
}

// Kill implements contract.Stage.
func (s *stage) Kill(at contract.End) {
	s.passTime()
	s.w.CrashNode(s.w.Nodes[at])
}

// Finish implements contract.Stage: the simulated drivers complete everything by themselves, except a request that gets
// no reply while its connection is open.
func (s *stage) Finish() {
	for _, c := range s.w.Conns {
		if c.Client == int32(contract.A) && !c.Closed {
			s.w.CloseConn(s.w.Nodes[contract.A], &effects.Close{Conn: effects.Conn(c.ID)})
		}
	}
}

// Node implements contract.DataStage.
func (s *stage) Node(at contract.End) contract.Node {
	n, other := s.w.Nodes[at], pd.InfoOf(s.w.Nodes[1-at]).Incarnation
	token := pd.InfoOf(n).Key.Token("sim", other, pd.InfoOf(n).Incarnation)
	return contract.Node{
		Incarnation: pd.InfoOf(n).Incarnation, Plane: "sim",
		Blob: append(slices.Clone(pd.InfoOf(n).Cfg.Planes[0].Blob), token[:]...), Buffer: pd.BufferOf(n),
		Pages: pd.InfoOf(n).Cfg.Pages, PageBytes: n.Pool.PageBytes,
	}
}

// Fill implements contract.DataStage, and records for the ledger that an engine has the pages.
func (s *stage) Fill(at contract.End, pages []effects.Page) {
	n := s.w.Nodes[at]
	s.w.AddCommand(pd.Command{Kind: plan.CommandReserve, Node: n.ID, Incarnation: n.Incarnation, Finished: true, Pages: slices.Clone(pages)})
	for _, p := range pages {
		pg := &n.Pool.Pages[p.Index]
		pg.Reserved, pg.LastGeneration = effects.Ticket(len(s.w.Commands)), p.Generation
		n.Pool.UpdateInUse(p.Index)
		for part := range pg.Stamps {
			pg.Stamps[part] = world.MakeStamp(p.Index, uint32(p.Generation), part)
		}
	}
}

// Now implements contract.DataStage.
func (s *stage) Now(at contract.End) effects.Time { return s.w.ReadClock(s.w.Nodes[at]) }

// ServerAddr implements contract.WireStage.
func (s *stage) ServerAddr(ch effects.Channel) effects.Addr {
	if ch == effects.ChannelProxy {
		return effects.Addr{Host: s.w.ProxyHost, Port: 1}
	}
	return s.w.Nodes[contract.B].Addr(ch)
}

// OneWayBody implements contract.WireStage.
func (s *stage) OneWayBody() []byte {
	s.jobCount++ // The proxy must be notified of a request only once.
	return (&protocol.ProxyNotif{RequestID: s.w.NewJob(s.jobCount, int32(contract.A), int32(contract.B)).Name}).Append(nil)
}

// UnusedAddr implements contract.WireStage.
func (s *stage) UnusedAddr() effects.Addr {
	return effects.Addr{Host: fmt.Sprint("nobody", len(s.w.Conns)), Port: 1}
}
