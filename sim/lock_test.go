package sim_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
)

// findFailure runs seeds of a system until a seed breaks a promise. The result is nil if no seed does.
func findFailure(t *testing.T, s *sim.System, seeds uint64) *sim.Failure {
	t.Helper()
	for seed := range seeds {
		r, err := sim.Run(sim.Options{Seed: seed, System: s})
		if err != nil {
			t.Fatal(err)
		}
		if r.Failure != nil {
			return r.Failure
		}
	}
	return nil
}

// TestLock: the defect of the server is found within a few seeds. The shrunk plan has two requests and a crash between
// them, and breaks the same promise after it was written to a file.
func TestLock(t *testing.T) {
	f := findFailure(t, &lock, 10)
	if f == nil || f.Property != "exclusive" {
		t.Fatalf("ten seeds find %v", f)
	}
	p, err := lock.Expand(f.Seed, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.Shrink(context.Background(), p, sim.ShrinkOptions{System: &lock})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "lock.yaml")
	if err := s.Plan.Write(file); err != nil {
		t.Fatal(err)
	}
	text, _ := s.Plan.Text()
	crash := func(x sim.ScheduledFault) bool { return x.Fault == sim.FaultCrash && x.Node == 0 }
	if len(s.Plan.Items) != 2 || len(s.Plan.Faults) != 1 || !crash(s.Plan.Faults[0]) || len(s.Plan.Strikes) > 0 || s.Incomplete {
		t.Errorf("this is left after %d runs:\n%s", s.Runs, text)
	}
	back, err := sim.ReadPlan(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	r, err := sim.Run(sim.Options{Plan: &back, System: &lock})
	if err != nil || r.Failure == nil || r.Failure.Story != s.Failure.Story {
		t.Errorf("its file tells another story: %v, %v\n%s", err, r.Failure, text)
	}
	told, trace := sim.Explain(s.Failure, sim.Options{Plan: &back, System: &lock})
	says := []string{"n1 (a) reports: held", "n0 (server) crashes", "the engine of n2 (b) issues the command acquire"}
	for _, part := range says {
		if !strings.Contains(told.String(), part) {
			t.Errorf("the story does not say %q:\n%s", part, told)
		}
	}
	if trace == nil || trace.Nodes[0].Role != "server" {
		t.Errorf("its trace: %+v", trace)
	}
}

// TestLockExplored: the explorer finds the defect in a small world without seeds, on a path with the crash.
func TestLockExplored(t *testing.T) {
	scope := sim.Scope{Name: "lock-crash", System: &lock, Faults: 1, CrashProcesses: []string{"server"},
		Items: []sim.Item{{Do: "acquire", Node: 1}, {Do: "acquire", Node: 2}}}
	x, err := sim.Explore(sim.ExploreOptions{Scope: scope})
	if err != nil || x.Violation == nil || x.Violation.Property != "exclusive" {
		t.Fatalf("%v, %+v", err, x)
	}
	again, err := sim.RetracePath(scope, x.Violation.Path, nil)
	if err != nil || again == nil || again.Story != x.Violation.Story {
		t.Errorf("its path leads elsewhere: %v, %v", err, again)
	}
	scope.Faults = 0
	x, err = sim.Explore(sim.ExploreOptions{Scope: scope})
	if err != nil || x.Violation != nil || !x.Complete || x.FinalStates == 0 {
		t.Errorf("without a crash: %v, %+v", err, x)
	}
	scope.System, scope.Faults = fixedLock(), 1
	if x, err = sim.Explore(sim.ExploreOptions{Scope: scope}); err != nil || x.Violation != nil || !x.Complete {
		t.Errorf("mended: %v, %+v", err, x)
	}
}

// fixedLock is the lock with a server that waits, after each start, until the leases of the previous incarnation have
// expired, and whose tokens continue to grow.
func fixedLock() *sim.System {
	s := lock
	s.Processes = func(p *sim.Plan) []sim.Process {
		all := lock.Processes(p)
		all[0].New = func(b sim.Boot) (effects.Machine, error) {
			if b.Incarnation == 0 {
				return &server{}, nil
			}
			return &server{lease{until: b.Now.Add(leaseTime), token: b.Incarnation << 16}}, nil
		}
		return all
	}
	return &s
}

// TestLockMended: no fault breaks the lock after the defect is fixed.
func TestLockMended(t *testing.T) {
	if f := findFailure(t, fixedLock(), 300); f != nil {
		t.Error(f)
	}
}

// hastyClient is a client that holds the lock until the end of the lease, without a margin, so that the drift of clocks
// matters.
type hastyClient struct{ client }

func (h *hastyClient) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	h.client.Step(now, ev, out)
	for i := range out.Len() {
		if o, ok := out.At(i).(*effects.Observe); ok {
			o.ID += uint64(leaseTime / 10)
		}
	}
}

