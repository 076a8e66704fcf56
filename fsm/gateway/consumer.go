package gateway

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// A consumer is a life of an engine that registers with us, by what it says in registrations.
type consumer struct {
	engine   string
	at       effects.Addr // of its side channel
	ranks    uint32
	near     geometry.Neighbours
	peers    []*peer // its ranks that have a part of our heads, in order
	writer   Agent   // 0: there is none yet
	made     bool
	phase    phase
	asking   int    // the rank whose metadata is asked for
	question uint64 // to its side channel, or to the writer
	tries    int
	waits    []*incoming // registrations, until it is known
	leaving  bool        // another life is there; it goes when its registrations have ended
	ending   bool        // its writer is to be destroyed
}

type phase uint8

const (
	asking phase = iota // its side channel, rank after rank
	making              // the writer
	naming              // its ranks' metadata
	known
)

// A peer is one of its ranks, as the rank here knows it: by a hello of its own.
type peer struct {
	of     *consumer
	rank   uint32
	agent  []byte
	joined geometry.Joined
	key    uint64 // by which the data plane finds it
	name   string // of its agent
	who    effects.Incarnation
	conn   effects.Conn

	met   bool // the rank knows it
	asks  bool // its hello is under way
	us    protocol.UUID
	sum   uint64 // of both caches, as they were said
	echo  int64
	waits []*incoming
}

// An incoming is a registration of a plain engine's.
type incoming struct {
	from    string // the agent
	request []byte
	reg     protocol.PushRegistration
	tries   int
}

// id tells registrations apart, as an engine does.
func (x *incoming) id() string { return x.from + " " + string(x.request) }

// A question is one of ours to the rank.
type question struct {
	request effects.Request
	of      *peer
	kind    kind
	x       *incoming
}

type kind uint8

const (
	hello kind = iota
	list
	registers
	keeps
)

// noted takes a note that came to the front.
func (g *outward) noted(now effects.Time, from string, body []byte, out *Out) {
	switch protocol.NixlNoteOf(body) {
	case protocol.NixlRegistration:
		g.registered(now, from, body, out)
	case protocol.NixlHeartbeat:
		if err := g.beat.Decode(body, &g.cfg.Wire); err != nil {
			out.note("a heartbeat makes no sense", effects.Why{Name: from, Field: "HB", Theirs: err.Error()})
			return
		}
		g.beats = g.beats[:0]
		for _, id := range g.beat.RequestIDs {
			g.beats = append(g.beats, append([]byte(nil), id...))
		}
		g.beaten(now, out)
	case protocol.NixlCompletion:
		out.note("a note that is for nobody here", effects.Why{Name: from, Field: "note", Theirs: effects.Words(body)})
	}
}

// registered takes a registration. What it repeats is none.
func (g *outward) registered(now effects.Time, from string, body []byte, out *Out) {
	x := &incoming{from: from}
	body = append([]byte(nil), body...)
	if err := x.reg.Decode(body, &g.cfg.Wire); err != nil {
		out.note("a registration makes no sense", effects.Why{Name: from, Field: "PUSH_REG", Theirs: err.Error()})
		return
	}
	x.request = x.reg.RequestID
	if why, ok := g.takes(x); !ok {
		why.Name = from
		out.note("a registration of a plain engine is not taken, and waits there until its router gives it up", why)
		return
	}
	at := effects.Addr{Host: string(x.reg.Host), Port: uint16(x.reg.Port)}
	for _, c := range g.consumers {
		if c.leaving || c.engine != string(x.reg.EngineID) || c.at != at || c.ranks != x.reg.TPSize {
			continue
		}
		if c.phase != known {
			c.waits = append(c.waits, x)
			return
		}
		if p := c.named(from); p != nil {
			g.introduces(now, p, x, out)
			return
		}
		g.leave(c, out) // Another life of it.
		break           // No other one matches, and the list may have changed.
	}
	g.meets(x, at, out)
}

// takes says whether a registration can be one.
func (g *outward) takes(x *incoming) (effects.Why, bool) {
	if n := len(x.reg.Remote.EngineID); n > 0 && string(x.reg.Remote.EngineID) != g.cfg.Own.EngineID {
		return effects.Why{
			Field: "remote_engine_id", Ours: g.cfg.Own.EngineID, Theirs: effects.Words(x.reg.Remote.EngineID),
			Remedy: "route the request to the engine that it names",
		}, false
	}
	waiting := 0
	for _, other := range g.incomings() {
		if waiting++; other.id() == x.id() {
			return effects.Why{Field: "request_id", Theirs: effects.Words(x.request), Ours: "registered already",
				Remedy: "none is needed: a repetition is none"}, false
		}
	}
	for _, id := range g.lately {
		if id == x.id() {
			return effects.Why{Field: "request_id", Theirs: effects.Words(x.request), Ours: "registered, and over",
				Remedy: "give each request a name of its own"}, false
		}
	}
	if waiting >= g.cfg.WaitingMax {
		return effects.Why{
			Field: "Waiting", Ours: decimal(uint64(g.cfg.WaitingMax)) + ", and as many wait",
			Remedy: "raise Waiting of the gateway",
		}, false
	}
	return effects.Why{}, true
}

