package gateway

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// An agentModel is what the driver has of libnixl: agents, and what is in progress with them.
type agentModel struct {
	seed      uint64 `snap:"share"`
	slow      bool   `snap:"share"` // agents take long to make, load and destroy
	failing   int    // permille of the agents and loads that fail
	drawCount uint64

	agents    map[machine.Agent]*agent
	tasks     []task
	transfers map[effects.Corr]*transfer
	links     map[effects.Link]linkState
	grants    map[effects.GrantID]effects.Incarnation // the peer of each grant
	proofs    map[uint64]effects.GrantID              // grants whose revocation waits for an expulsion
	lastID    uint64
	// failedQueries counts the queries to an engine that failed since its last answer or registration.
	failedQueries map[string]int
	prefix        string `snap:"share"` // of the names of agents; different in each incarnation
}

// An agent is an agent of libnixl at the node.
type agent struct {
	writable bool // engines may write to it
	made     bool
	closing  bool
}

// A task is something that the driver does beside the gateway and the rank, and that ends at some time.
type task struct {
	at    effects.Time
	kind  taskKind
	agent machine.Agent
	id    uint64 // of a load
	name  string // of the loaded agent
	code  effects.Code
}

type taskKind uint8

const (
	taskMake taskKind = iota
	taskLoad
	taskDestroy
)

// A transfer is a transfer of the rank to a consumer.
type transfer struct {
	peer    effects.Incarnation
	agent   machine.Agent
	left    int  // pages that are not stored yet
	failed  bool // the rank was told; the transfer is settled when its agent is gone
	pairs   []effects.Pair
	toAgent string
}

type linkState struct {
	route machine.Route
	peer  effects.Incarnation
	lost  bool
}

// The purposes of the host's frames.
const (
	purposeQuery purposeKind = iota + 1
	purposeNote
	purposeWrite
)

const (
	outcomeGrace     = 2 * effects.Second
	transfersMax     = 64
	tasksMax         = 64
	sendsMax         = 256
	agentsUnknownMax = 8
)

func newAgentModel(b custom.Boot) agentModel {
	m := agentModel{
		seed: b.Seed, slow: drawOf(b.Plan.Seed, 5).ChancePermille(500),
		agents: map[machine.Agent]*agent{machine.Front: {made: true}}, transfers: map[effects.Corr]*transfer{},
		links: map[effects.Link]linkState{}, grants: map[effects.GrantID]effects.Incarnation{}, proofs: map[uint64]effects.GrantID{},
		failedQueries: map[string]int{},
		prefix:        fmt.Sprintf("%s.%x.", hostName, uint32(b.Seed)),
	}
	if !isCalm(b.Plan) && drawOf(b.Plan.Seed, 6).ChancePermille(400) {
		m.failing = drawOf(b.Plan.Seed, 7).Between(10, 300)
	}
	return m
}

// draw returns the next random choice of the model.
func (m *agentModel) draw() draw.Value {
	m.drawCount++
	return drawOf(m.seed, 100+m.drawCount)
}

func (m *agentModel) nameOf(a machine.Agent) string { return m.prefix + fmt.Sprint(uint64(a)) }

// agentNamed returns the agent with a name, or 0 if it does not exist.
func (m *agentModel) agentNamed(name string) machine.Agent {
	for id, x := range m.agents {
		if m.nameOf(id) == name && x.made {
			return id
		}
	}
	return 0
}

// countAgents returns the number of agents that exist.
func (m *agentModel) countAgents() (n int) {
	for _, x := range m.agents {
		if x.made {
			n++
		}
	}
	return n
}

// addTask has a task end after some time.
func (m *agentModel) addTask(now effects.Time, t task) {
	longest := 3 * effects.Millisecond
	switch {
	case m.slow && t.kind == taskDestroy:
		longest = 2 * effects.Second // libnixl waits for what is in flight.
	case m.slow:
		longest = 400 * effects.Millisecond
	}
	t.at = now.Add(effects.Duration(m.draw().Below(uint64(longest))))
	m.tasks = append(m.tasks, t)
}

