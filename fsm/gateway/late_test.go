package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// An engine restarts while its former agent is being loaded. The load ends after that of the new agent, and changes
// nothing: what is registered goes to the new agent.
func TestLateLoadOfAFormerAgent(t *testing.T) {
	s := &script{t: t, g: New(testConfig(t))}
	s.g.HandleOpen(&effects.Open{Corr: 1, Addr: place.Addr()}, &s.out)
	s.conn, s.corr = s.out.Events[0].(*effects.Opened).Conn, 1
	s.hello("one")
	first := s.out.MakeAgents[0]
	s.out.Reset()
	s.g.OnAgentMade(1, first, 7, effects.OK, &s.out)
	late := s.out.Loads[0]
	s.meets("two")
	s.out.Reset()
	s.g.OnAgentLoaded(1, late.LoadID, "one", effects.OK, &s.out)
	s.registerWith("two", 1, "r1")
	if len(s.out.Notifications) != 1 || s.out.Notifications[0].To != "two" {
		t.Errorf("the registration becomes %v, want a notification to agent two", s.out.Notifications)
	}
}

// All agents that a producer may have are retired, and wait for what was registered by them. Heartbeats still reach the
// producer, or its leases would run out meanwhile.
func TestHeartbeatByARetiredAgent(t *testing.T) {
	s := newScript(t)
	s.g.cfg.AgentsMax = 1
	s.register(1, "r1")
	s.register(2, "r2")
	off := protocol.PushWithdrawal{Version: 1, Operation: 1}
	s.send(off.Append(nil))
	m := protocol.PushKeep{
		Version: 1, To: protocol.UUID(agentIncarnation("one", place.Addr().Host, "1")), Keep: [][]byte{[]byte("k")},
	}
	s.send(m.Append(nil))
	if len(s.out.Notifications) != 1 || string(s.out.Notifications[0].Body) != "HB:k" || s.end() != effects.OK {
		t.Errorf("the heartbeat becomes %v", s.out.Notifications)
	}
}

// A registration that the rank has refused as stale is passed to it again with the time that is left.
func TestTimeOfARepeatedRegistration(t *testing.T) {
	g := New(testConfig(t))
	p := &peer{consumer: &consumer{writer: 5}, knownToRank: true}
	x := &engineRegistration{until: 1000, message: protocol.PushRegistration{
		RequestID: []byte("r1"), EngineID: []byte("D"), Host: []byte("D"), TPSize: 1, Blocks: [][]uint64{{1}},
		Remote: protocol.PushProducer{PPSize: 1},
	}}
	for _, now := range []effects.Time{0, 700, 2000} {
		var out Effects
		g.consumerSide.sendRegistration(now, p, x, &out)
		var m protocol.PushRegistration
		limits := protocol.DefaultLimits()
		if err := m.Decode(out.Events[0].(*effects.Received).Body, &limits); err != nil {
			t.Fatal(err)
		}
		if want := max(1, 1000-int64(now)); m.Ext.PatienceNS != uint64(want) {
			t.Errorf("at %d the rank may take %d ns, want %d", now, m.Ext.PatienceNS, want)
		}
	}
}

// The writer of an engine is destroyed before the rank says that everything was written. The engine cannot be told, and
// that is reported.
func TestWrittenWithoutAWriter(t *testing.T) {
	g := New(testConfig(t))
	var out Effects
	end := protocol.PushEnd{Version: 1, Operation: 1}
	g.handleEnd(1, &peer{consumer: &consumer{}}, &engineRegistration{requestID: []byte("r1")}, end.Append(nil), &out)
	if len(out.Notifications) > 0 || len(out.Reports) != 1 {
		t.Errorf("got the notifications %v and the reports %v", out.Notifications, out.Reports)
	}
}