// TestLockDrifts: an oracle can convert the reading of a clock to true time, and therefore finds a client that relies
// too much on clocks.
func TestLockDrifts(t *testing.T) {
	s := *fixedLock()
	s.DriftMaxPPM = 200_000
	s.Processes = func(p *sim.Plan) []sim.Process {
		all := fixedLock().Processes(p)
		for i := range all[1:] {
			all[1+i].New = func(b sim.Boot) (effects.Machine, error) {
				return &hastyClient{client{server: b.Addr("server", port)}}, nil
			}
		}
		return all
	}
	s.Draw = func(d sim.Draws, p *sim.Plan) { p.Items = d.Items("acquire", 60, 100, "a", "b") }
	if f := findFailure(t, &s, 30); f == nil || f.Property != "exclusive" {
		t.Errorf("nobody minds that clocks run apart: %v", f)
	}
	s.DriftMaxPPM = 1
	if f := findFailure(t, &s, 30); f != nil {
		t.Errorf("clocks run alike, and yet: %v", f)
	}
	// The conversion is exact: the present reading of a clock is the present true time.
	const shown = effects.FactOther
	exact := s
	exact.DriftMaxPPM = 200_000
	exact.Oracles = []oracle.Oracle{oracle.New("true", "now is now", func(l *oracle.Subscriptions[struct{ judged int }]) {
		oracle.On(l, func(s *struct{ judged int }, c *oracle.Call, e *effects.Observe) {
			s.judged++
			if at := c.TrueTime(c.Node(), c.LocalTime()); e.Fact == shown && at != c.Now() && at != c.Now()-1 {
				c.Fail("the clock of node %d shows %d at %d, which was at %d", c.Node(), c.LocalTime(), c.Now(), at)
			}
		})
	})}
	if f := findFailure(t, &exact, 10); f != nil {
		t.Error(f)
	}
}

// TestJoin: joined with another system, or with ranks, the lock draws the same commands as alone, and its defect is
// found.
func TestJoin(t *testing.T) {
	other := *fixedLock()
	other.Name = "other"
	other.Processes = func(p *sim.Plan) []sim.Process {
		all := fixedLock().Processes(p)
		for i := range all {
			all[i].Name = "other-" + all[i].Name
			if i > 0 {
				all[i].New = func(b sim.Boot) (effects.Machine, error) { return &client{server: b.Addr("other-server", port)}, nil }
			}
		}
		return all
	}
	other.Oracles, other.Draw = nil, func(d sim.Draws, p *sim.Plan) { p.Items = d.Items("acquire", 4, 20, "other-a") }
	both, turned, beside := sim.Join(lock, other), sim.Join(other, lock), sim.Join(lock, sim.PD())
	if both.Name != "lock+other" || beside.Name != "pd+lock" {
		t.Errorf("they are called %s and %s", both.Name, beside.Name)
	}
	for seed := range uint64(5) {
		alone, err := lock.Expand(seed, "")
		if err != nil {
			t.Fatal(err)
		}
		joined, err := both.Expand(seed, "")
		if err != nil {
			t.Fatal(err)
		}
		second, err := turned.Expand(seed, "")
		if err != nil {
			t.Fatal(err)
		}
		if first := itemsOf(&joined, 0, 3); !slices.Equal(first, alone.Items) {
			t.Errorf("beside another it wants %v, alone %v", first, alone.Items)
		}
		if late := itemsOf(&second, 3, 6); !slices.Equal(late, alone.Items) {
			t.Errorf("behind another it wants %v, alone %v", late, alone.Items)
		}
	}
	for _, s := range []*sim.System{&both, &beside} {
		if f := findFailure(t, s, 20); f == nil || f.Property != "exclusive" {
			t.Errorf("%s: %v", s.Name, f)
		}
	}
	well := sim.Join(sim.PD(), *fixedLock())
	if f := findFailure(t, &well, 20); f != nil {
		t.Error(f)
	}
}