// incomings are all registrations that have not ended.
func (g *outward) incomings() (all []*incoming) {
	for _, c := range g.consumers {
		all = append(all, c.waits...)
		for _, p := range c.peers {
			all = append(all, p.waits...)
		}
	}
	for i := range g.questions {
		if x := g.questions[i].x; x != nil {
			all = append(all, x)
		}
	}
	return all
}

func (c *consumer) named(agent string) *peer {
	for _, p := range c.peers {
		if p.name == agent {
			return p
		}
	}
	return nil
}

// meets begins with an engine that is not known.
func (g *outward) meets(x *incoming, at effects.Addr, out *Out) {
	near, err := geometry.Consumers(&g.cfg.Own.Geometry, x.reg.TPSize)
	if err == nil && near.Count > uint32(g.cfg.RanksMax) {
		err = &geometry.Error{
			Field: "decode_tp_size", Value: decimal(uint64(x.reg.TPSize)), Remedy: "give the engine fewer ranks",
		}
	}
	if err != nil {
		why := unfit(err)
		why.Name = x.from
		out.note("an engine cannot be written to", why)
		return
	}
	if why, ok := g.mayMeet(x); !ok {
		out.note("an engine cannot be written to", why)
		return
	}
	c := &consumer{engine: string(x.reg.EngineID), at: at, ranks: x.reg.TPSize, near: near, waits: []*incoming{x}}
	for i := range near.Count {
		c.peers = append(c.peers, &peer{of: c, rank: near.First + i})
	}
	g.consumers = append(g.consumers, c)
	g.asksSide(c, out)
}

// mayMeet says whether an engine that is not known may be asked who it is. Those have places of their own, each sender
// one: they cost nothing to invent, and take nobody else's.
func (g *outward) mayMeet(x *incoming) (effects.Why, bool) {
	unknown := 0
	for _, c := range g.consumers {
		if c.phase == known {
			continue
		}
		unknown++
		for _, other := range c.waits {
			if other.from == x.from {
				return effects.Why{Name: x.from, Field: "decode_engine_id", Theirs: "another one while one is asked",
					Remedy: "give an engine's ranks one engine_id"}, false
			}
		}
	}
	if unknown >= g.cfg.EnginesMax {
		return effects.Why{
			Name: x.from, Field: "Engines", Ours: decimal(uint64(g.cfg.EnginesMax)) + ", and as many are asked who they are",
			Remedy: "raise Engines of the gateway",
		}, false
	}
	return effects.Why{}, true
}

// makeRoom says whether there is a place for an engine that is known now. An idle one goes for it.
func (g *outward) makeRoom(out *Out) bool {
	there := 0
	var idle *consumer
	for _, c := range g.consumers {
		if c.phase != known || c.leaving {
			continue
		}
		if there++; idle == nil && g.busy(c) == 0 {
			idle = c
		}
	}
	if there < g.cfg.EnginesMax {
		return true
	}
	if idle != nil {
		g.leave(idle, out)
	}
	return idle != nil
}

func (g *outward) asksSide(c *consumer, out *Out) {
	c.phase, c.question = asking, g.id()
	q := protocol.NixlQuestion{TPRank: c.peers[c.asking].rank}
	out.Asks = append(out.Asks, Ask{Question: c.question, Addr: c.at, Body: q.Append(nil)})
}

func (g *outward) consumerOf(question uint64) *consumer {
	for _, c := range g.consumers {
		if c.question == question && question != 0 {
			return c
		}
	}
	return nil
}

// answered takes what a side channel answered.
func (g *outward) answered(question uint64, body []byte, code effects.Code, out *Out) {
	c := g.consumerOf(question)
	if c == nil {
		return
	}
	c.question = 0
	if code != effects.OK {
		if c.tries++; c.tries < g.cfg.TriesMax {
			g.asksSide(c, out)
			return
		}
		g.giveUp(c, effects.Why{
			Field: "decode_host, decode_port", Theirs: code.String(), Remedy: "see that its side channel can be reached",
		}, out)
		return
	}
	own, p := &g.cfg.Own, c.peers[c.asking]
	agent, regions, code, why := g.read(body, &geometry.Worker{
		Ranks: c.ranks, Rank: p.rank, Stages: 1, Heads: own.Heads, CellHeads: own.CellHeads,
	})
	if code == effects.OK && regions.EngineID != c.engine {
		code, why = effects.Mismatch, effects.Why{
			Field: "engine_id", Ours: c.engine + ", as it registered", Theirs: regions.EngineID,
			Remedy: "give the port of that engine as VLLM_NIXL_SIDE_CHANNEL_PORT",
		}
	}
	if code == effects.OK {
		var err error
		if p.joined, err = geometry.Join(own, &regions, nil); err != nil {
			code, why = effects.Mismatch, unfit(err)
		}
	}
	if code != effects.OK {
		g.giveUp(c, why, out)
		return
	}
	p.agent = agent
	if c.asking++; c.asking < len(c.peers) {
		g.asksSide(c, out)
		return
	}
	c.phase, c.writer = making, g.agent()
	out.Writers = append(out.Writers, c.writer)
}

