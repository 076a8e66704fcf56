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

// ownNode is the state of a node that runs a user's machine.
type ownNode struct {
	Process
	system *System
	given  uint32 // number of commands given so far, which names the next one
}

// cast lists the nodes of a world: the ranks of a plan, followed by the processes of each system.
type cast struct {
	ranks int // the number of nodes that are ranks
	own   []ownNode
	proxy int32 // the node that receives the ranks' messages to the proxy; plan.Proxy: the world itself
}

// ownChannels lists the channels of kvferry that users' machines may serve. Ranks listen on the remaining channels.
var ownChannels = []effects.Channel{effects.ChannelProxy, effects.ChannelDirectory, effects.ChannelFeed,
	effects.ChannelHeartbeat,
	effects.ChannelLog}

// castOf returns the nodes of a plan, or an error that describes which process is invalid.
func (s *System) castOf(p *plan.Plan) (cast, error) {
	c := cast{proxy: plan.Proxy}
	if s.hasRanks() {
		c.ranks = p.NodeCount()
	}
	if s.isPD() {
		return c, nil
	}
	names := map[string]bool{world.Engines: true}
	for _, part := range s.machines() {
		processes := part.Nodes(p)
		if len(processes) == 0 {
			return c, fmt.Errorf("sim: system %s: nodes are none: give at least one process", part.Name)
		}
		for _, x := range processes {
			number := c.ranks + len(c.own)
			_, taken := plan.ParseNode(x.Name)
			switch {
			case !nameForm.MatchString(x.Name) || taken || names[x.Name]:
				return c, fmt.Errorf("sim: system %s: a node is called %q: give each a name of its own, of letters and digits, "+
					"that is none of n0, world, proxy and %s", part.Name, x.Name, world.Engines)
			case x.New == nil:
				return c, fmt.Errorf("sim: system %s: node %s has no New: give the function that makes its machine",
					part.Name, x.Name)
			case number >= plan.NodesMax:
				return c, fmt.Errorf("sim: system %s: node %s is number %d: give at most %d nodes in all",
					part.Name, x.Name, number, plan.NodesMax)
			}
			for _, ch := range x.Serves {
				if ch == world.ChannelDispatch || ch < effects.ChannelOther && !slices.Contains(ownChannels, ch) {
					return c, fmt.Errorf("sim: system %s: node %s serves %v: give ChannelOther + i, or one of %v",
						part.Name, x.Name, ch, ownChannels)
				}
			}
			if slices.Contains(x.Serves, effects.ChannelProxy) {
				if c.proxy != plan.Proxy {
					return c, fmt.Errorf("sim: system %s: node %s serves proxy, and another does: give one proxy", part.Name, x.Name)
				}
				c.proxy = int32(number)
			}
			names[x.Name] = true
			c.own = append(c.own, ownNode{Process: x, system: part})
		}
	}
	return c, nil
}

// nodes returns the number of nodes.
func (c *cast) nodes() int { return c.ranks + len(c.own) }

// numbered returns the number of a node, given the name of its process or its name in plans.
func (c *cast) numbered(name string) (int32, bool) {
	for i := range c.own {
		if c.own[i].Name == name {
			return int32(c.ranks + i), true
		}
	}
	n, ok := plan.ParseNode(name)
	return n, ok && n >= 0 && int(n) < c.nodes()
}

// names returns the names of all nodes, as Boot.Addr accepts them.
func (c *cast) names() (all []string) {
	for i := range c.ranks {
		all = append(all, world.LaneName(int32(i)))
	}
	if c.ranks > 0 {
		all = append(all, world.Engines)
	}
	for i := range c.own {
		all = append(all, c.own[i].Name)
	}
	return all
}

// of returns the number of a system's first node and the count of the system's nodes.
func (c *cast) of(system string) (first, count int) {
	for i := range c.own {
		if c.own[i].system.Name == system {
			if count == 0 {
				first = c.ranks + i
			}
			count++
		}
	}
	return first, count
}

// Boot gives n the machine of a new incarnation. A user's node has no memory that peers could access.
func (w *trial) Boot(n *world.Node) (world.Pools, error) {
	if !n.User {
		return w.Cluster.Boot(n)
	}
	m, err := newMachine(user(n), Boot{Name: user(n).Name, Life: n.Life, Now: w.Clock(n), Plan: w.Source,
		Seed: uint64(draw.Hash(w.Seed, draw.Identity, uint64(n.ID), uint64(n.Life))), Addr: w.addrOf})
	if err == nil && m == nil {
		err = fmt.Errorf("system %s: New of %s gave no machine and no error: give one", user(n).system.Name, user(n).Name)
	}
	if err != nil {
		return world.Pools{}, err
	}
	n.Machine, n.Listens = m, user(n).Serves
	return world.Pools{}, nil
}

// newMachine calls the New function of a user's process. A panic in New is a mistake of the user and is returned as an
// error, so that the process in which the simulator runs does not end.
func newMachine(of *ownNode, b Boot) (m effects.Machine, err error) {
	defer recovered(&err, fmt.Sprintf("system %s: New of %s", of.system.Name, of.Name))
	return of.New(b)
}

// recovered turns a panic of a user's function into an error. The caller must defer recoverAsError around the call of
// that function.
func recovered(err *error, function string) {
	switch p := recover().(type) {
	case nil:
	case noNode:
		*err = fmt.Errorf("%s: %w", function, p)
	default:
		*err = fmt.Errorf("%s panics: %v\n%s", function, p, debug.Stack())
	}
}

// addrOf returns the address of the named node on a channel: see [own.Boot]. The error of its panic lists the existing
// names, or says that the node does not serve the channel.
func (w *trial) addrOf(name string, ch effects.Channel) effects.Addr {
	if name == world.Engines && w.cast.ranks > 0 {
		return effects.Addr{Host: world.EnginesHost, Port: 1}
	}
	n, ok := w.cast.numbered(name)
	if !ok {
		panic(noNode{fmt.Errorf("Boot.Addr: no node is called %q: give one of %s", name,
			strings.Join(w.cast.names(), ", "))})
	}
	if own := int(n) - w.cast.ranks; own >= 0 && !slices.Contains(w.cast.own[own].Serves, ch) {
		panic(noNode{fmt.Errorf("Boot.Addr: node %s does not serve %v: put the channel into Serves of its Process", name, ch)})
	}
	return world.AddressOf(n, ch)
}

// user returns the state of a node that runs a user's machine.
func user(n *world.Node) *ownNode { return n.Side.(*ownNode) }
