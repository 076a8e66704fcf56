package gateway

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// A world has a gateway between a rank that may do anything and engines that may do anything, and remembers what a
// promise of the gateway's rests on.
type world struct {
	t   *rapid.T
	g   *Gateway
	out Effects
	now effects.Time

	corr  effects.Corr
	open  map[effects.Corr]bool // Opens and Sends without their one answer
	conns []opened
	asks  []*asked

	agents    map[Agent]*agent
	questions []Query
	loads     []Load
	expels    map[uint64][]Agent // which agents a proof needs to be gone
	expel     uint64
	lives     map[int]int    // of engines
	says      []Notification // registrations that engines have
	hellos    map[effects.Corr]PlainRank
	described map[PlainRank]string // the agent that a rank told of last

	// The other way.
	received []effects.Received
	last     string         // the registration of an engine that the rank has answered last
	oks      map[string]int // that it said were written, less the completions told
}

type opened struct {
	id    effects.Conn
	place PlainRank
	corr  effects.Corr
}

type asked struct {
	operation uint64
	request   string
	told      int
	by        Agent
	to        string
	completed bool
	ended     bool // the rank has heard so, and does not ask again
	at        PlainRank
	who       effects.Incarnation // that it was granted to
	expelled  bool                // before it was told
	withdrawn bool
	disturbed bool // something went wrong of which it may end
}

type agent struct{ made, gone, written bool }

func (w *world) engine(i int) string { return fmt.Sprintf("engine-%d life %d", i, w.lives[i]) }

func metadataOf(id, agent string) []byte {
	m := protocol.NixlMetadata{
		EngineID: []byte(id), Agent: []byte(agent), BaseAddrs: []uint64{1 << 20, 1 << 21}, NumBlocks: 8,
		BlockLens: []uint64{64, 64}, BlockStrides: []uint64{64, 64}, Layout: []byte("LBHNC"), BlockSize: 4, PerLogical: 1,
		Backend: []byte("B"), DCPSize: 1, PCPSize: 1,
	}
	h := protocol.NixlHello{Hash: []byte("h"), Metadata: m.Append(nil)}
	return h.Append(nil)
}

func testConfig(t interface{ Fatal(args ...any) }) Config {
	m := protocol.NixlMetadata{
		EngineID: []byte("ours"), BaseAddrs: []uint64{1 << 30, 1 << 31}, NumBlocks: 8, BlockLens: []uint64{64, 64},
		BlockStrides: []uint64{64, 64}, Layout: []byte("LBHNC"), BlockSize: 4, PerLogical: 1, DCPSize: 1, PCPSize: 1,
	}
	own, err := geometry.ParseRegions(&m, &geometry.Worker{Ranks: 1, Stages: 1, Heads: 2, CellHeads: 1})
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Own: own, Metadata: m, FrontMetadata: m, Hash: "h", Host: "here", Plane: "plain", Window: 4, RegistrationTimeout: 1000, EnginesMax: 2,
		RegistrationsMax: 4, PendingMax: 4, RanksMax: 4, AgentsMax: 3, TriesMax: 3, Wire: protocol.DefaultLimits(),
	}
}

func newWorld(t *rapid.T) *world {
	cfg := testConfig(t)
	cfg.RegistrationsMax = rapid.IntRange(1, 4).Draw(t, "registrations") // With few of them, results are dropped.
	return &world{
		t: t, g: New(cfg),
		open: map[effects.Corr]bool{}, agents: map[Agent]*agent{Front: {made: true}}, expels: map[uint64][]Agent{},
		lives: map[int]int{}, oks: map[string]int{}, hellos: map[effects.Corr]PlainRank{},
		described: map[PlainRank]string{},
	}
}

// took looks at what the gateway wants, and holds it against what it may want.
func (w *world) took() {
	w.t.Helper()
	for _, a := range slices.Concat(w.out.MakeAgents, w.out.MakeWriters) {
		if w.agents[a] != nil {
			w.t.Fatalf("agent %d is made twice", a)
		}
		w.agents[a] = &agent{written: slices.Contains(w.out.MakeAgents, a)}
	}
	w.questions, w.loads = append(w.questions, w.out.Queries...), append(w.loads, w.out.Loads...)
	for _, s := range w.out.Notifications {
		w.said(s)
	}
	for _, a := range w.out.DestroyAgents {
		if x := w.agents[a]; x == nil || x.gone {
			w.t.Fatalf("agent %d is destroyed, and is not there", a)
		}
	}
	for _, n := range w.out.DoneExpulsions {
		for _, a := range w.expels[n] {
			if !w.agents[a].gone {
				w.t.Fatalf("expulsion %d is called proven while agent %d lives", n, a)
			}
		}
		delete(w.expels, n)
	}
	for _, ev := range w.out.Events {
		w.event(ev)
	}
	under := 0
	for _, a := range w.g.registrations {
		if !a.over {
			under++
		}
	}
	if n := len(w.g.registrations); under > w.g.cfg.RegistrationsMax || n > 2*w.g.cfg.RegistrationsMax {
		w.t.Fatalf("%d registrations are kept, %d of them are not over", n, under)
	}
	if n := len(w.g.consumerSide.openRegistrations()); n > w.g.cfg.PendingMax {
		w.t.Fatalf("%d registrations of engines are kept", n)
	}
	if n := len(w.g.producers); n > w.g.cfg.EnginesMax {
		w.t.Fatalf("%d engines are kept", n)
	}
	w.out.Reset()
}