// giveUp forgets an engine that cannot be reached, and what it registered: there is no word to tell it.
func (g *outward) giveUp(c *consumer, why effects.Why, out *Out) {
	why.Addr, why.Name = c.at, c.engine
	for _, x := range c.waits {
		g.remember(x)
	}
	c.waits = nil
	out.note("an engine cannot be written to; what it registered waits there until its router gives it up", why)
	g.leave(c, out)
}

func (g *outward) remember(x *incoming) {
	if g.lately = append(g.lately, x.id()); len(g.lately) > g.cfg.WaitingMax {
		g.lately = append(g.lately[:0], g.lately[1:]...)
	}
}

// made takes a writer that is there, or cannot be.
func (g *outward) made(a Agent, code effects.Code, out *Out) {
	for _, c := range g.consumers {
		if c.writer != a {
			continue
		}
		if code != effects.OK {
			c.writer = 0
			g.giveUp(c, effects.Why{Field: "agent", Theirs: code.String(), Remedy: "see the log of libnixl"}, out)
			return
		}
		c.made, c.phase, c.asking = true, naming, 0
		g.loads(c, out)
		return
	}
}

func (g *outward) loads(c *consumer, out *Out) {
	c.question = g.id()
	out.Loads = append(out.Loads, Load{Agent: c.writer, Question: c.question, Metadata: c.peers[c.asking].agent})
}

// named takes the name of a rank's agent, or why it has none.
func (g *outward) named(now effects.Time, question uint64, name string, code effects.Code, out *Out) {
	c := g.consumerOf(question)
	if c == nil {
		return
	}
	c.question = 0
	if code != effects.OK || name == "" {
		g.giveUp(c, effects.Why{
			Field: "agent_metadata", Theirs: "cannot be loaded", Remedy: "run one version of NIXL at both ends",
		}, out)
		return
	}
	p := c.peers[c.asking]
	p.name, p.key, p.agent = name, g.id(), nil
	p.who = life(name, string(g.cfg.Life[:]), decimal(p.key))
	if c.asking++; c.asking < len(c.peers) {
		g.loads(c, out)
		return
	}
	if !g.makeRoom(out) {
		g.giveUp(c, effects.Why{
			Field: "Engines", Ours: decimal(uint64(g.cfg.EnginesMax)) + ", all of them busy",
			Remedy: "raise Engines of the gateway",
		}, out)
		return
	}
	c.phase = known
	waits := c.waits
	c.waits = nil
	for _, x := range waits {
		if p := c.named(x.from); p != nil {
			g.introduces(now, p, x, out)
			continue
		}
		g.remember(x)
		out.note("a registration is of no rank that its engine has", effects.Why{
			Addr: c.at, Name: x.from, Field: "agent", Ours: "one of those of " + c.engine, Theirs: x.from,
			Remedy: "see that VLLM_NIXL_SIDE_CHANNEL_PORT of that engine is its own",
		})
	}
}

// busy counts what of an engine has not ended.
func (g *outward) busy(c *consumer) int {
	n := len(c.waits)
	for _, p := range c.peers {
		n += len(p.waits)
	}
	for i := range g.questions {
		if g.questions[i].of.of == c {
			n++
		}
	}
	return n
}

// leave forgets a life of an engine as soon as nothing of it is under way.
func (g *outward) leave(c *consumer, out *Out) {
	c.leaving = true
	if g.busy(c) > 0 {
		return
	}
	if c.writer != 0 { // Its place is free when that is gone.
		if !c.ending {
			c.ending = true
			out.Destroys = append(out.Destroys, c.writer)
		}
		return
	}
	g.forget(c)
}

func (g *outward) forget(c *consumer) {
	for i, x := range g.consumers {
		if x == c {
			g.consumers = append(g.consumers[:i], g.consumers[i+1:]...)
			return
		}
	}
}

// gone takes a writer's end: its engine cannot be written to any more. What is under way has its end by the data plane.
func (g *outward) gone(agent Agent, out *Out) {
	for _, c := range g.consumers {
		if c.writer == agent {
			c.writer, c.made = 0, false
			if c.phase != known {
				g.giveUp(c, effects.Why{Field: "agent", Theirs: "gone", Remedy: "see the log of libnixl"}, out)
				return
			}
			g.leave(c, out)
			return
		}
	}
}

// Failed says that a writer failed: its engine is met anew when it registers again.
func (g *outward) Failed(agent Agent, out *Out) {
	for _, c := range g.consumers {
		if c.writer == agent && !c.leaving {
			g.leave(c, out)
			return
		}
	}
}