func (m *agentModel) nextTask() (at effects.Time, any bool) {
	for i := range m.tasks {
		if !any || m.tasks[i].at < at {
			at, any = m.tasks[i].at, true
		}
	}
	return at, any
}

// mayFail returns OK, or the code with which something of libnixl fails now and then.
func (m *agentModel) mayFail() effects.Code {
	if m.failing > 0 && m.draw().ChancePermille(m.failing) {
		return effects.Faulted
	}
	return effects.OK
}

// callGateway has the gateway do something, and carries out its effects.
func (h *host) callGateway(out *effects.Effects, call func(o *machine.Effects)) {
	var o machine.Effects
	call(&o)
	for _, a := range o.MakeAgents {
		h.agents[a] = &agent{writable: true}
		h.addTask(h.now, task{kind: taskMake, agent: a, code: h.mayFail()})
	}
	for _, a := range o.MakeWriters {
		h.agents[a] = &agent{}
		h.addTask(h.now, task{kind: taskMake, agent: a, code: h.mayFail()})
	}
	for _, l := range o.Loads {
		h.addTask(h.now, task{kind: taskLoad, agent: l.Agent, id: l.LoadID, name: string(l.Metadata), code: h.mayFail()})
	}
	for _, n := range o.Notifications {
		h.sendNote(n, out)
	}
	for _, q := range o.Queries {
		h.verifyQuery(q.Addr.Host, out)
		to, p := h.boot.Addr(q.Addr.Host, port), purpose{purposeQuery, q.QueryID, q.Addr.Host}
		h.send(h.now, out, to, &frame{kind: frameQuery, id: uint64(q.Addr.Port), body: q.Body}, p)
	}
	for _, a := range o.DestroyAgents {
		h.destroyAgent(a)
	}
	for _, n := range o.DoneExpulsions {
		h.events = append(h.events, &effects.Revoked{Grant: h.proofs[n]})
		delete(h.proofs, n)
	}
	h.events = append(h.events, o.Events...)
}

// sendNote sends a notification. Its tag comes back if it fails.
func (h *host) sendNote(n machine.Notification, out *effects.Effects) {
	p := purpose{purposeNote, n.Tag, fmt.Sprint(uint64(n.Agent))}
	if x := h.agents[n.Agent]; x == nil || !x.made || x.closing {
		h.completions = append(h.completions, completion{p, effects.Closed, nil})
		return
	}
	f := &frame{kind: frameNote, to: n.To, from: h.nameOf(n.Agent), body: n.Body}
	h.send(h.now, out, h.boot.Addr(nodeOf(n.To), port), f, p)
}

// destroyAgent has an agent destroyed. Like the driver, it does not know an agent that is not made yet, and reports such
// an agent as destroyed.
func (h *host) destroyAgent(a machine.Agent) {
	x := h.agents[a]
	if x != nil && x.closing {
		return
	}
	if x != nil && x.made {
		x.closing = true
	}
	h.addTask(h.now, task{kind: taskDestroy, agent: a})
}

// runTask ends a task that is due, and reports whether there was any.
func (h *host) runTask(out *effects.Effects) bool {
	i := slices.IndexFunc(h.tasks, func(t task) bool { return t.at <= h.now })
	if i < 0 {
		return false
	}
	t := h.tasks[i]
	h.tasks = slices.Delete(slices.Clone(h.tasks), i, i+1)
	x := h.agents[t.agent]
	switch t.kind {
	case taskMake:
		if t.code != effects.OK {
			delete(h.agents, t.agent)
		} else if x != nil {
			x.made = true
		}
		h.callGateway(out, func(o *machine.Effects) { h.g.OnAgentMade(h.now, t.agent, uint16(t.agent), t.code, o) })
	case taskLoad:
		if x == nil || x.closing {
			t.code = effects.Closed
		}
		h.callGateway(out, func(o *machine.Effects) { h.g.OnAgentLoaded(h.now, t.id, t.name, t.code, o) })
	case taskDestroy:
		if x != nil && x.closing {
			delete(h.agents, t.agent)
			h.settleTransfers(t.agent)
		}
		h.callGateway(out, func(o *machine.Effects) { h.g.OnAgentDestroyed(h.now, t.agent, effects.OK, o) })
	}
	return true
}

