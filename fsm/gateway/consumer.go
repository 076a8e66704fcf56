package gateway

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// A consumer is one incarnation of an engine that registers with this node, as identified by its registrations.
type consumer struct {
	engine      string
	sideChannel effects.Addr // address of its side channel
	ranks       uint32
	neighbours  geometry.Neighbours
	peers       []*peer // its ranks that share heads with this rank, in order
	writer      Agent   // 0: none yet
	writerMade  bool
	phase       phase
	rankIndex   int    // index of the rank that is being queried or loaded
	pendingID   uint64 // outstanding query to its side channel, or load at the writer; 0: none
	tries       int
	pending     []*engineRegistration // registrations that wait until the engine is known
	// leaving means that the consumer takes no new registrations: another incarnation has replaced it, it cannot be
	// reached, its place is needed while it is idle, or its writer is gone. It is removed when its registrations have
	// ended and its writer is destroyed.
	leaving          bool
	destroyingWriter bool // its writer is being destroyed
}

// A phase is how far this node is with a new consumer.
type phase uint8

const (
	phaseQuerying     phase = iota // querying its side channel, rank by rank
	phaseMakingWriter              // making the writer
	phaseLoading                   // loading the metadata of its ranks
	phaseKnown                     // ready
)

// A peer is one rank of a consumer, as the rank here knows it: by a hello in the peer's name. heartbeatPeer, in whose
// name the heartbeats of all consumers go to the rank, has no consumer.
type peer struct {
	consumer      *consumer `snap:"skip"`
	rank          uint32
	agentMetadata []byte
	joined        geometry.RankPair
	key           uint64 // by which the data plane finds the peer
	agentName     string // name of its agent
	incarnation   effects.Incarnation
	conn          effects.Conn

	knownToRank     bool // the rank knows the peer
	helloPending    bool // the peer's hello is in flight
	helloWaits      bool // the peer's hello is sent when no other is in flight
	helloTries      int  // hellos in a row that the rank has forgotten before their last message
	rankIncarnation protocol.UUID
	geometrySum     uint64 // checksum of both ends' cache geometry, as stated in the hello
	echoNS          int64
	pending         []*engineRegistration
}

// An engineRegistration is a registration of a plain engine.
type engineRegistration struct {
	sender    string // the sending agent
	requestID []byte
	message   protocol.PushRegistration
	until     effects.Time // until when the rank may let it wait
	tries     int
}

// dedupKey identifies a registration as an engine does: by the agent and the request.
func (x *engineRegistration) dedupKey() string { return x.sender + " " + string(x.requestID) }

// A gatewayRequest is a request of the gateway to the rank.
type gatewayRequest struct {
	request      effects.Request
	peer         *peer
	kind         requestKind
	registration *engineRegistration
}

// A requestKind is the kind of a request of the gateway to the rank.
type requestKind uint8

const (
	requestHello      requestKind = iota // first message of a hello
	requestBufferList                    // last message of a hello: the list of buffers
	requestRegister                      // a registration
	requestKeepAlive                     // a heartbeat
)

// onNotification handles a notification to the front. A notification that is neither a registration nor a heartbeat has
// the kind NixlCompletion. Heartbeats of all consumers go to the rank in the name of one peer, heartbeatPeer; the ids
// of a heartbeat replace those of an earlier one that still wait.
func (g *consumerSide) onNotification(now effects.Time, from string, body []byte, out *Effects) {
	switch protocol.NotificationKindOf(body) {
	case protocol.NixlRegistration:
		g.handleRegistration(now, from, body, out)
	case protocol.NixlHeartbeat:
		if err := g.heartbeat.Decode(body, &g.cfg.Wire); err != nil {
			out.addReport("a heartbeat makes no sense", effects.Why{Name: from, Field: "HB", Theirs: err.Error()})
			return
		}
		g.heartbeatIDs = g.heartbeatIDs[:0]
		for _, id := range g.heartbeat.RequestIDs {
			g.heartbeatIDs = append(g.heartbeatIDs, append([]byte(nil), id...))
		}
		g.sendKeepAlive(now, out)
	case protocol.NixlCompletion:
		out.addReport("a notification to the front is neither a registration nor a heartbeat",
			effects.Why{Name: from, Field: "notification", Theirs: effects.SanitizeText(body)})
	}
}

