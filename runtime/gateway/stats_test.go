//go:build cgo && linux

package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/gateway"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
)

var _ runtime.CountingGateway = (*gateway.Gateway)(nil)

// TestCountsAreVisited compares what metrics have of a gateway with its counts.
func TestCountsAreVisited(t *testing.T) {
	n, g, _ := openNodeAndGateway(t)
	seen := map[string]gateway.Results{}
	counting, ok := n.Gateway()
	if !ok {
		t.Fatal("the node's gateway does not count")
	}
	counting.VisitCounts(func(operation string, ok, failed uint64) { seen[operation] = gateway.Results{OK: ok, Failed: failed} })
	if len(seen) != 8 || seen["agent_made"] != g.Stats().AgentsMade || seen["agent_made"].OK != 1 {
		t.Errorf("got %v, want the counts of %v", seen, g.Stats())
	}
	if p, c, agents := counting.CountEngines(); p+c != 0 || agents != 1 {
		t.Errorf("%d producers, %d consumers, %d agents", p, c, agents)
	}
}

// Requests, writes and further operations are counted by outcome.
func TestStats(t *testing.T) {
	n, g, port := openNodeAndGateway(t)
	if got := g.Stats(); got != (gateway.Stats{Agents: 1, AgentsMade: gateway.Results{OK: 1}}) {
		t.Errorf("of a gateway that nobody knows: %v", got)
	}
	p := newPlainEngine(t, "P")
	list := []int{3, 9}
	p.fillBlocks("in", list)
	p.finished["in"] = list
	r, err := n.Consumer().Register(t.Context(), newRegistration(p, "in-0123abcd", 0, []uint32{2, 5}))
	if err != nil {
		t.Fatal(err)
	}
	p.runUntil("written", func() bool { return len(r.Done()) > 0 })
	s := g.Stats()
	if s.Producers != 1 || s.Consumers != 0 || s.Agents != 2 || s.RequestsSent.OK == 0 ||
		s.AgentsLoaded.OK == 0 || s.NotesSent.OK == 0 ||
		s.NotesReceived.OK == 0 || s.Writes != (gateway.Results{}) || s.Bytes != 0 {
		t.Errorf("of an engine that writes here: %v", s)
	}

	d := newPlainEngine(t, "D")
	at := d.loadRemote("127.0.0.1", port)
	d.registerBlocks(at, "out-0123abcd", []int{2, 5})
	l, err := n.Producer().LendBlocks(t.Context(), runtime.FinishedRequest{
		Request: "out-89abcdef", Blocks: []runtime.Blocks{{Logical: []uint32{3, 9}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.runUntil("a completion", func() bool { return d.completed["out-0123abcd"] > 0 })
	<-l.Done()
	s = g.Stats()
	if s.Consumers != 1 || s.RequestsServed.OK == 0 || s.Writes.OK == 0 || s.Writes.Failed != 0 ||
		s.Bytes != layers*2*blockBytes {
		t.Errorf("of an engine that is written to: %v", s)
	}
	if s.RequestsSent.Failed+s.RequestsServed.Failed+s.AgentsMade.Failed+s.AgentsLoaded.Failed+
		s.NotesReceived.Failed+s.NotesSent.Failed > 0 {
		t.Errorf("something failed: %v", s)
	}
	if got := s.String(); !strings.Contains(got, "writes=1/0 bytes=") {
		t.Errorf("it reads %s", got)
	}

	// Nobody is there any more: what is asked fails.
	gone := newRegistration(p, "gone-0123abcd", 0, []uint32{7})
	gone.Producers = []runtime.ProducerPeer{gateway.ProducerAddr("127.0.0.1", uint16(freePort(t)), 0, 1, 0, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if r, err = n.Consumer().Register(ctx, gone); err != nil {
		t.Fatal(err)
	}
	p.runUntil("a question that is not answered", func() bool { return g.Stats().RequestsSent.Failed > 0 })
	cancel()
	<-r.Done()
}

// All side channels together take only a quarter of the process's files, however many side channels there may be.
func TestSideChannelsShareFiles(t *testing.T) {
	for _, x := range []struct {
		limit           int
		engines, agents uint32
		want            int
	}{{1 << 20, 16, 4, 128}, {16384, 16, 4, 63}, {1024, 16, 4, 4}, {1024, 1, 1, 128}, {1 << 20, 1024, 16, 15}} {
		c := gateway.Config{Limits: config.Gateway{EnginesMax: x.engines, AgentsMax: x.agents}}
		got := gateway.SideConnLimitFor(&c, x.limit)
		if all := got * int(1+x.engines*x.agents); got != x.want || all > x.limit/4 && got > 4 {
			t.Errorf("%d engines with %d agents of %d files: %d for each side channel, %d in all", x.engines, x.agents, x.limit,
				got, all)
		}
	}
}

// A gateway opens its side channels with that bound.
func TestSideChannelsAreBounded(t *testing.T) {
	bounds := make(chan int, 8)
	openNodeWithSides(t, func(env control.Env) (control.Transport, error) {
		if len(env.Servers) > 0 {
			bounds <- env.MaxInbound
		}
		return zmq.Config{}.Opener()(env)
	})
	if got := <-bounds; got < 4 || got > 128 {
		t.Errorf("a side channel may have %d connections", got)
	}
}

// A gateway that further hosts reach is refused, unless the network is declared as trusted.
func TestTrustedNetwork(t *testing.T) {
	c := gateway.Config{
		Agents: nixlproc.Options{}.Open, SideChannels: zmq.Config{}.Opener(), EngineID: "ours", Host: "10.0.0.1", Port: 1,
		CompatibilityHash: hash,
		Geometry:          &geometry.Geometry{Ranks: 1, Stages: 1}, Layout: protocol.Layout{},
	}
	_, err := gateway.New(c)
	if !errors.Is(err, libnixl.ErrUntrusted) || !strings.Contains(err.Error(), "nixl.trusted_network: true") ||
		!strings.Contains(err.Error(), `"10.0.0.1"`) {
		t.Errorf("it is reached by others, and %v", err)
	}
	c.TrustedNetwork = true
	if _, err := gateway.New(c); err != nil {
		t.Error(err)
	}
	c.TrustedNetwork, c.Host = false, "::1"
	if _, err := gateway.New(c); err != nil {
		t.Error(err)
	}
}

// Limits come from the configuration file, with defaults for zero values; the error for an invalid limit names the key.
func TestLimits(t *testing.T) {
	c := gateway.Config{
		Agents: nixlproc.Options{}.Open, SideChannels: zmq.Config{}.Opener(), EngineID: "ours", Host: "127.0.0.1", Port: 1,
		CompatibilityHash: hash,
		Geometry:          &geometry.Geometry{Ranks: 1, Stages: 1}, Layout: protocol.Layout{},
	}
	cfg, err := config.Parse("test", []byte(nodeText), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, limits := range []config.Gateway{{}, cfg.Gateway, {Transports: "tcp", RegistrationTimeout: 24 * time.Hour, EnginesMax: 1024,
		RegistrationsMax: 1 << 16, PendingMax: 1 << 16, AgentsMax: 1024, Attempts: 100, Window: 1 << 15}} {
		c.Limits = limits
		if _, err := gateway.New(c); err != nil {
			t.Errorf("%+v: %v", limits, err)
		}
	}
	c.Limits = config.Gateway{}
	if got := gateway.WithDefaults(t, c).Limits; !reflect.DeepEqual(got, cfg.Gateway) {
		t.Errorf("the defaults are %+v, and those of a file %+v", got, cfg.Gateway)
	}
	for _, bad := range []struct {
		key, value string
		limits     config.Gateway
	}{
		{"transports", "all", config.Gateway{Transports: "all"}},
		{"registration_timeout", "999ms", config.Gateway{RegistrationTimeout: 999 * time.Millisecond}},
		{"registration_timeout", "86401s", config.Gateway{RegistrationTimeout: 86401 * time.Second}},
		{"side_timeout", "999us", config.Gateway{SideTimeout: 999 * time.Microsecond}},
		{"side_timeout", "2h", config.Gateway{SideTimeout: 2 * time.Hour}},
		{"stall_timeout", "999us", config.Gateway{StallTimeout: 999 * time.Microsecond}},
		{"stall_timeout", "2h", config.Gateway{StallTimeout: 2 * time.Hour}},
		{"engines", "1025", config.Gateway{EnginesMax: 1025}},
		{"asks", "65537", config.Gateway{RegistrationsMax: 1<<16 + 1}},
		{"waiting", "65537", config.Gateway{PendingMax: 1<<16 + 1}},
		{"agents", "1025", config.Gateway{AgentsMax: 1025}},
		{"tries", "101", config.Gateway{Attempts: 101}},
		{"window", "32769", config.Gateway{Window: 1<<15 + 1}},
	} {
		c.Limits = bad.limits
		_, err := gateway.New(c)
		if !errors.Is(err, plane.ErrInvalid) || !strings.Contains(err.Error(), "gateway."+bad.key+" of the gateway is") {
			t.Errorf("%s is %s: %v", bad.key, bad.value, err)
		}
		if err := parseLimit(bad.key, bad.value); err == nil || !strings.Contains(err.Error(), bad.key) {
			t.Errorf("%s is %s in a file: %v", bad.key, bad.value, err)
		}
	}
	for key, value := range map[string]string{"registration_timeout": "1s", "side_timeout": "1h", "stall_timeout": "1ms"} {
		if err := parseLimit(key, value); err != nil {
			t.Errorf("%s is %s in a file: %v", key, value, err)
		}
	}
}

// parseLimit returns a limit as a node's configuration file writes it.
func parseLimit(key, value string) error {
	_, err := config.Parse("test", fmt.Appendf(nil, "%s    gateway: {%s: %s}\n", nodeText, key, value), nil)
	return err
}