func (w *world) said(s Notification) {
	if w.agents[s.Agent].gone {
		w.t.Fatalf("agent %d says something, and is gone", s.Agent)
	}
	switch protocol.NotificationKindOf(s.Body) {
	case protocol.NixlRegistration:
		m, limits := protocol.PushRegistration{}, protocol.DefaultLimits()
		if err := m.Decode(s.Body, &limits); err != nil || m.HasExt {
			w.t.Fatalf("a plain engine is told %q: %v", s.Body, err)
		}
		for _, a := range w.asks {
			if a.operation != s.Tag {
				continue
			}
			if a.told++; a.told > 1 || a.ended || a.expelled || a.request != string(m.RequestID) {
				w.t.Fatalf("registration %d is told %d times, as %s", a.operation, a.told, m.RequestID)
			}
			if w.life(a.at, s.To) != a.who {
				w.t.Fatalf("registration %d is told to %s, and was granted to another life", a.operation, s.To)
			}
			a.by, a.to = s.Agent, s.To
			w.says = append(w.says, Notification{Agent: s.Agent, To: s.To, Body: []byte(a.request)})
		}
	case protocol.NixlCompletion:
		key := s.To + " " + string(s.Body)
		if w.oks[key]--; w.oks[key] < 0 {
			w.t.Fatalf("%q is told, and was not written, or is told again", key)
		}
	case protocol.NixlHeartbeat:
	}
}

func (w *world) answered(corr effects.Corr) {
	if !w.open[corr] {
		w.t.Fatalf("%d is answered twice, or was never asked", corr)
	}
	delete(w.open, corr)
}

func (w *world) event(ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Opened:
		w.answered(ev.Corr)
		for i := range w.conns {
			if w.conns[i].corr == ev.Corr {
				w.conns[i].id = ev.Conn
			}
		}
	case *effects.Unanswered:
		w.answered(ev.Corr)
	case *effects.Replied:
		w.answered(ev.Corr)
		end, limits := protocol.PushEnd{}, protocol.DefaultLimits()
		if end.Decode(ev.Body, &limits) == nil && end.Operation != 0 {
			w.ended(&end)
		}
		m := protocol.HixlInitResponse{}
		if place, is := w.hellos[ev.Corr]; is && m.Decode(ev.Body, &limits) == nil && m.Ext.Code == 0 {
			if who := effects.Incarnation(m.Ext.Incarnation); who != w.life(place, w.described[place]) {
				w.t.Fatalf("%v is %q, and is called another life", place, w.described[place])
			}
		}
	case *effects.Received:
		w.received = append(w.received, *ev)
	default:
		w.t.Fatalf("%T", ev)
	}
}

// ended holds the end of a registration against what it promises: nothing of it is written any more.
func (w *world) ended(end *protocol.PushEnd) {
	for _, a := range w.asks {
		if a.operation != end.Operation {
			continue
		}
		a.ended = true
		code := effects.CodeFromWire(end.Code)
		if code == effects.PeerLost && !a.disturbed || code == effects.Cancelled && !a.withdrawn {
			w.t.Fatalf("registration %d ends with %d, and nothing was wrong", a.operation, end.Code)
		}
		quiet := a.told == 0 || a.completed || w.agents[a.by].gone
		if !quiet || end.Code == 0 && !a.completed {
			w.t.Fatalf("registration %d ends with %d: told %d, completed %v, its agent gone %v", a.operation, end.Code, a.told,
				a.completed, a.told > 0 && w.agents[a.by].gone)
		}
	}
}

func pick[T any](w *world, what string, list []T) (x T, ok bool) {
	if len(list) == 0 {
		return x, false
	}
	return rapid.SampledFrom(list).Draw(w.t, what), true
}

