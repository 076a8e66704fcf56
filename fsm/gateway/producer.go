package gateway

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// A producer is an engine that writes to this node, identified by its side channel.
type producer struct {
	host  string
	port  uint16
	ranks []*theirRank
	ties  []*tie // all agents of this node that the engine was told of and that may still exist
	tie   *tie   // the agent for new registrations; nil: the next registration needs a new agent
}

// A theirRank is one rank of a producer.
type theirRank struct {
	of       *producer
	place    Place
	key      uint64
	conns    int
	asker    asker // its hello that has no reply yet
	echo     int64
	question uint64 // its query to the side channel that has no answer yet; 0: none
	agent    []byte // metadata of its agent; nil: not known
	engine   string
	joined   geometry.Joined
	name     string // name of its agent; empty: not known
	who      effects.Incarnation
}

// A tie is an agent of this node to which one engine may write.
type tie struct {
	agent      Agent
	port       uint16 // of its side channel; 0: the agent is not made yet
	loaded     []*theirRank
	lives      []effects.Incarnation // incarnations of the loaded ranks
	loading    []loading
	retired    bool // no new registration may use the agent
	destroying bool
	proofs     []*expulsion
}

// A loading is a Load that is not completed.
type loading struct {
	question uint64
	rank     *theirRank
}

// An expulsion waits for the end of all ties of an engine.
type expulsion struct {
	number uint64
	left   int
}

// producer returns the engine at a place, and adds a new engine if necessary. The result is nil if there is no room.
func (g *inward) producer(at Place, out *Out) *producer {
	for _, p := range g.producers {
		if p.host == at.Host && p.port == at.Port {
			return p
		}
	}
	if len(g.producers) >= g.cfg.EnginesMax && !g.makeRoom(out) {
		return nil
	}
	p := &producer{host: at.Host, port: at.Port}
	g.producers = append(g.producers, p)
	return p
}

// makeRoom removes an engine to which no rank here is connected and that has no agent of this node. makeRoom also
// retires the agents of other engines without connections, so that there is room soon. The result says whether an
// engine was removed.
func (g *inward) makeRoom(out *Out) bool {
	for i, p := range g.producers {
		idle := true
		for _, r := range p.ranks {
			idle = idle && r.conns == 0 && r.question == 0
		}
		if idle && p.tie != nil {
			g.retire(p.tie, out)
		}
		if idle && len(p.ties) == 0 {
			g.producers = append(g.producers[:i], g.producers[i+1:]...)
			return true
		}
	}
	return false
}

// rank returns the rank of the engine at a place, and adds a new rank if necessary. The result is nil if the engine has
// most ranks already.
func (p *producer) rank(at Place, most int) *theirRank {
	for _, r := range p.ranks {
		if r.place == at {
			return r
		}
	}
	if len(p.ranks) >= most {
		return nil
	}
	r := &theirRank{of: p, place: at}
	p.ranks = append(p.ranks, r)
	return r
}

// greeted handles the rank's hello. The engine is queried anew each time, because another engine may have taken the
// address.
func (g *inward) greeted(to *theirRank, who asker, echo int64, out *Out) {
	if to.asker.corr != 0 {
		unanswered(to.asker.corr, effects.Closed, out)
	}
	to.asker, to.echo = who, echo
	if to.question != 0 {
		return // The query is in flight already.
	}
	to.question = g.id()
	q := protocol.NixlQuestion{PPRank: to.place.Stage, TPRank: to.place.Rank}
	out.Asks = append(out.Asks, Ask{
		Question: to.question, Addr: effects.Addr{Host: to.place.Host, Port: to.place.Port}, Body: q.Append(nil),
	})
}

// answered handles the answer of a side channel, and reports false if the query was not sent by this direction.
func (g *inward) answered(now effects.Time, question uint64, body []byte, code effects.Code, out *Out) bool {
	for _, p := range g.producers {
		for _, r := range p.ranks {
			if r.question == question {
				r.question = 0
				g.described(now, r, body, code, out)
				return true
			}
		}
	}
	return false
}

// described handles the metadata of a rank.
func (g *inward) described(now effects.Time, r *theirRank, body []byte, code effects.Code, out *Out) {
	if code != effects.OK {
		g.unmet(r, code, effects.Why{}, out)
		return
	}
	own := &g.cfg.Own
	agent, regions, code, why := g.read(body, &geometry.Worker{
		Ranks: r.place.Ranks, Rank: r.place.Rank, Stages: r.place.Stages, Stage: r.place.Stage, Heads: own.Heads,
		CellHeads: own.CellHeads,
	})
	if code != effects.OK {
		g.unmet(r, code, why, out)
		return
	}
	joined, err := geometry.Join(&regions, own, nil)
	if err != nil {
		g.unmet(r, effects.Mismatch, unfit(err), out)
		return
	}
	if string(agent) != string(r.agent) && r.agent != nil && r.of.tie != nil {
		g.retire(r.of.tie, out) // The tie's agent has loaded the former agent for that place.
	}
	r.agent, r.engine, r.joined = agent, regions.EngineID, joined
	g.advance(now, r.of, out)
}

// unmet ends a hello without success. The rank tries again, as it does with any peer.
func (g *inward) unmet(r *theirRank, code effects.Code, why effects.Why, out *Out) {
	why.Addr = effects.Addr{Host: r.place.Host, Port: r.place.Port}
	out.note("a plain engine cannot be registered with", why)
	if r.asker.corr == 0 {
		return
	}
	if why.Field == "" {
		unanswered(r.asker.corr, code, out)
		r.asker = asker{}
		return
	}
	m := protocol.HixlInitResponse{EngineID: []byte(r.place.Host), HasExt: true, Ext: protocol.HelloExt{
		ProtoMin: link.VersionMin, ProtoMax: link.VersionMax, Code: uint32(code), Reason: why.Reason(),
	}}
	r.asker.answer(m.Append(nil), out)
}

