package gateway

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// A producer is an engine that writes to us, by its side channel.
type producer struct {
	host  string
	port  uint16
	ranks []*theirRank
	ties  []*tie // all agents of ours that it was told of, and that may live
	tie   *tie   // that which new registrations go by; nil: the next one needs another
}

// A theirRank is one of its ranks.
type theirRank struct {
	of       *producer
	place    Place
	key      uint64
	conns    int
	asker    asker // its hello that has no answer yet
	echo     int64
	question uint64 // to its side channel, that has no answer yet
	agent    []byte // metadata of its agent; nil: not known
	engine   string
	joined   geometry.Joined
	name     string // of its agent; empty: not known
	who      effects.Incarnation
}

// A tie is an agent of ours that one engine may write to.
type tie struct {
	agent      Agent
	port       uint16 // of its side channel; 0: it is not made yet
	loaded     []*theirRank
	lives      []effects.Incarnation // of these
	loading    []loading
	retired    bool // no registration is to come by it any more
	destroying bool
	proofs     []*expulsion
}

type loading struct {
	question uint64
	rank     *theirRank
}

// An expulsion waits for all ties of an engine.
type expulsion struct {
	number uint64
	left   int
}

// producer finds an engine, or makes room for it; nil: there is none.
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

// makeRoom forgets an engine that nobody here is connected with and that has no agent of ours. Agents of those that
// are connected with no more go, so that there is room soon.
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

// rank finds a rank of the engine, or adds it if there are fewer than most.
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

// greeted takes the rank's hello: whoever is there is asked anew, as it may be another one since.
func (g *inward) greeted(to *theirRank, who asker, echo int64, out *Out) {
	if to.asker.corr != 0 {
		unanswered(to.asker.corr, effects.Closed, out)
	}
	to.asker, to.echo = who, echo
	if to.question != 0 {
		return // Under way already.
	}
	to.question = g.id()
	q := protocol.NixlQuestion{PPRank: to.place.Stage, TPRank: to.place.Rank}
	out.Asks = append(out.Asks, Ask{
		Question: to.question, Addr: effects.Addr{Host: to.place.Host, Port: to.place.Port}, Body: q.Append(nil),
	})
}

// answered takes what a side channel answered; false: it was not asked from here.
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

// described takes what a rank says of itself.
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
		g.retire(r.of.tie, out) // It knows the former one by that place.
	}
	r.agent, r.engine, r.joined = agent, regions.EngineID, joined
	g.advance(now, r.of, out)
}

// unmet ends a hello. The rank tries again as it does with any peer.
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

// advance does for an engine what can be done now.
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

// current is the tie for what is registered from now on; nil: there are too many.
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

// load has an agent know a rank's, and says whether it does.
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

// tieOf finds an agent's tie, and whose it is.
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

// made takes an agent that is there now, or cannot be; false: it is none that is written to.
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

// named takes the name of a rank's agent, or why it has none; false: it was not loaded from here.
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
	for _, a := range slices.Clone(g.asks) { // What was granted to another life is not told to this one.
		if a.to == r && a.who != r.who && !a.told && !a.over {
			g.conclude(now, a, effects.Stale, &effects.Why{
				Field: "life", Theirs: "another one since", Remedy: "none is needed: it is asked anew",
			}, out)
		}
	}
	t.loaded, t.lives = append(t.loaded, r), append(t.lives, r.who)
	g.advance(now, p, out)
}