// TestJoinAttached: beside a user's machines, engines in processes of their own receive the chunks that they fetch.
func TestJoinAttached(t *testing.T) {
	s := sim.Join(sim.PD(), *fixedLock())
	for seed := range uint64(30) {
		r, err := sim.Run(sim.Options{Seed: seed, Profile: "agent", System: &s})
		if err != nil {
			t.Fatal(err)
		}
		if r.Failure != nil {
			t.Errorf("seed %d: %v", seed, r.Failure)
		}
	}
}

// itemsOf returns the items of some nodes, with the nodes numbered from 0.
func itemsOf(p *sim.Plan, from, to sim.Node) (items []sim.Item) {
	for _, x := range p.Items {
		if x.Node >= from && x.Node < to {
			x.Node -= from
			items = append(items, x)
		}
	}
	return items
}

// TestPlansOfSystems: the errors of an invalid plan say what is wrong and what is allowed.
func TestPlansOfSystems(t *testing.T) {
	fresh := func() sim.Plan {
		p := sim.NewPlan()
		p.System = "lock"
		p.Items = []sim.Item{{At: time.Millisecond, Do: "acquire", Node: 1, Span: time.Second}}
		return p
	}
	for want, wrong := range map[string]func(p *sim.Plan){
		`system is pd+lock, but the run is of system lock`: func(p *sim.Plan) { p.System = "pd+lock" },
		`items[0].do is "steal": node n1 knows acquire`:    func(p *sim.Plan) { p.Items[0].Do = "steal" },
		`items[0].node is n7: use a node whose machine`:    func(p *sim.Plan) { p.Items[0].Node = 7 },
		`items[0].span is -1s: give 0s to 1h0m0s`:          func(p *sim.Plan) { p.Items[0].Span = -time.Second },
		`items[0].do is missing`:                           func(p *sim.Plan) { p.Items[0].Do = "" },
		`jobs are 1, but system lock has no ranks`: func(p *sim.Plan) {
			p.Jobs = []sim.Job{{To: 1, Keys: []uint32{1}, Batch: 1}}
		},
		`faults[0].node is n3: give n0 to n2`: func(p *sim.Plan) {
			p.Faults = []sim.ScheduledFault{{Fault: sim.FaultCrash, Node: 3}}
		},
		`topology.drift_ppm has 4 clocks`: func(p *sim.Plan) { p.Topology.DriftPPM = make([]int, 4) },
	} {
		p := fresh()
		wrong(&p)
		_, err := sim.Run(sim.Options{Plan: &p, System: &lock})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one with %q", err, want)
		}
	}
	p := fresh()
	p.System = ""
	err := p.Check()
	if err == nil || !strings.Contains(err.Error(), "items are 1, but system is missing: name the system") {
		t.Errorf("items of nothing: %v", err)
	}
	p = fresh()
	_, err = sim.Run(sim.Options{Plan: &p})
	if err == nil || !strings.Contains(err.Error(), `system is "lock", but the run is of system pd`) {
		t.Errorf("without its system: %v", err)
	}
	named := func(name string) sim.System {
		return sim.System{Name: "x", Processes: func(*sim.Plan) []sim.Process { return []sim.Process{{Name: name}} }}
	}
	for want, s := range map[string]sim.System{
		`system: name is "pd"`:                         {Name: "pd", Processes: lock.Processes},
		`system: lock is joined twice`:                 sim.Join(lock, lock),
		`system x: Processes is nil`:                   {Name: "x"},
		`system x: Processes returned no process`:      {Name: "x", Processes: func(*sim.Plan) []sim.Process { return nil }},
		`a process is called "n0": each process needs`: named("n0"),
		`process a has no New`:                         named("a"),
		`process a listens on alloc: use ChannelOther`: {Name: "x", Processes: func(p *sim.Plan) []sim.Process {
			return []sim.Process{{Name: "a", New: lock.Processes(p)[0].New, Channels: []effects.Channel{effects.ChannelAlloc}}}
		}},
	} {
		if _, err := sim.Run(sim.Options{System: &s}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one with %q", err, want)
		}
	}
}