// advance does for an engine what has become possible: hellos are answered, and registrations are sent.
func (g *inward) advance(now effects.Time, p *producer, out *Out) {
	for _, r := range p.ranks {
		if r.asker.corr == 0 || r.agent == nil || r.question != 0 {
			continue
		}
		if t := g.current(p, out); t != nil && g.load(t, r, out) {
			g.welcome(now, r, out)
		}
	}
	for _, a := range g.asks {
		if a.to.of == p && !a.told && !a.over && !a.tie.destroying && g.load(a.tie, a.to, out) {
			g.tell(a, out)
		}
	}
}

// current returns the tie for new registrations, and makes a tie if necessary. The result is nil if the engine has too
// many ties.
func (g *inward) current(p *producer, out *Out) *tie {
	if p.tie == nil && len(p.ties) >= g.cfg.TiesMax {
		return nil
	}
	if p.tie == nil {
		p.tie = &tie{agent: g.agent()}
		p.ties = append(p.ties, p.tie)
		out.Makes = append(out.Makes, p.tie.agent)
	}
	return p.tie
}

// load has an agent load the metadata of a rank's agent, and reports whether the agent has loaded it already.
func (g *inward) load(t *tie, r *theirRank, out *Out) bool {
	for _, x := range t.loaded {
		if x == r {
			return true
		}
	}
	if t.port == 0 || t.destroying || r.agent == nil {
		return false
	}
	for _, x := range t.loading {
		if x.rank == r {
			return false
		}
	}
	x := loading{g.id(), r}
	t.loading = append(t.loading, x)
	out.Loads = append(out.Loads, Load{Agent: t.agent, Question: x.question, Metadata: r.agent})
	return false
}

// welcome answers a hello.
func (g *inward) welcome(now effects.Time, r *theirRank, out *Out) {
	if r.key == 0 {
		r.key = g.id()
	}
	m := protocol.HixlInitResponse{EngineID: []byte(r.engine), HasExt: true, Ext: g.says(now, r.who, r.echo,
		&r.joined.Producer.Geometry, r.key)}
	r.asker.answer(m.Append(nil), out)
}

// listed answers the last step of a hello.
func (g *inward) listed(now effects.Time, to *theirRank, who asker, out *Out) {
	if to.name == "" {
		unanswered(who.corr, effects.Closed, out)
		return
	}
	m := protocol.HixlMemInfoResponse{
		Buffers: g.buffer(to.who, &to.joined.Producer.Geometry), HasExt: true,
		Stamps: protocol.Stamps{ClockNS: int64(now), EchoNS: g.mem.Stamps.ClockNS},
	}
	who.answer(m.Append(nil), out)
}

// tieOf returns the tie of an agent and the engine of the tie.
func (g *inward) tieOf(a Agent) (*producer, *tie) {
	for _, p := range g.producers {
		for _, t := range p.ties {
			if t.agent == a {
				return p, t
			}
		}
	}
	return nil, nil
}

// made handles an agent that exists now, or cannot be made. The result is false if the agent is not one that engines
// write to.
func (g *inward) made(now effects.Time, a Agent, port uint16, code effects.Code, out *Out) bool {
	p, t := g.tieOf(a)
	switch {
	case t == nil:
		return false
	case code != effects.OK:
		g.unmade(now, p, t, code, out)
	default:
		t.port = port
		g.advance(now, p, out)
	}
	return true
}

// unmade ends what waits for an agent that cannot be made.
func (g *inward) unmade(now effects.Time, p *producer, t *tie, code effects.Code, out *Out) {
	why := effects.Why{Field: "agent", Theirs: code.String(), Remedy: "see the log of libnixl"}
	for _, r := range p.ranks {
		if r.asker.corr != 0 && r.question == 0 {
			g.unmet(r, code, why, out)
		}
	}
	g.gone(now, p, t, code, &why, out)
}

// named handles the name of a rank's agent, or the failure to load the agent, and reports false if the load was not of
// this direction.
func (g *inward) named(now effects.Time, question uint64, name string, code effects.Code, out *Out) bool {
	for _, p := range g.producers {
		for _, t := range p.ties {
			for i, x := range t.loading {
				if x.question == question {
					t.loading = append(t.loading[:i], t.loading[i+1:]...)
					g.met(now, p, t, x.rank, name, code, out)
					return true
				}
			}
		}
	}
	return false
}

// met handles the result of loading a rank's agent. Registrations that were meant for another incarnation of the rank
// end as Stale.
func (g *inward) met(now effects.Time, p *producer, t *tie, r *theirRank, name string, code effects.Code, out *Out) {
	if code == effects.OK && name == "" {
		code = effects.Faulted
	}
	if code != effects.OK {
		why := effects.Why{
			Field: "agent_metadata", Theirs: "cannot be loaded", Remedy: "run one version of NIXL at both ends",
		}
		g.unmet(r, code, why, out)
		for _, a := range g.asksBy(t) {
			if a.to == r && !a.told {
				g.conclude(now, a, code, &why, out)
			}
		}
		return
	}
	r.name, r.who = name, life(name, r.place.Addr().Host, decimal(uint64(r.place.Port)))
	for _, a := range slices.Clone(g.asks) { // What was granted to another incarnation is not sent to this one.
		if a.to == r && a.who != r.who && !a.told && !a.over {
			g.conclude(now, a, effects.Stale, &effects.Why{
				Field: "life", Theirs: "another one since", Remedy: "none is needed: it is asked anew",
			}, out)
		}
	}
	t.loaded, t.lives = append(t.loaded, r), append(t.lives, r.who)
	g.advance(now, p, out)
}