// settleTransfers ends the transfers and the links of an agent that is gone.
func (h *host) settleTransfers(a machine.Agent) {
	for _, corr := range sortedKeys(h.transfers) {
		t := h.transfers[corr]
		if t.agent != a {
			continue
		}
		delete(h.transfers, corr)
		if t.failed {
			h.events = append(h.events, &effects.Settled{Corr: corr, Code: effects.Faulted})
		} else {
			h.events = append(h.events, &effects.TransferDone{Corr: corr, Code: effects.PeerLost, Settled: true, At: h.now})
		}
	}
	for _, link := range sortedKeys(h.links) {
		if l := h.links[link]; l.route.Agent == a && a != 0 && !l.lost {
			l.lost = true
			h.links[link] = l
			h.events = append(h.events, &effects.LinkLost{Link: link, Peer: l.peer})
		}
	}
}

func (h *host) importLink(e *effects.Import) {
	x := &effects.Imported{Corr: e.Corr, Code: effects.Unreachable}
	if len(e.Blob) >= 8 {
		if r, ok := h.g.FindRoute(binary.BigEndian.Uint64(e.Blob)); ok && r.Incarnation == e.Peer {
			h.lastID++
			x.Code, x.Link = effects.OK, effects.Link(h.lastID)
			h.links[x.Link] = linkState{route: r, peer: e.Peer}
		}
	}
	h.events = append(h.events, x)
}

func (h *host) dropLink(link effects.Link) {
	for _, corr := range sortedKeys(h.transfers) {
		if t := h.transfers[corr]; t.peer == h.links[link].peer && !t.failed {
			delete(h.transfers, corr)
			h.events = append(h.events, &effects.TransferDone{Corr: corr, Code: effects.PeerLost, Settled: true, At: h.now})
		}
	}
	delete(h.links, link)
	h.events = append(h.events, &effects.Dropped{Link: link})
}

// startTransfer writes pages to a consumer, each by a write of its own.
func (h *host) startTransfer(e *effects.Transfer, out *effects.Effects) {
	l := h.links[e.Link]
	x := h.agents[l.route.Agent]
	if l.route.Regions == nil || x == nil || !x.made || x.closing {
		h.events = append(h.events, &effects.TransferDone{Corr: e.Corr, Code: effects.PeerLost, Settled: true, At: h.now})
		return
	}
	t := &transfer{peer: l.peer, agent: l.route.Agent, left: len(e.Pairs), pairs: slices.Clone(e.Pairs), toAgent: l.route.Name}
	h.transfers[e.Corr] = t
	for i, pair := range t.pairs {
		h.verifyRead(pair.Local.Index, out)
		f := &frame{kind: frameWrite, id: uint64(pair.Remote.Index), to: t.toAgent, from: h.nameOf(t.agent),
			body: []byte(h.memory[pair.Local.Index])}
		h.send(h.now, out, h.boot.Addr(nodeOf(t.toAgent), port), f, purpose{purposeWrite, uint64(e.Corr), fmt.Sprint(i)})
	}
}

// verifyQuery judges how often the gateway queries the side channel of a consumer that does not answer.
func (h *host) verifyQuery(engine string, out *effects.Effects) {
	if !slices.Contains(consumers, engine) {
		return // The rank decides how often a producer is queried.
	}
	if n := h.failedQueries[engine]; n >= triesMax {
		observe(out, factPassed, effects.Invalid,
			fmt.Sprintf("the gateway queries %s once more after %d failures and no new registration", engine, n))
		return
	}
	observe(out, factPassed, effects.OK, "")
}

// verifyRead judges whether a page that a write reads is lent.
func (h *host) verifyRead(page uint32, out *effects.Effects) {
	if j := h.jobOf(page); j == nil || !j.lends {
		observe(out, factRead, effects.Invalid, fmt.Sprintf("page %d is read by a write, and is not lent", page))
		return
	}
	observe(out, factRead, effects.OK, "")
}