// Another process registers in the name of a known engine. The side channel of the engine shows that the engine has not
// restarted, so the engine stays, and what the other process has registered ends.
func TestForgedNameRemovesNoEngine(t *testing.T) {
	g := New(testConfig(t))
	var out Effects
	known := func() (n int) {
		for _, c := range g.consumers {
			if c.phase == phaseKnown && !c.leaving {
				n++
			}
		}
		return n
	}
	metadata := "one" // what the side channel of the engine says
	register := func(agent, request string) {
		m := protocol.PushRegistration{
			RequestID: []byte(request), EngineID: []byte("D"), Host: []byte("D"), Port: 2, TPSize: 1, Blocks: [][]uint64{{1}},
			Remote: protocol.PushProducer{PPSize: 1},
		}
		g.OnNotification(1, Front, agent, m.Append(nil), &out)
		for len(out.Queries)+len(out.MakeWriters)+len(out.Loads) > 0 {
			x := out
			out = Effects{}
			for _, q := range x.Queries {
				g.OnQueryReply(1, q.QueryID, metadataOf("D", metadata), effects.OK, &out)
			}
			for _, a := range x.MakeWriters {
				g.OnAgentMade(1, a, 0, effects.OK, &out)
			}
			for _, l := range x.Loads {
				g.OnAgentLoaded(1, l.LoadID, string(l.Metadata), effects.OK, &out)
			}
			out.Reports = append(out.Reports, x.Reports...)
			out.DestroyAgents = append(out.DestroyAgents, x.DestroyAgents...)
		}
	}
	register("one", "r1")
	first := g.consumers[0]
	register("forged", "r2")
	if first.leaving || known() != 1 || len(out.DestroyAgents) != 1 || len(out.Reports) != 1 {
		t.Errorf("leaving %v, %d known, agents %v destroyed, reports %v", first.leaving, known(), out.DestroyAgents, out.Reports)
	}

	metadata = "two" // Now the engine restarts.
	register("two", "r3")
	if !first.leaving || known() != 1 {
		t.Errorf("the engine has restarted: the former one leaves: %v, %d known", first.leaving, known())
	}
}

// An engine restarts while its agent is being made. The driver knows the agent only when it is made, and is then asked to
// destroy it.
func TestAgentThatEndsBeforeItIsMade(t *testing.T) {
	s := &script{t: t, g: New(testConfig(t))}
	s.g.HandleOpen(&effects.Open{Corr: 1, Addr: place.Addr()}, &s.out)
	s.conn, s.corr = s.out.Events[0].(*effects.Opened).Conn, 1
	s.hello("one")
	first := s.out.MakeAgents[0]
	s.hello("two")
	if len(s.out.DestroyAgents) > 0 {
		t.Errorf("agents %v are destroyed, and are not made", s.out.DestroyAgents)
	}
	s.out.Reset()
	s.g.OnAgentMade(1, first, 7, effects.OK, &s.out)
	if len(s.out.DestroyAgents) != 1 || s.out.DestroyAgents[0] != first {
		t.Errorf("agents %v are destroyed, want %d", s.out.DestroyAgents, first)
	}
}

// The rank has granted no pages for a registration, because another rank of the engine writes the same heads, and cannot
// withdraw it. So no grant is revoked that would end the registration. The agent is destroyed nevertheless when the rank
// does not wait for the registration any more, and another hello gets an agent.
func TestRegistrationWithoutPagesEnds(t *testing.T) {
	for _, grant := range []uint64{0, 1} {
		s := newScript(t)
		s.g.cfg.AgentsMax, s.grant = 1, grant
		s.register(1, "r1")
		s.register(2, "r2")
		s.g.OnNotificationFailed(1, s.out.Notifications[0].Agent, 2, &s.out) // So the agent takes no new registrations.
		s.hello("two")
		if len(s.out.MakeAgents)+len(s.out.DestroyAgents) > 0 {
			t.Fatalf("grant %d: agents %v are made, %v are destroyed; the rank waits for a registration", grant, s.out.MakeAgents,
				s.out.DestroyAgents)
		}
		s.now = 2000
		m := protocol.HixlInitRequest{HasExt: true, Ext: protocol.HelloExt{ProtoMin: 1, ProtoMax: 1}}
		s.send(m.Append(nil))
		if gone := len(s.out.DestroyAgents) == 1; gone != (grant == 0) {
			t.Errorf("grant %d: agents %v are destroyed", grant, s.out.DestroyAgents)
		}
	}
}

