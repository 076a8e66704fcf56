package sim

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems"
)

// TestPlanIsTheRun: the plan of a seed, written and read again, is the same run, and so is the plan with the recorded
// strikes and without rates.
func TestPlanIsTheRun(t *testing.T) {
	for _, profile := range systems.Profiles() {
		for seed := range uint64(5) {
			drawn, err := systems.Expand(seed, profile)
			if err != nil {
				t.Fatal(err)
			}
			text, err := drawn.Text()
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Parse(text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			want := mustRun(t, Options{Seed: seed, Profile: profile})
			got := mustRun(t, Options{Plan: &p, RecordStrikes: true})
			if got.Hash != want.Hash {
				t.Fatalf("profile %s, seed %d: the plan runs otherwise than the seed", profile, seed)
			}
			recorded := p.WithStrikes(got.Strikes)
			if again := mustRun(t, Options{Plan: &recorded}); again.Hash != want.Hash {
				t.Fatalf("profile %s, seed %d: the record runs otherwise than the seed", profile, seed)
			} else if len(strings.Join(again.UnusedFaults, "")) > 0 && strings.Contains(again.UnusedFaults[0], "#") {
				t.Fatalf("profile %s, seed %d: strikes were recorded that had no occasion: %v", profile, seed, again.UnusedFaults)
			}
		}
	}
}

// The plan of every seed can be written and read. Otherwise a failure could not be replayed from a file.
func TestDrawnPlansAreTaken(t *testing.T) {
	for _, profile := range systems.Profiles() {
		for seed := range uint64(300) {
			p, err := systems.Expand(seed, profile)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Check(); err != nil {
				t.Fatalf("profile %s, seed %d: %v", profile, seed, err)
			}
		}
	}
}

// TestSpared: a strike can be removed by its name, and nothing before the strike changes.
func TestSpared(t *testing.T) {
	p, err := systems.Expand(3, expand.DefaultProfile)
	if err != nil {
		t.Fatal(err)
	}
	all := mustRun(t, Options{Plan: &p, RecordStrikes: true})
	if len(all.Strikes) < 3 {
		t.Fatalf("seed 3 strikes %d times only; take another", len(all.Strikes))
	}
	out := all.Strikes[2]
	p.Spared = []plan.Strike{out}
	less := mustRun(t, Options{Plan: &p, RecordStrikes: true})
	if len(less.Strikes) < 2 || less.Strikes[0] != all.Strikes[0] || less.Strikes[1] != all.Strikes[1] {
		t.Errorf("sparing the third strike changed the first two")
	}
	for _, s := range less.Strikes {
		if s == out {
			t.Errorf("%s happens although it is spared", s)
		}
	}
	p.Rates, p.Strikes, p.Spared = nil, []plan.Strike{{Fault: plan.FaultDMAFailed, About: plan.AboutTransfer(0, 9, 1)}}, nil
	if r := mustRun(t, Options{Plan: &p}); len(r.UnusedFaults) == 0 || !strings.Contains(strings.Join(r.UnusedFaults, "\n"),
		"dma failed: n0.9 transfer#1, 0") {
		t.Errorf("a strike without occasion is not told: %v", r.UnusedFaults)
	}
}

func TestPlanRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"seed: 3\n", "version is 0"},
		{"version: 1\ncolour: red\n", "colour"},
		{"version: 1\ntopology: {colour: true}\n", "topology.colour is unknown: leave it out"},
		{"version: 1\ntopology: {find: true}\n", "topology.find is unknown: leave it out"},
		{"version: 1\ntopology: {share: true}\n", "topology.share is true: nodes that share must both send and receive"},
		{"version: 1\njobs: [{request: 1, from: n0, to: n1, keys: [1], batch: 1, recall: true}]\n",
			"jobs[0].recall is true: a recall job needs topology.recall"},
		{"version: 1\ntopology: {senders: 900}\n", "topology.senders is 900: give 1 to 119"},
		{"version: 1\ntopology: {senders: 60, receivers: 61}\n", "together is 121: give 2 to 120"},
		{"version: 1\ntimeouts: {put: 3}\n", "timeouts.put is 3: give a duration"},
		{"version: 1\ntimeouts: {put: -3s}\n", "timeouts.put is -3s: give 1µs to 1h0m0s"},
		{"version: 1\ntimeouts: {reply: 1ms}\n", "timeouts.reply is 1ms: give more than timeouts.alloc"},
		{"version: 1\njobs: [{request: 1, from: n1, to: n1, keys: [1], batch: 1}]\n",
			"jobs[0].from is n1: give a sender, n0 to n0"},
		{"version: 1\njobs: [{request: 1, from: n0, to: n1, keys: [], batch: 1}]\n", "the count of jobs[0].keys is 0"},
		{"version: 1\njobs: [{request: 1, from: n0, to: n1, keys: [1], batch: 1}, {request: 1, from: n0, to: n1, keys: " +
			"[1], " +
			"batch: 1}]\n", "an earlier job has"},
		{"version: 1\nfaults: [{fault: flood}]\n", `fault "flood" is unknown: use one of crash,`},
		{"version: 1\nfaults: [{fault: dma failed}]\n", "is not a scheduled fault"},
		{"version: 1\nfaults: [{fault: crash, node: n7}]\n", "faults[0].node is n7"},
		{"version: 1\nfaults: [{fault: crash, when: during Grant}]\n", "give before or after and one of any, Open"},
		{"version: 1\nrates: {crash: 3}\n", "scheduled"},
		{"version: 1\nrates: {dma failed: 3000}\n", "rates: dma failed is 3000: give 0 to 1000"},
		{"version: 1\nstrikes: [{fault: dma failed, about: transfer 3, nth: 1}]\n", `subject "transfer 3" is invalid`},
	} {
		if _, err := plan.Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want %q", c.text, err, c.want)
		}
	}
}