func (w *world) ask() effects.Corr {
	w.corr++
	w.open[w.corr] = true
	return w.corr
}

// places are those that the rank registers with: two engines, one of two ranks, and a third one, for which there is no
// room.
var places = []PlainRank{
	{Host: "a", Port: 1, Stages: 1, Ranks: 1}, {Host: "b", Port: 2, Stages: 1, Ranks: 2},
	{Host: "b", Port: 2, Stages: 1, Rank: 1, Ranks: 2}, {Host: "c", Port: 3, Stages: 1, Ranks: 1},
}

func engineOf(host string) int { return int(host[0] - 'a') }

// agentName is that of a rank's agent of now.
func (w *world) agentName(p PlainRank) string {
	return fmt.Sprintf("%s rank %d", w.engine(engineOf(p.Host)), p.Rank)
}

// life is how the rank knows an agent of a place.
func (w *world) life(at PlainRank, agent string) effects.Incarnation {
	return agentIncarnation(agent, at.Addr().Host, formatDecimal(uint64(at.Port)))
}

func (w *world) send(body []byte) {
	if c, ok := pick(w, "conn", w.conns); ok {
		w.g.HandleSend(w.now, &effects.Send{Corr: w.ask(), Conn: c.id, Body: body}, &w.out)
	}
}

// rank does something that a rank does.
func (w *world) rank() {
	switch rapid.IntRange(0, 7).Draw(w.t, "the rank") {
	case 0:
		p, _ := pick(w, "place", places)
		corr := w.ask()
		w.conns = append(w.conns, opened{place: p, corr: corr})
		w.g.HandleOpen(&effects.Open{Corr: corr, Addr: p.Addr()}, &w.out)
	case 1, 2:
		m := protocol.HixlInitRequest{HasExt: true, Ext: protocol.HelloExt{ProtoMin: 1, ProtoMax: 1}}
		if c, ok := pick(w, "conn", w.conns); ok {
			corr := w.ask()
			w.hellos[corr] = c.place
			w.g.HandleSend(w.now, &effects.Send{Corr: corr, Conn: c.id, Body: m.Append(nil)}, &w.out)
		}
	case 3, 4:
		c, ok := pick(w, "conn", w.conns)
		if !ok {
			return
		}
		request := fmt.Sprintf("r%d", rapid.IntRange(0, 3).Draw(w.t, "request"))
		a := &asked{operation: uint64(len(w.asks) + 1), request: request}
		again := false
		if old, have := pick(w, "again", w.asks); have && !old.ended && rapid.Bool().Draw(w.t, "again?") {
			a, again = old, true
		}
		if !again {
			a.at, a.who = c.place, w.life(c.place, w.agentName(c.place))
			w.asks = append(w.asks, a)
		}
		m := protocol.PushRegistration{
			RequestID: []byte(a.request), EngineID: []byte("ours"), Host: []byte("here"), TPSize: 1,
			Blocks: [][]uint64{{1, 2}}, Remote: protocol.PushProducer{PPSize: 1},
			HasExt: true, Ext: protocol.PushRegistrationExt{
				Version: 1, To: protocol.UUID(a.who), Operation: a.operation, First: []uint64{0},
				Ends: []uint64{2}, Grant: a.operation,
			},
		}
		w.g.HandleSend(w.now, &effects.Send{Corr: w.ask(), Conn: c.id, Body: m.Append(nil)}, &w.out)
	case 5:
		if a, ok := pick(w, "withdrawn", w.asks); ok {
			m := protocol.PushWithdrawal{Version: 1, Operation: a.operation}
			a.withdrawn = true
			w.send(m.Append(nil))
		}
	case 6:
		if len(w.conns) > 0 {
			i := rapid.IntRange(0, len(w.conns)-1).Draw(w.t, "closed")
			w.g.HandleClose(w.conns[i].id, &w.out)
			w.conns = slices.Delete(w.conns, i, i+1)
		}
	case 7:
		p, _ := pick(w, "expelled", places)
		w.disturb()
		w.expel++
		who := w.life(p, fmt.Sprintf("engine-%d life %d rank %d", engineOf(p.Host),
			rapid.IntRange(0, w.lives[engineOf(p.Host)]).Draw(w.t, "life"), p.Rank))
		var needs []Agent
		for _, a := range w.asks { // Whatever that life was told of and may write to; what it was not told, it never is.
			if a.who == who && a.told > 0 && !w.agents[a.by].gone {
				needs = append(needs, a.by)
			}
			// The gateway does not know what was sent over a connection that was not open.
			known := w.g.findRegistration(protocol.UUID{}, a.operation) != nil
			a.expelled = a.expelled || a.who == who && a.told == 0 && known
		}
		w.expels[w.expel] = needs
		w.g.Expel(w.now, who, w.expel, &w.out)
	}
}