// Two ranks of an engine register at the same time. The hello of the second follows the registration of the first: a rank
// whose table of peers is full would forget a peer that has only sent a hello.
func TestOneHelloAtATime(t *testing.T) {
	g := New(testConfig(t))
	var out Effects
	c := &consumer{phase: phaseKnown}
	for _, name := range []string{"one", "two"} {
		c.peers = append(c.peers, &peer{consumer: c, agentName: name})
	}
	g.consumers = append(g.consumers, c)
	for _, p := range c.peers {
		g.forwardRegistration(1, p, &engineRegistration{requestID: []byte("r1"), until: 1000}, &out)
	}
	if len(out.Events) != 1 {
		t.Fatalf("%d hellos are sent at the same time", len(out.Events))
	}
	reply := protocol.HixlInitResponse{HasExt: true, Ext: protocol.HelloExt{ProtoMin: 1, ProtoMax: 1}}
	var list protocol.HixlMemInfoResponse
	var order []string
	for i := 0; i < len(out.Events); i++ {
		e := out.Events[i].(*effects.Received)
		for _, q := range g.requests {
			if q.request != e.Request {
				continue
			}
			order = append(order, fmt.Sprint(q.peer.agentName, q.kind))
			switch q.kind {
			case requestHello:
				g.HandleReply(1, &effects.Reply{Request: e.Request, Body: reply.Append(nil)}, &out)
			case requestBufferList:
				g.HandleReply(1, &effects.Reply{Request: e.Request, Body: list.Append(nil)}, &out)
			case requestRegister, requestKeepAlive:
			}
			break
		}
	}
	if want := "one0 one1 one2 two0 two1 two2"; strings.Join(order, " ") != want {
		t.Errorf("the rank gets %v, want %s", order, want)
	}
}

// More results wait than are kept, and the oldest is dropped. The rank repeats that registration: it is not sent again,
// because the engine may have carried it out. The next one that is repeated gets its result.
func TestDroppedResult(t *testing.T) {
	s := newScript(t)
	s.g.cfg.RegistrationsMax = 1
	requests := []string{"r1", "r2"}
	for i, request := range requests {
		s.register(uint64(i+1), request)
		if len(s.out.Notifications) != 1 {
			t.Fatalf("registration %d is sent %d times", i+1, len(s.out.Notifications))
		}
		agent := s.out.Notifications[0].Agent
		s.g.HandleClose(s.conn, &s.out)
		done := protocol.PushCompletion{RequestID: []byte(request), Ranks: 1}
		s.g.OnNotification(1, agent, "one", done.Append(nil), &s.out)
		s.out.Reset()
		s.corr++
		s.g.HandleOpen(&effects.Open{Corr: s.corr, Addr: place.Addr()}, &s.out)
		s.conn = s.out.Events[0].(*effects.Opened).Conn
	}
	for i, want := range []effects.Code{effects.Ended, effects.OK} {
		s.register(uint64(i+1), requests[i])
		if code := s.end(); code != want || len(s.out.Notifications) > 0 {
			t.Errorf("registration %d ends as %v and is sent %d times, want %v", i+1, code, len(s.out.Notifications), want)
		}
	}
}

// A place names a rank that its engine can have: ranks and stages are counted from 0.
func TestParsePlainRank(t *testing.T) {
	for _, at := range []PlainRank{
		{Host: "a", Port: 1, Stages: 1, Ranks: 1},
		{Host: "a/pp0of1", Port: 65535, Stage: 1, Stages: 2, Rank: 3, Ranks: 4},
	} {
		if got, ok := ParsePlainRank(at.Addr()); !ok || got != at {
			t.Errorf("%v is parsed as %v, %v", at.Addr(), got, ok)
		}
	}
	for _, host := range []string{
		"a/pp0of1/tp0of1", "vllm:///pp0of1/tp0of1", "vllm://a/pp0of1", "vllm://a/tp0of1", "vllm://a/pp0of1/tp1of1", "vllm://a/pp1of1/tp0of1",
		"vllm://a/pp0of1/tp2of2", "vllm://a/pp0of0/tp0of1", "vllm://a/pp0of1/tp0of0", "vllm://a/pp0of1/tp-1of1", "vllm://a/pp0of1/tp0",
		"vllm://a/pp0of1/tp0of4294967295",
	} {
		if got, ok := ParsePlainRank(effects.Addr{Host: host, Port: 1}); ok {
			t.Errorf("%s is parsed as %v", host, got)
		}
	}
	if got, ok := ParsePlainRank(effects.Addr{Host: place.Addr().Host}); ok {
		t.Errorf("an address without a port is parsed as %v", got)
	}
}

// The blob of the hello in whose name heartbeats are passed on leads nowhere, also while an engine's rank has no key yet.
func TestNoRouteWithoutAKey(t *testing.T) {
	g := New(testConfig(t))
	g.consumers = []*consumer{{writer: 5, writerMade: true, phase: phaseLoading, peers: []*peer{{}}}}
	if r, ok := g.FindRoute(0); ok {
		t.Errorf("key 0 leads to %+v", r)
	}
}