func TestSubjectText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := rapid.Int32Range(0, plan.NodesMax-1).Draw(t, "node")
		life := rapid.Uint32Range(0, 99).Draw(t, "life")
		nth := rapid.Uint32Range(0, 9999).Draw(t, "nth")
		server := rapid.Int32Range(plan.Proxy, plan.NodesMax-1).Draw(t, "server")
		for _, s := range []plan.Subject{
			plan.AboutNode(node, life), plan.AboutTransfer(node, life, nth),
			plan.AboutConn(node, life, server, effects.Channel(rapid.Uint8Min(1).Draw(t, "channel")), nth),
			plan.AboutCommand(nth, plan.CommandKind(rapid.Uint8Min(1).Draw(t, "want")), life),
		} {
			var back plan.Subject
			if err := back.UnmarshalText([]byte(s.String())); err != nil || back != s {
				t.Fatalf("%s reads back as %s: %v", s, back, err)
			}
		}
	})
}

// TestSubjectsStay: the numbers of old channels and commands in subjects have not changed when the range of numbers was
// extended, because draws depend on these numbers.
func TestSubjectsStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node, server := rapid.Uint8Max(plan.NodesMax-1).Draw(t, "node"), rapid.Uint8().Draw(t, "server")
		life, nth := rapid.Uint16().Draw(t, "life"), rapid.Uint32().Draw(t, "nth")
		ch, x := rapid.Uint8Range(1, 14).Draw(t, "channel"), rapid.Uint8Range(1, 14).Draw(t, "want")
		request := rapid.Uint32Max(plan.RequestMax).Draw(t, "request")
		conn := plan.Subject(2<<60 | uint64(node)<<52 | uint64(server)<<44 | uint64(ch)<<40 | uint64(life)<<24 |
			uint64(nth&0xFFFFFF))
		if s := plan.AboutConn(int32(node), uint32(life), int32(int8(server)), effects.Channel(ch), nth); s != conn {
			t.Fatalf("%s has number %x, not %x", s, uint64(s), uint64(conn))
		}
		command := plan.Subject(4<<60 | uint64(x)<<56 | uint64(request)<<32 | uint64(nth))
		if s := plan.AboutCommand(request, plan.CommandKind(x), nth); s != command || s.CommandKind() != plan.CommandKind(x) {
			t.Fatalf("%s has number %x, not %x", s, uint64(s), uint64(command))
		}
	})
	for text, s := range map[string]plan.Subject{
		"n0.0>n2 alloc#3":      plan.AboutConn(0, 0, 2, effects.ChannelAlloc, 3),
		"n0.0>proxy proxy#1":   plan.AboutConn(0, 0, plan.Proxy, effects.ChannelProxy, 1),
		"n0.1>plain init#1":    plan.AboutConn(0, 1, plan.Outsider, effects.ChannelInit, 1),
		"n119.0>nobody done#2": plan.AboutConn(119, 0, plan.NoNode, effects.ChannelDone, 2),
		"n0.0>n2 channel200#3": plan.AboutConn(0, 0, 2, 200, 3),
		"r12 put#1":            plan.AboutCommand(12, plan.CommandPut, 1),
		"r12 command40#1":      plan.AboutCommand(12, 40, 1),
	} {
		if back, ok := plan.ParseSubject(text); !ok || back != s || s.String() != text {
			t.Errorf("%q reads as %s, %v", s, back, ok)
		}
	}
	for _, text := range []string{"n0.0>n2 channel1#3", "n0.0>n2 channel256#3", "n0.0>n2 channel20#65536",
		"r12 command2#1", "r12 command0#1", "r12 none#1", "r12 command20#16777216", "n0.0>n2 #1", "n0.0>n2 alloc#16777216"} {
		if s, ok := plan.ParseSubject(text); ok {
			t.Errorf("%q is taken for %s", text, s)
		}
	}
}

// TestNewPlan: the default plan can be run with a job added by hand.
func TestNewPlan(t *testing.T) {
	p := plan.New()
	p.Jobs = []plan.Job{{At: time.Millisecond, From: 0, To: 1, Keys: []uint32{1, 2, 3}, Batch: 2}}
	r := mustRun(t, Options{Plan: &p})
	if r.Failure != nil {
		t.Fatal(r.Failure)
	}
	if r.Chunks < 3 {
		t.Errorf("%d chunks arrived, want 3 and those of the probes", r.Chunks)
	}
}

func mustRun(t *testing.T, o Options) Result {
	t.Helper()
	r, err := Run(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestStale: the parts of a kept plan that no longer have an effect are reported, and do not make the plan invalid.
func TestStale(t *testing.T) {
	p, err := plan.Parse([]byte(
		"version: 1\nreaches: [sender/no-such-mark]\nfaults: [{at: 1ms, fault: link cut, node: world}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := mustRun(t, Options{Plan: &p})
	told := strings.Join(StaleReasons(&p, &r), "\n")
	for _, want := range []string{"link cut: 1 of 1 found nothing to strike",
		"mark sender/no-such-mark is no longer reached"} {
		if !strings.Contains(told, want) {
			t.Errorf("no %q in %q", want, told)
		}
	}
}
