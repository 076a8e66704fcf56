package gateway

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// A consumer is one incarnation of an engine that registers with this node, as identified by its registrations.
type consumer struct {
	engine   string
	at       effects.Addr // address of its side channel
	ranks    uint32
	near     geometry.Neighbours
	peers    []*peer // its ranks that share heads with this rank, in order
	writer   Agent   // 0: none yet
	made     bool
	phase    phase
	asking   int    // index of the rank that is being queried or loaded
	question uint64 // outstanding query to its side channel, or load at the writer; 0: none
	tries    int
	waits    []*incoming // registrations that wait until the engine is known
	leaving  bool        // another incarnation has replaced it; it is removed when its registrations have ended
	ending   bool        // its writer is being destroyed
}

// A phase is how far this node is with a new consumer.
type phase uint8

const (
	asking phase = iota // querying its side channel, rank by rank
	making              // making the writer
	naming              // loading the metadata of its ranks
	known               // ready
)

// A peer is one rank of a consumer, as the rank here knows it: by a hello in the peer's name.
type peer struct {
	of     *consumer
	rank   uint32
	agent  []byte
	joined geometry.Joined
	key    uint64 // by which the data plane finds the peer
	name   string // name of its agent
	who    effects.Incarnation
	conn   effects.Conn

	met   bool // the rank knows the peer
	asks  bool // the peer's hello is in flight
	us    protocol.UUID
	sum   uint64 // checksum of both ends' cache geometry, as stated in the hello
	echo  int64
	waits []*incoming
}

// An incoming is a registration of a plain engine.
type incoming struct {
	from    string // the sending agent
	request []byte
	reg     protocol.PushRegistration
	tries   int
}

// id identifies a registration as an engine does: by the agent and the request.
func (x *incoming) id() string { return x.from + " " + string(x.request) }

// A question is a request of the gateway to the rank.
type question struct {
	request effects.Request
	of      *peer
	kind    kind
	x       *incoming
}

// A kind is the kind of a request of the gateway to the rank.
type kind uint8

const (
	hello     kind = iota // first message of a hello
	list                  // last message of a hello: the list of buffers
	registers             // a registration
	keeps                 // a heartbeat
)

// noted handles a note that arrived at the front.
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

// registered handles a registration. A repetition is ignored.
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
		g.leave(c, out) // The agent is unknown, so the engine has another incarnation.
		break           // No other consumer matches, and the list may have changed.
	}
	g.meets(x, at, out)
}

// takes reports whether a registration is accepted, or why it is not.
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

// incomings returns all registrations that have not ended.
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

// named returns the consumer's peer with the given agent name, or nil.
func (c *consumer) named(agent string) *peer {
	for _, p := range c.peers {
		if p.name == agent {
			return p
		}
	}
	return nil
}

// meets begins to query an engine that is not known yet.
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

// mayMeet reports whether an unknown engine may be queried, or why it may not. Unknown engines have a limit of their
// own, and each sender may have one, because engine names cost nothing to invent and must not take the places of known
// engines.
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

// makeRoom reports whether there is a place for an engine that has become known. If the table is full, an idle engine
// is removed.
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

// asksSide queries the side channel of a consumer for the metadata of its next rank.
func (g *outward) asksSide(c *consumer, out *Out) {
	c.phase, c.question = asking, g.id()
	q := protocol.NixlQuestion{TPRank: c.peers[c.asking].rank}
	out.Asks = append(out.Asks, Ask{Question: c.question, Addr: c.at, Body: q.Append(nil)})
}

// consumerOf returns the consumer for which a query or load is outstanding, or nil.
func (g *outward) consumerOf(question uint64) *consumer {
	for _, c := range g.consumers {
		if c.question == question && question != 0 {
			return c
		}
	}
	return nil
}

// answered handles the answer of a side channel.
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

// giveUp removes an engine that cannot be reached, and the engine's registrations: there is no message that would
// report this to it.
func (g *outward) giveUp(c *consumer, why effects.Why, out *Out) {
	why.Addr, why.Name = c.at, c.engine
	for _, x := range c.waits {
		g.remember(x)
	}
	c.waits = nil
	out.note("an engine cannot be written to; what it registered waits there until its router gives it up", why)
	g.leave(c, out)
}

// remember records that a registration has ended. The oldest records are dropped.
func (g *outward) remember(x *incoming) {
	if g.lately = append(g.lately, x.id()); len(g.lately) > g.cfg.WaitingMax {
		g.lately = append(g.lately[:0], g.lately[1:]...)
	}
}

// made handles a writer that exists now, or cannot be made.
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

// loads has the writer load the metadata of the consumer's next rank.
func (g *outward) loads(c *consumer, out *Out) {
	c.question = g.id()
	out.Loads = append(out.Loads, Load{Agent: c.writer, Question: c.question, Metadata: c.peers[c.asking].agent})
}

// named handles the name of a rank's agent, or the failure to load the agent.
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

// busy returns the number of registrations and requests of an engine that have not ended.
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

// leave removes an incarnation of an engine as soon as nothing of it is in flight.
func (g *outward) leave(c *consumer, out *Out) {
	c.leaving = true
	if g.busy(c) > 0 {
		return
	}
	if c.writer != 0 { // The place becomes free when the writer is gone.
		if !c.ending {
			c.ending = true
			out.Destroys = append(out.Destroys, c.writer)
		}
		return
	}
	g.forget(c)
}

// forget removes a consumer.
func (g *outward) forget(c *consumer) {
	for i, x := range g.consumers {
		if x == c {
			g.consumers = append(g.consumers[:i], g.consumers[i+1:]...)
			return
		}
	}
}

// gone handles the end of a writer: its engine cannot be written to any more. Writes in flight end by the data plane.
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

// Failed reports that a writer failed. Its engine is queried anew when it registers again.
func (g *outward) Failed(agent Agent, out *Out) {
	for _, c := range g.consumers {
		if c.writer == agent && !c.leaving {
			g.leave(c, out)
			return
		}
	}
}