// engines do something that engines and the driver do.
func (w *world) engines() {
	switch rapid.IntRange(0, 10).Draw(w.t, "the engines") {
	case 0, 1:
		if len(w.questions) == 0 {
			return
		}
		q := w.questions[0]
		w.questions = w.questions[1:]
		body, code := []byte(nil), effects.OK
		switch rapid.IntRange(0, 9).Draw(w.t, "answer") {
		case 0:
			code = effects.Unreachable
		case 1:
			body = []byte("what")
		default:
			m, limits := protocol.NixlMetadataRequest{}, protocol.DefaultLimits()
			if err := m.Decode(q.Body, &limits); err != nil {
				w.t.Fatal(err)
			}
			id, name := q.Addr.Host, w.agentName(PlainRank{Host: q.Addr.Host, Rank: m.TPRank})
			body = metadataOf(id, name)
			for _, p := range places {
				if p.Host == q.Addr.Host && p.Port == q.Addr.Port && p.Rank == m.TPRank {
					w.described[p] = name
				}
			}
		}
		w.g.OnQueryReply(w.now, q.QueryID, body, code, &w.out)
	case 2, 3:
		for a := Agent(1); a <= w.g.lastAgent; a++ {
			if x := w.agents[a]; !x.made && !x.gone {
				if x.made = rapid.IntRange(0, 9).Draw(w.t, "made") > 0; x.made {
					w.g.OnAgentMade(w.now, a, 7, effects.OK, &w.out)
				} else {
					x.gone = true
					w.disturb()
					w.g.OnAgentMade(w.now, a, 0, effects.Faulted, &w.out)
				}
				return
			}
		}
	case 4:
		if len(w.loads) == 0 {
			return
		}
		l := w.loads[0]
		w.loads = w.loads[1:]
		if rapid.IntRange(0, 9).Draw(w.t, "loaded") == 0 {
			w.disturb()
			w.g.OnAgentLoaded(w.now, l.LoadID, "", effects.Faulted, &w.out)
			return
		}
		w.g.OnAgentLoaded(w.now, l.LoadID, string(l.Metadata), effects.OK, &w.out)
	case 5:
		s, ok := pick(w, "completes", w.says)
		if !ok {
			return
		}
		ranks := uint32(1)
		if s.To[7] == '1' {
			ranks = 2
		}
		m := protocol.PushCompletion{RequestID: s.Body, Ranks: ranks}
		from := s.To
		if rapid.IntRange(0, 4).Draw(w.t, "a stranger") == 0 {
			from = "somebody"
		}
		if other, ok := pick(w, "to", w.says); ok && rapid.IntRange(0, 3).Draw(w.t, "elsewhere") == 0 {
			s.Agent = other.Agent
		}
		if !w.agents[s.Agent].gone {
			for _, a := range w.asks {
				a.completed = a.completed || a.told > 0 && a.by == s.Agent && a.to == from && a.request == string(s.Body)
			}
			w.g.OnNotification(w.now, s.Agent, from, m.Append(nil), &w.out)
		}
	case 6:
		w.lives[rapid.IntRange(0, 2).Draw(w.t, "reborn")]++
	case 7:
		s, ok := pick(w, "unsaid", w.says)
		if ok && !w.agents[s.Agent].gone && rapid.IntRange(0, 4).Draw(w.t, "unsaid?") == 0 {
			for _, a := range w.asks {
				if a.by == s.Agent && a.told > 0 {
					w.disturb()
					w.g.OnNotificationFailed(w.now, s.Agent, a.operation, &w.out)
					return
				}
			}
		}
	case 8, 9, 10:
		w.registers()
	}
}

// disturb notes that something went wrong of which registrations may end.
func (w *world) disturb() {
	for _, a := range w.asks {
		a.disturbed = true
	}
}

// registers has an engine register with us, or say that it lives.
func (w *world) registers() {
	host := string(rune('a' + rapid.IntRange(0, 2).Draw(w.t, "from")))
	p := PlainRank{Host: host}
	if rapid.IntRange(0, 4).Draw(w.t, "beats") == 0 {
		w.g.OnNotification(w.now, Front, w.agentName(p), []byte("HB:r1,r2"), &w.out)
		return
	}
	m := protocol.PushRegistration{
		RequestID: fmt.Appendf(nil, "r%d", rapid.IntRange(0, 9).Draw(w.t, "request")), EngineID: []byte(host),
		Host: []byte(host), Port: 9, TPSize: 1, Blocks: [][]uint64{{1, 2}}, Remote: protocol.PushProducer{PPSize: 1},
	}
	w.g.OnNotification(w.now, Front, w.agentName(p), m.Append(nil), &w.out)
}