// TestWrongNew: if New cannot create its machine, or requests the address of a node that does not exist, the run ends
// with an error, and the process does not end.
func TestWrongNew(t *testing.T) {
	for want, wrong := range map[string]func(b sim.Boot) (effects.Machine, error){
		`New of a: Boot.Addr: no node is called "srver": the nodes are server, a, b`: func(b sim.Boot) (effects.Machine, error) {
			return &client{server: b.Addr("srver", port)}, nil
		},
		"New of a: Boot.Addr: node b does not listen on channel32: add the channel to Channels": func(b sim.Boot) (effects.Machine,
			error) {
			return &client{server: b.Addr("b", port)}, nil
		},
		"New of a panics: no luck": func(sim.Boot) (effects.Machine, error) { panic("no luck") },
	} {
		s := *fixedLock()
		s.Processes = func(p *sim.Plan) []sim.Process {
			all := fixedLock().Processes(p)
			all[1].New = wrong
			return all
		}
		if _, err := sim.Run(sim.Options{System: &s}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// If Draw names a node that does not exist, or panics, the run ends with an error, and the process does not end.
func TestWrongDraw(t *testing.T) {
	for want, draw := range map[string]func(sim.Draws, *sim.Plan){
		`sim: system lock: Draw: Draws.Items: no node is called "c": the nodes are server, a, b`: func(d sim.Draws, p *sim.Plan) {
			p.Items = d.Items("acquire", 4, 20, "a", "c")
		},
		"sim: system lock: Draw panics: no luck": func(sim.Draws, *sim.Plan) { panic("no luck") },
	} {
		s := *fixedLock()
		s.Draw = draw
		if _, err := sim.Run(sim.Options{System: &s}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The event log shows the system's names of its facts.
func TestOwnFacts(t *testing.T) {
	named := false
	_, err := sim.Run(sim.Options{Seed: 1, System: &lock, Log: func(line string) {
		named = named || strings.Contains(line, "Observe held ")
		if strings.Contains(line, "fact64") {
			t.Errorf("a fact is not named: %s", line)
		}
	}})
	if err != nil || !named {
		t.Errorf("%v; the log names its fact: %t", err, named)
	}
}

// TestOwnMessages: a story shows the content of a message of a user's system, as text or in hexadecimal.
func TestOwnMessages(t *testing.T) {
	r, err := sim.Run(sim.Options{Seed: 1, System: &lock, RecordTrace: true})
	if err != nil {
		t.Fatal(err)
	}
	var asks, answers int
	for _, m := range r.Trace.Messages {
		switch {
		case m.Kind == `"acquire"`:
			asks++
		case len(m.Kind) == 8 && strings.Trim(m.Kind, "0123456789abcdef") == "": // Four bytes.
			answers++
		case strings.Contains(m.Kind, "bytes"):
			t.Errorf("a message is called %q", m.Kind)
		}
	}
	if asks == 0 || answers == 0 {
		t.Errorf("%d questions and %d answers are shown", asks, answers)
	}
}