// handleRegistration handles a registration. A repetition is ignored.
func (g *consumerSide) handleRegistration(now effects.Time, from string, body []byte, out *Effects) {
	x := &engineRegistration{sender: from, until: now.Add(g.cfg.RegistrationTimeout)}
	body = append([]byte(nil), body...)
	if err := x.message.Decode(body, &g.cfg.Wire); err != nil {
		out.addReport("a registration makes no sense", effects.Why{Name: from, Field: "PUSH_REG", Theirs: err.Error()})
		return
	}
	x.requestID = x.message.RequestID
	if why, ok := g.checkRegistration(x); !ok {
		why.Name = from
		out.addReport("a registration of a plain engine is not taken, and waits there until its router gives it up", why)
		return
	}
	at := effects.Addr{Host: string(x.message.Host), Port: uint16(x.message.Port)}
	for _, c := range g.consumers {
		if c.leaving || c.engine != string(x.message.EngineID) || c.sideChannel != at || c.ranks != x.message.TPSize {
			continue
		}
		if c.phase != phaseKnown {
			c.pending = append(c.pending, x)
			return
		}
		if p := c.findPeer(from); p != nil {
			g.forwardRegistration(now, p, x, out)
			return
		}
	}
	// If the engine is known, and the agent is not, the engine may have restarted. Its side channel says so: anybody can
	// send a registration in its name.
	g.addConsumer(x, at, out)
}

// checkRegistration reports whether a registration is accepted, or why it is not.
func (g *consumerSide) checkRegistration(x *engineRegistration) (effects.Why, bool) {
	if n := len(x.message.Remote.EngineID); n > 0 && string(x.message.Remote.EngineID) != g.cfg.Own.EngineID {
		return effects.Why{
			Field: "remote_engine_id", Ours: g.cfg.Own.EngineID, Theirs: effects.SanitizeText(x.message.Remote.EngineID),
			Remedy: "route the request to the engine that the request names",
		}, false
	}
	waiting := 0
	for _, other := range g.openRegistrations() {
		if waiting++; other.dedupKey() == x.dedupKey() {
			return effects.Why{Field: "request_id", Theirs: effects.SanitizeText(x.requestID), Ours: "registered already",
				Remedy: "none is needed: the repetition is ignored"}, false
		}
	}
	for _, id := range g.recentlyEnded {
		if id == x.dedupKey() {
			return effects.Why{Field: "request_id", Theirs: effects.SanitizeText(x.requestID), Ours: "registered, and over",
				Remedy: "give each request a name of its own"}, false
		}
	}
	if waiting >= g.cfg.PendingMax {
		return effects.Why{
			Field: "gateway.waiting", Ours: formatDecimal(uint64(g.cfg.PendingMax)) + ", and as many registrations wait",
			Remedy: "raise gateway.waiting",
		}, false
	}
	return effects.Why{}, true
}

// openRegistrations returns all registrations that have not ended.
func (g *consumerSide) openRegistrations() (all []*engineRegistration) {
	for _, c := range g.consumers {
		all = append(all, c.pending...)
		for _, p := range c.peers {
			all = append(all, p.pending...)
		}
	}
	for i := range g.requests {
		if x := g.requests[i].registration; x != nil {
			all = append(all, x)
		}
	}
	return all
}

// findPeer returns the consumer's peer with the given agent name, or nil.
func (c *consumer) findPeer(agent string) *peer {
	for _, p := range c.peers {
		if p.agentName == agent {
			return p
		}
	}
	return nil
}

// addConsumer begins to query an engine that is not known yet.
func (g *consumerSide) addConsumer(x *engineRegistration, at effects.Addr, out *Effects) {
	neighbours, err := geometry.ConsumersOf(&g.cfg.Own.Geometry, x.message.TPSize)
	if err == nil && neighbours.Count > uint32(g.cfg.RanksMax) {
		err = &geometry.Error{
			Field: "decode_tp_size", Value: formatDecimal(uint64(x.message.TPSize)), Remedy: "give the engine fewer ranks",
		}
	}
	if err != nil {
		why := whyUnfit(err)
		why.Name = x.sender
		out.addReport("an engine cannot be written to", why)
		return
	}
	if why, ok := g.checkConsumer(x); !ok {
		out.addReport("an engine cannot be written to", why)
		return
	}
	c := &consumer{engine: string(x.message.EngineID), sideChannel: at, ranks: x.message.TPSize, neighbours: neighbours,
		pending: []*engineRegistration{x}}
	for i := range neighbours.Count {
		c.peers = append(c.peers, &peer{consumer: c, rank: neighbours.First + i})
	}
	g.consumers = append(g.consumers, c)
	g.queryNextRank(c, out)
}

// checkConsumer reports whether an unknown engine may be queried, or why it may not. Unknown engines have a limit of
// their own, and each sender may have one, because engine names cost nothing to invent and must not take the places of
// known engines.
func (g *consumerSide) checkConsumer(x *engineRegistration) (effects.Why, bool) {
	unknown := 0
	for _, c := range g.consumers {
		if c.phase == phaseKnown {
			continue
		}
		unknown++
		for _, other := range c.pending {
			if other.sender == x.sender {
				return effects.Why{Name: x.sender, Field: "decode_engine_id", Theirs: "another one while one is asked",
					Remedy: "give an engine's ranks one engine_id"}, false
			}
		}
	}
	if unknown >= g.cfg.EnginesMax {
		return effects.Why{
			Name: x.sender, Field: "gateway.engines",
			Ours:   formatDecimal(uint64(g.cfg.EnginesMax)) + ", and as many engines are being queried",
			Remedy: "raise gateway.engines",
		}, false
	}
	return effects.Why{}, true
}

