package gateway

import (
	"bytes"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// A script is a gateway that registers with one rank of a plain engine, step by step.
type script struct {
	t    *testing.T
	g    *Gateway
	out  Effects
	conn effects.Conn
	corr effects.Corr
	now  effects.Time
	// grant is the grant of what is registered; 0: the rank has granted no pages.
	grant uint64
}

var place = PlainRank{Host: "a", Port: 1, Stages: 1, Ranks: 1}

func newScript(t *testing.T) *script {
	s := &script{t: t, g: New(testConfig(t))}
	s.g.HandleOpen(&effects.Open{Corr: 1, Addr: place.Addr()}, &s.out)
	s.conn, s.corr = s.out.Events[0].(*effects.Opened).Conn, 1
	s.meets("one")
	return s
}

func (s *script) send(body []byte) {
	s.corr++
	s.out.Reset()
	s.g.HandleSend(max(1, s.now), &effects.Send{Corr: s.corr, Conn: s.conn, Body: body}, &s.out)
}

// hello has the rank say hello to the life with that agent, and the side channel answer.
func (s *script) hello(agent string) {
	m := protocol.HixlInitRequest{HasExt: true, Ext: protocol.HelloExt{ProtoMin: 1, ProtoMax: 1}}
	s.send(m.Append(nil))
	q := s.out.Queries[0]
	s.out.Reset()
	s.g.OnQueryReply(1, q.QueryID, metadataOf("a", agent), effects.OK, &s.out)
}

// A side channel of another version of the connector is refused by name, whatever its hash.
func TestOtherVersionIsRefused(t *testing.T) {
	g := New(testConfig(t))
	m := testConfig(t).Metadata
	older := bytes.Replace(m.Append(nil), []byte("ple_block_len"), []byte("ple_block_lem"), 1)
	h := protocol.NixlHello{Hash: []byte("h"), Metadata: older}
	_, _, code, why := g.decodeMetadata(h.Append(nil), &geometry.Worker{Ranks: 1, Stages: 1, Heads: 2, CellHeads: 1})
	if code != effects.Mismatch || why.Field != "nixl_connector_version" || why.Ours != protocol.NixlVersions ||
		why.Theirs != "an older one: it sends no ple_block_len" {
		t.Errorf("%v, %+v", code, why)
	}
}

// made has the agent that is wanted be there, and know what it is to know.
func (s *script) made(a Agent) {
	s.out.Reset()
	s.g.OnAgentMade(1, a, 7, effects.OK, &s.out)
	for _, l := range s.out.Loads {
		s.out.Reset()
		s.g.OnAgentLoaded(1, l.LoadID, string(l.Metadata), effects.OK, &s.out)
	}
}

func (s *script) meets(agent string) {
	s.hello(agent)
	s.made(s.out.MakeAgents[0])
}

func (s *script) register(operation uint64, request string) {
	s.registerWith("one", operation, request)
}

// registerWith has the rank register with the life that has an agent.
func (s *script) registerWith(agent string, operation uint64, request string) {
	m := protocol.PushRegistration{
		RequestID: []byte(request), EngineID: []byte("ours"), Host: []byte("here"), TPSize: 1,
		Blocks: [][]uint64{{1, 2}}, Remote: protocol.PushProducer{PPSize: 1}, HasExt: true,
		Ext: protocol.PushRegistrationExt{
			Version: 1, To: protocol.UUID(agentIncarnation(agent, place.Addr().Host, "1")), Operation: operation, First: []uint64{0},
			Ends: []uint64{2}, Grant: s.grant, PatienceNS: 1000,
		},
	}
	s.send(m.Append(nil))
}

// end is the code of the last answer on registrations.
func (s *script) end() effects.Code {
	s.t.Helper()
	m, limits := protocol.PushEnd{}, protocol.DefaultLimits()
	for _, ev := range s.out.Events {
		if r, ok := ev.(*effects.Replied); ok && m.Decode(r.Body, &limits) == nil {
			return effects.CodeFromWire(m.Code)
		}
	}
	s.t.Fatalf("nothing is answered: %v", s.out.Events)
	return 0
}

// What was granted to one life, and waits for an agent while another life comes, is never told to that.
func TestNextLifeIsNotTold(t *testing.T) {
	s := newScript(t)
	s.register(1, "r1")
	if len(s.out.Notifications) != 1 {
		t.Fatalf("%d notes, want the registration", len(s.out.Notifications))
	}
	off := protocol.PushWithdrawal{Version: 1, Operation: 1}
	s.send(off.Append(nil)) // Its agent goes, and the next registration waits for another.
	s.register(2, "r2")
	next := s.out.MakeAgents[0]
	s.hello("two")
	s.made(next)
	if len(s.out.Notifications) > 0 {
		t.Fatalf("%q is told to %s", s.out.Notifications[0].Body, s.out.Notifications[0].To)
	}
	if code := s.end(); code != effects.Stale {
		t.Errorf("it ends as %v, want stale", code)
	}
}

// A plain engine cannot be told that a request is not needed, also where others are kept by the same word.
func TestNotNeededIsNotCalledTold(t *testing.T) {
	s := newScript(t)
	m := protocol.PushKeep{
		Version: 1, To: protocol.UUID(agentIncarnation("one", place.Addr().Host, "1")), Keep: [][]byte{[]byte("k")},
		Skip: [][]byte{[]byte("s")},
	}
	s.send(m.Append(nil))
	if len(s.out.Notifications) != 1 || string(s.out.Notifications[0].Body) != "HB:k" {
		t.Errorf("%v is told, want a heartbeat of k", s.out.Notifications)
	}
	if code := s.end(); code != effects.Unsupported {
		t.Errorf("it ends as %v, want unsupported", code)
	}
}