// replies has the rank answer what it was asked.
func (w *world) replies() {
	if len(w.received) == 0 {
		return
	}
	r := w.received[0]
	w.received = w.received[1:]
	limits := protocol.DefaultLimits()
	code := uint32(0)
	if rapid.IntRange(0, 5).Draw(w.t, "refused") == 0 {
		code = uint32(rapid.SampledFrom([]effects.Code{effects.Stale, effects.TooMany, effects.Expired}).Draw(w.t, "code"))
	}
	var body []byte
	reg, list, keep := protocol.PushRegistration{}, protocol.HixlMemInfoRequest{}, protocol.PushKeep{}
	switch {
	case r.Channel == effects.ChannelRegister && reg.Decode(r.Body, &limits) == nil:
		if !reg.Ext.Tail || !reg.HasExt {
			w.t.Fatal("a plain registration has positions")
		}
		id := string(reg.Ext.Incarnation[:]) + string(reg.RequestID)
		again := id == w.last && len(w.g.recentlyEnded) < w.g.cfg.PendingMax // Beyond, older ones are forgotten.
		for _, other := range w.received {
			same := reg.Decode(other.Body, &limits) == nil && string(reg.Ext.Incarnation[:])+string(reg.RequestID) == id
			again = again || same
		}
		if reg.Decode(r.Body, &limits) != nil || again {
			w.t.Fatalf("%s is put to the rank again", reg.RequestID)
		}
		if w.last = id; code == uint32(effects.Stale) {
			w.last = ""
		}
		if code == 0 { // Whose agent it is, its life says.
			for _, c := range w.g.consumers {
				for _, p := range c.peers {
					if p.incarnation == effects.Incarnation(reg.Ext.Incarnation) {
						w.oks[p.agentName+" "+string(reg.RequestID)+":1"]++
					}
				}
			}
		}
		end := protocol.PushEnd{Version: 1, Operation: reg.Ext.Operation, Code: code}
		body = end.Append(nil)
	case r.Channel == effects.ChannelRegister && keep.Decode(r.Body, &limits) == nil:
		end := protocol.PushEnd{Version: 1, Code: code}
		body = end.Append(nil)
	case list.Decode(r.Body, &limits) == nil:
		m := protocol.HixlMemInfoResponse{HasExt: true, Stamps: protocol.Stamps{ClockNS: 5}}
		body = m.Append(nil)
	default:
		m := protocol.HixlInitResponse{HasExt: true, Ext: protocol.HelloExt{ProtoMin: 1, ProtoMax: 1, Code: code,
			Incarnation: protocol.UUID{1}, Stamps: protocol.Stamps{ClockNS: 5}}}
		body = m.Append(nil)
	}
	w.g.HandleReply(w.now, &effects.Reply{Request: r.Request, Body: body}, &w.out)
}

// destroys has the driver destroy an agent that is to go.
func (w *world) destroys(doomed *[]Agent) {
	if len(*doomed) == 0 {
		return
	}
	a := (*doomed)[0]
	*doomed = (*doomed)[1:]
	if !w.agents[a].made { // It was told to go before it was there.
		*doomed = append(*doomed, a)
		return
	}
	w.agents[a].gone = true
	w.g.OnAgentDestroyed(w.now, a, effects.OK, &w.out)
}

// TestPromises has anything happen in any order, and holds what the gateway says against what it rests on.
func TestPromises(t *testing.T) {
	for range rounds {
		rapid.Check(t, promises)
	}
}

// rounds is how many times what rapid checks; with fewer, defects that are put back are missed now and then.
const rounds = 60

func promises(t *rapid.T) {
	w := newWorld(t)
	var doomed []Agent
	step := func() {
		doomed = append(doomed, w.out.DestroyAgents...)
		w.took()
		w.now++
	}
	for range rapid.IntRange(1, 150).Draw(t, "steps") {
		switch rapid.IntRange(0, 5).Draw(t, "who") {
		case 0, 1:
			w.rank()
		case 2, 3:
			w.engines()
		case 4:
			w.replies()
		case 5:
			w.destroys(&doomed)
		}
		step()
	}
	// The rank goes: each question has its answer.
	for _, c := range w.conns {
		w.g.HandleClose(c.id, &w.out)
		step()
	}
	if len(w.open) > 0 {
		t.Fatalf("%d questions have no answer: %v", len(w.open), w.open)
	}
}