// handleCompletion handles the end of a frame of the host.
func (h *host) handleCompletion(c *completion, out *effects.Effects) {
	switch c.purpose.kind {
	case purposeQuery:
		h.failedQueries[c.purpose.name]++
		if c.code == effects.OK {
			h.failedQueries[c.purpose.name] = 0
		}
		h.callGateway(out, func(o *machine.Effects) { h.g.OnQueryReply(h.now, c.purpose.id, c.body, c.code, o) })
	case purposeNote:
		if c.code != effects.OK {
			var a uint64
			_, _ = fmt.Sscan(c.purpose.name, &a)
			h.callGateway(out, func(o *machine.Effects) {
				h.g.OnNotificationFailed(h.now, machine.Agent(a), c.purpose.id, o)
			})
		}
	case purposeWrite:
		corr := effects.Corr(c.purpose.id)
		t := h.transfers[corr]
		switch {
		case t == nil || t.failed:
		case c.code != effects.OK: // The agent fails, and is destroyed.
			t.failed = true
			h.events = append(h.events, &effects.TransferDone{Corr: corr, Code: effects.Faulted, At: h.now})
			h.callGateway(out, func(o *machine.Effects) { h.g.OnWriterFailed(t.agent, o) })
			h.destroyAgent(t.agent)
		default:
			h.verifyRead(t.pairs[len(t.pairs)-t.left].Local.Index, out)
			if t.left--; t.left == 0 {
				delete(h.transfers, corr)
				h.events = append(h.events, &effects.TransferDone{Corr: corr, Code: effects.OK, Settled: true, At: h.now})
			}
		}
	}
}

// handleFrame handles a frame of a plain engine.
func (h *host) handleFrame(e *effects.Received, out *effects.Effects) {
	var f frame
	var answer []byte
	if !f.decode(e.Body) {
		out.Reply(effects.Reply{Request: e.Request})
		return
	}
	switch f.kind {
	case frameQuery:
		a := machine.Agent(f.id)
		if x := h.agents[a]; x != nil && x.made && !x.closing {
			answer, _ = h.g.AnswerQuery(a, []byte(h.nameOf(a)), f.body)
		}
	case frameNote:
		if a := h.agentNamed(f.to); a != 0 {
			answer = accepted
			limits := protocol.DefaultLimits()
			var m protocol.PushRegistration
			if protocol.NotificationKindOf(f.body) == protocol.NixlRegistration && m.Decode(f.body, &limits) == nil {
				h.failedQueries[string(m.Host)] = 0 // It may be queried for this registration.
			}
			h.callGateway(out, func(o *machine.Effects) { h.g.OnNotification(h.now, a, f.from, f.body, o) })
		}
	case frameWrite:
		if a := h.agentNamed(f.to); a != 0 && h.agents[a].writable {
			answer = accepted
			h.storePage(uint32(f.id), string(f.body), out)
		}
	}
	out.Reply(effects.Reply{Request: e.Request, Body: out.Cut(append(out.Arena(), answer...))})
}

// storePage stores a page that a producer writes. The page must belong to a request that is being received.
func (h *host) storePage(page uint32, text string, out *effects.Effects) {
	switch j := h.jobOf(page); {
	case page >= pageCount || j == nil || j.lends:
		observe(out, factStored, effects.Invalid, fmt.Sprintf("%q is stored into page %d, which belongs to no request that is received",
			text, page))
		return
	default:
		h.memory[page] = text
		observe(out, factStored, effects.OK, "")
	}
}

// metadataOf returns what an engine states about its memory.
func metadataOf(engine, agent string, blocks uint64) protocol.NixlMetadata {
	return protocol.NixlMetadata{
		EngineID: []byte(engine), Agent: []byte(agent), BaseAddrs: []uint64{1 << 20, 1 << 21}, NumBlocks: blocks,
		BlockLens: []uint64{pageBytes, pageBytes}, BlockStrides: []uint64{pageBytes, pageBytes}, Layout: []byte("LBHNC"), BlockSize: 4,
		PerLogical: 1, Backend: []byte("B"), DCPSize: 1, PCPSize: 1,
	}
}