// makeRoom reports whether there is a place for an engine that has become known. If the table is full, an idle engine
// is removed.
func (g *consumerSide) makeRoom(out *Effects) bool {
	knownCount := 0
	var idle *consumer
	for _, c := range g.consumers {
		if c.phase != phaseKnown || c.leaving {
			continue
		}
		if knownCount++; idle == nil && g.countOpen(c) == 0 {
			idle = c
		}
	}
	if knownCount < g.cfg.EnginesMax {
		return true
	}
	if idle != nil {
		g.beginRemoval(idle, out)
	}
	return idle != nil
}

// queryNextRank queries the side channel of a consumer for the metadata of its next rank.
func (g *consumerSide) queryNextRank(c *consumer, out *Effects) {
	c.phase, c.pendingID = phaseQuerying, g.newID()
	q := protocol.NixlMetadataRequest{TPRank: c.peers[c.rankIndex].rank}
	out.Queries = append(out.Queries, Query{QueryID: c.pendingID, Addr: c.sideChannel, Body: q.Append(nil)})
}

// findConsumer returns the consumer for which a query or load is outstanding, or nil.
func (g *consumerSide) findConsumer(id uint64) *consumer {
	for _, c := range g.consumers {
		if c.pendingID == id && id != 0 {
			return c
		}
	}
	return nil
}

// onQueryReply handles the answer of a side channel.
func (g *consumerSide) onQueryReply(queryID uint64, body []byte, code effects.Code, out *Effects) {
	c := g.findConsumer(queryID)
	if c == nil {
		return
	}
	c.pendingID = 0
	if code != effects.OK {
		if c.tries++; c.tries < g.cfg.TriesMax {
			g.queryNextRank(c, out)
			return
		}
		g.giveUp(c, effects.Why{
			Field: "decode_host, decode_port", Theirs: code.String(), Remedy: "see that its side channel can be reached",
		}, out)
		return
	}
	own, p := &g.cfg.Own, c.peers[c.rankIndex]
	agent, regions, code, why := g.decodeMetadata(body, &geometry.Worker{
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
			code, why = effects.Mismatch, whyUnfit(err)
		}
	}
	if code != effects.OK {
		g.giveUp(c, why, out)
		return
	}
	p.agentMetadata = agent
	if c.rankIndex++; c.rankIndex < len(c.peers) {
		g.queryNextRank(c, out)
		return
	}
	c.phase, c.writer = phaseMakingWriter, g.newAgent()
	out.MakeWriters = append(out.MakeWriters, c.writer)
}

// giveUp removes an engine that cannot be reached, and the engine's registrations: there is no message that would
// report this to it.
func (g *consumerSide) giveUp(c *consumer, why effects.Why, out *Effects) {
	why.Addr, why.Name = c.sideChannel, c.engine
	for _, x := range c.pending {
		g.recordEnded(x)
	}
	c.pending = nil
	out.addReport("an engine cannot be written to; what it registered waits there until its router gives it up", why)
	g.beginRemoval(c, out)
}

// recordEnded records that a registration has ended. The oldest records are dropped.
func (g *consumerSide) recordEnded(x *engineRegistration) {
	if g.recentlyEnded = append(g.recentlyEnded, x.dedupKey()); len(g.recentlyEnded) > g.cfg.PendingMax {
		g.recentlyEnded = append(g.recentlyEnded[:0], g.recentlyEnded[1:]...)
	}
}

// onWriterMade handles a writer that exists now, or cannot be made.
func (g *consumerSide) onWriterMade(a Agent, code effects.Code, out *Effects) {
	for _, c := range g.consumers {
		if c.writer != a {
			continue
		}
		if code != effects.OK {
			c.writer = 0
			g.giveUp(c, effects.Why{Field: "agent", Theirs: code.String(), Remedy: "see the log of libnixl"}, out)
			return
		}
		c.writerMade, c.phase, c.rankIndex = true, phaseLoading, 0
		g.loadNextRank(c, out)
		return
	}
}

// loadNextRank has the writer load the metadata of the consumer's next rank.
func (g *consumerSide) loadNextRank(c *consumer, out *Effects) {
	c.pendingID = g.newID()
	out.Loads = append(out.Loads, Load{Agent: c.writer, LoadID: c.pendingID, Metadata: c.peers[c.rankIndex].agentMetadata})
}

