package sim

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// customNode is the state of a node that runs a user's machine.
type customNode struct {
	Process
	system       *System
	commandCount uint32 // number of commands given so far, which names the next one
}

// nodeSet lists the nodes of a world: the ranks of a plan, followed by the processes of each system.
type nodeSet struct {
	rankCount int // the number of nodes that are ranks
	customs   []customNode
	proxy     int32 // the node that receives the ranks' messages to the proxy; plan.Proxy: the world itself
}

// customChannels lists the channels of kvferry that users' machines may serve. Ranks listen on the remaining channels.
var customChannels = []effects.Channel{effects.ChannelProxy, effects.ChannelDirectory, effects.ChannelFeed,
	effects.ChannelHeartbeat,
	effects.ChannelLog}

// newNodeSet returns the nodes of a plan, or an error that describes which process is invalid.
func (s *System) newNodeSet(p *plan.Plan) (nodeSet, error) {
	c := nodeSet{proxy: plan.Proxy}
	if s.hasRanks() {
		c.rankCount = p.NodeCount()
	}
	if s.isPD() {
		return c, nil
	}
	names := map[string]bool{world.EnginesNode: true}
	for _, part := range s.customParts() {
		processes := part.Processes(p)
		if len(processes) == 0 {
			return c, fmt.Errorf("sim: system %s: Processes returned no process: return at least one", part.Name)
		}
		for _, process := range processes {
			number := c.rankCount + len(c.customs)
			_, isPlanName := plan.ParseNode(process.Name)
			switch {
			case !validName.MatchString(process.Name) || isPlanName || names[process.Name]:
				return c, fmt.Errorf("sim: system %s: a process is called %q: each process needs a different name of letters and digits, "+
					"which is not n0, world, proxy or %s", part.Name, process.Name, world.EnginesNode)
			case process.New == nil:
				return c, fmt.Errorf("sim: system %s: process %s has no New: set the function that creates the machine",
					part.Name, process.Name)
			case number >= plan.NodesMax:
				return c, fmt.Errorf("sim: system %s: node %s is number %d: a run has at most %d nodes",
					part.Name, process.Name, number, plan.NodesMax)
			}
			for _, ch := range process.Channels {
				if ch == world.ChannelDispatch || ch < effects.ChannelOther && !slices.Contains(customChannels, ch) {
					return c, fmt.Errorf("sim: system %s: process %s listens on %v: use ChannelOther + i, or one of %v",
						part.Name, process.Name, ch, customChannels)
				}
			}
			if slices.Contains(process.Channels, effects.ChannelProxy) {
				if c.proxy != plan.Proxy {
					return c,
						fmt.Errorf("sim: system %s: process %s listens on the proxy channel, as another process does: only one may", part.Name, process.Name)
				}
				c.proxy = int32(number)
			}
			names[process.Name] = true
			c.customs = append(c.customs, customNode{Process: process, system: part})
		}
	}
	return c, nil
}

// nodeCount returns the number of nodes.
func (c *nodeSet) nodeCount() int { return c.rankCount + len(c.customs) }

// findNode returns the number of a node, given the name of its process or its name in plans.
func (c *nodeSet) findNode(name string) (int32, bool) {
	for i := range c.customs {
		if c.customs[i].Name == name {
			return int32(c.rankCount + i), true
		}
	}
	n, ok := plan.ParseNode(name)
	return n, ok && n >= 0 && int(n) < c.nodeCount()
}

// nodeNames returns the names of all nodes, as Boot.Addr accepts them.
func (c *nodeSet) nodeNames() (names []string) {
	for i := range c.rankCount {
		names = append(names, world.NodeName(int32(i)))
	}
	if c.rankCount > 0 {
		names = append(names, world.EnginesNode)
	}
	for i := range c.customs {
		names = append(names, c.customs[i].Name)
	}
	return names
}

// rangeOf returns the number of a system's first node and the count of the system's nodes.
func (c *nodeSet) rangeOf(system string) (first, count int) {
	for i := range c.customs {
		if c.customs[i].system.Name == system {
			if count == 0 {
				first = c.rankCount + i
			}
			count++
		}
	}
	return first, count
}

// BootNode gives n the machine of a new incarnation. A user's node has no memory that peers could access.
func (w *trial) BootNode(n *world.Node) (world.Pools, error) {
	if !n.Custom {
		return w.Cluster.BootNode(n)
	}
	b := Boot{Name: customOf(n).Name, Incarnation: n.Incarnation, Now: w.ReadClock(n), Plan: w.SourcePlan,
		Seed: uint64(draw.Hash(w.Seed, draw.Identity, uint64(n.ID), uint64(n.Incarnation))), Addr: w.addrOfNode}
	m, err := newMachine(customOf(n), b)
	if err == nil && m == nil {
		err = fmt.Errorf("system %s: New of %s returned neither a machine nor an error", customOf(n).system.Name, customOf(n).Name)
	}
	if err != nil {
		return world.Pools{}, err
	}
	n.Machine, n.Listens, n.ChangesHost = m, customOf(n).Channels, customOf(n).Moves
	if n.Proof = (world.Proof{}); customOf(n).Proves != nil {
		n.Proof.Principal, n.Proof.Roles = customOf(n).Proves(b)
	}
	return world.Pools{}, nil
}

// newMachine calls the New function of a user's process. A panic in New is a mistake of the user and is returned as an
// error, so that the process in which the simulator runs does not end.
func newMachine(node *customNode, b Boot) (m effects.Machine, err error) {
	defer recoverAsError(&err, fmt.Sprintf("system %s: New of %s", node.system.Name, node.Name))
	return node.New(b)
}

// recoverAsError turns a panic of a user's function into an error. The caller must defer recoverAsError around the call
// of that function.
func recoverAsError(err *error, function string) {
	switch p := recover().(type) {
	case nil:
	case nodeNameError:
		*err = fmt.Errorf("%s: %w", function, p)
	default:
		*err = fmt.Errorf("%s panics: %v\n%s", function, p, debug.Stack())
	}
}

// addrOfNode returns the address of the named node on a channel: see [own.Boot]. The error of its panic lists the
// existing names, or says that the node does not serve the channel.
func (w *trial) addrOfNode(name string, ch effects.Channel) effects.Addr {
	if name == world.EnginesNode && w.nodes.rankCount > 0 {
		return effects.Addr{Host: world.EnginesHost, Port: 1}
	}
	n, ok := w.nodes.findNode(name)
	if !ok {
		panic(nodeNameError{fmt.Errorf("Boot.Addr: no node is called %q: the nodes are %s", name,
			strings.Join(w.nodes.nodeNames(), ", "))})
	}
	if index := int(n) - w.nodes.rankCount; index >= 0 && !slices.Contains(w.nodes.customs[index].Channels, ch) {
		panic(nodeNameError{fmt.Errorf("Boot.Addr: node %s does not listen on %v: add the channel to Channels of its Process", name, ch)})
	}
	return world.AddressOf(n, ch)
}

// customOf returns the state of a node that runs a user's machine.
func customOf(n *world.Node) *customNode { return n.State.(*customNode) }
