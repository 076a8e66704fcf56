package gateway

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// An agentModel is what the driver has of libnixl: agents, and what is in progress with them.
type agentModel struct {
	seed      uint64 `snap:"share"`
	slow      bool   `snap:"share"` // agents take long to make, load and destroy
	failing   int    // permille of the agents and loads that fail
	drawCount uint64

	flakyUntil effects.Time // notifications count as not sent
	flaky      flakiness

	agents    map[machine.Agent]*agent
	tasks     []task
	transfers map[effects.Corr]*transfer
	links     map[effects.Link]linkState
	grants    map[effects.GrantID]effects.Incarnation // the peer of each grant
	proofs    map[uint64]effects.GrantID              // grants whose revocation waits for an expulsion
	lastID    uint64
	prefix    string `snap:"share"` // of the names of agents; different in each incarnation
}

// A flakiness is how sending notifications fails.
type flakiness uint8

const (
	losesAll       flakiness = iota // none is sent
	deniesAll                       // each arrives and counts as not sent
	losesSome                       // one in two is not sent
	deniesSome                      // one in two arrives and counts as not sent
	flakinessCount = iota
)

// An agent is an agent of libnixl at the node.
type agent struct {
	writable bool // engines may write to it
	made     bool
	closing  bool
	loaded   []string // the agents of plain engines whose metadata it has loaded
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
	purposeDenied // a notification that counts as not sent, whether or not it arrives
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
		seed: b.Seed, slow: areAgentsSlow(b.Plan),
		agents: map[machine.Agent]*agent{machine.Front: {made: true}}, transfers: map[effects.Corr]*transfer{},
		links: map[effects.Link]linkState{}, grants: map[effects.GrantID]effects.Incarnation{}, proofs: map[uint64]effects.GrantID{},
		prefix: fmt.Sprintf("%s.%x.", hostName, uint32(b.Seed)),
	}
	if !isCalm(b.Plan) && drawOf(b.Plan.Seed, 6).ChancePermille(400) {
		m.failing = drawOf(b.Plan.Seed, 7).Between(10, 300)
	}
	return m
}

// areAgentsSlow reports whether agents take long to make, load and destroy.
func areAgentsSlow(p *plan.Plan) bool { return drawOf(p.Seed, 5).ChancePermille(500) }

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