// onAgentLoaded handles the name of a rank's agent, or the failure to load the agent.
func (g *consumerSide) onAgentLoaded(now effects.Time, loadID uint64, name string, code effects.Code, out *Effects) {
	c := g.findConsumer(loadID)
	if c == nil {
		return
	}
	c.pendingID = 0
	if code != effects.OK || name == "" {
		g.giveUp(c, effects.Why{
			Field: "agent_metadata", Theirs: "cannot be loaded", Remedy: "run one version of NIXL at both ends",
		}, out)
		return
	}
	p := c.peers[c.rankIndex]
	p.agentName, p.key, p.agentMetadata = name, g.newID(), nil
	p.incarnation = agentIncarnation(name, string(g.cfg.Incarnation[:]), formatDecimal(p.key))
	if c.rankIndex++; c.rankIndex < len(c.peers) {
		g.loadNextRank(c, out)
		return
	}
	if former := g.findFormer(c); former != nil && former.hasPeersOf(c) {
		g.giveUp(c, effects.Why{
			Field: "agent", Theirs: "none of the agents that the engine has", Remedy: "none is needed: another process used its name",
		}, out)
		return
	} else if former != nil {
		g.beginRemoval(former, out)
	}
	if !g.makeRoom(out) {
		g.giveUp(c, effects.Why{
			Field: "gateway.engines", Ours: formatDecimal(uint64(g.cfg.EnginesMax)) + ", all of them busy",
			Remedy: "raise gateway.engines",
		}, out)
		return
	}
	c.phase = phaseKnown
	pending := c.pending
	c.pending = nil
	for _, x := range pending {
		if p := c.findPeer(x.sender); p != nil {
			g.forwardRegistration(now, p, x, out)
			continue
		}
		g.recordEnded(x)
		out.addReport("a registration is of no rank that its engine has", effects.Why{
			Addr: c.sideChannel, Name: x.sender, Field: "agent", Ours: "one of those of " + c.engine, Theirs: x.sender,
			Remedy: "see that VLLM_NIXL_SIDE_CHANNEL_PORT of that engine is its own",
		})
	}
}

// findFormer returns the incarnation of a consumer's engine that is known, or nil.
func (g *consumerSide) findFormer(c *consumer) *consumer {
	for _, x := range g.consumers {
		if x != c && !x.leaving && x.phase == phaseKnown && x.engine == c.engine && x.sideChannel == c.sideChannel && x.ranks == c.ranks {
			return x
		}
	}
	return nil
}

// hasPeersOf reports whether two consumers have the same agents, and so are the same incarnation.
func (c *consumer) hasPeersOf(other *consumer) bool {
	for i, p := range c.peers {
		if p.agentName != other.peers[i].agentName {
			return false
		}
	}
	return true
}

// countOpen returns the number of registrations and requests of an engine that have not ended.
func (g *consumerSide) countOpen(c *consumer) int {
	n := len(c.pending)
	for _, p := range c.peers {
		n += len(p.pending)
	}
	for i := range g.requests {
		if g.requests[i].peer.consumer == c {
			n++
		}
	}
	return n
}

// beginRemoval removes an incarnation of an engine when its registrations have ended and its writer is gone. The
// consumer is in the list until then. Until then an unknown engine keeps its place (checkConsumer); the place of a
// known engine is free already (makeRoom).
func (g *consumerSide) beginRemoval(c *consumer, out *Effects) {
	c.leaving = true
	if g.countOpen(c) > 0 {
		return
	}
	if c.writer != 0 { // onWriterDestroyed continues.
		if !c.destroyingWriter {
			c.destroyingWriter = true
			out.DestroyAgents = append(out.DestroyAgents, c.writer)
		}
		return
	}
	g.removeConsumer(c)
}

// removeConsumer removes a consumer.
func (g *consumerSide) removeConsumer(c *consumer) {
	for i, x := range g.consumers {
		if x == c {
			g.consumers = append(g.consumers[:i], g.consumers[i+1:]...)
			return
		}
	}
}

// onWriterDestroyed handles the end of a writer: its engine cannot be written to any more. The data plane ends
// the writes in flight, and the engine is removed when its registrations have ended.
func (g *consumerSide) onWriterDestroyed(agent Agent, out *Effects) {
	for _, c := range g.consumers {
		if c.writer == agent {
			c.writer, c.writerMade = 0, false
			if c.phase != phaseKnown {
				g.giveUp(c, effects.Why{Field: "agent", Theirs: "gone", Remedy: "see the log of libnixl"}, out)
				return
			}
			g.beginRemoval(c, out)
			return
		}
	}
}

// OnWriterFailed reports that a writer failed. Its engine is queried anew when it registers again.
func (g *consumerSide) OnWriterFailed(agent Agent, out *Effects) {
	for _, c := range g.consumers {
		if c.writer == agent && !c.leaving {
			g.beginRemoval(c, out)
			return
		}
	}
}
