package sim

import (
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// ownNode is what is known of a node because its machine is a user's.
type ownNode struct {
	Process
	system *System
	given  uint32 // commands so far, to name the next
}

// cast is who takes part in a world: the ranks of a plan, then the processes of each system.
type cast struct {
	ranks int // how many nodes are ranks
	own   []ownNode
	proxy int32 // who hears what ranks tell the proxy; plan.Proxy: the world itself
}

// ownChannels are those of ours that users' machines may serve: ranks listen on the others.
var ownChannels = []effects.Channel{effects.ChannelProxy, effects.ChannelDirectory, effects.ChannelFeed,
	effects.ChannelHeartbeat,
	effects.ChannelLog}

// castOf says who takes part, or what is wrong with that.
func (s *System) castOf(p *plan.Plan) (cast, error) {
	c := cast{proxy: plan.Proxy}
	if s == nil || s.pd {
		c.ranks = p.NodeCount()
	}
	if s.plain() {
		return c, nil
	}
	all := s.all()
	names := map[string]bool{world.Engines: true}
	for i := range all {
		part := &all[i]
		if part.pd {
			continue
		}
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

// nodes is how many there are.
func (c *cast) nodes() int { return c.ranks + len(c.own) }

// numbered is the number of a node, by what its process or its place is called.
func (c *cast) numbered(name string) (int32, bool) {
	for i := range c.own {
		if c.own[i].Name == name {
			return int32(c.ranks + i), true
		}
	}
	n, ok := plan.ParseNode(name)
	return n, ok && n >= 0 && int(n) < c.nodes()
}

// names are those of all nodes, as Boot.Addr takes them.
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

// first and count are which nodes are a system's.
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

// bootOwn gives n the machine of a new life. It has no memory that peers could touch.
func (w *trial) bootOwn(n *world.Node) (world.Pools, error) {
	m, err := newMachine(user(n), Boot{Name: user(n).Name, Life: n.Life, Now: w.Clock(n), Plan: w.Source,
		Seed: uint64(draw.Hash(w.Seed, draw.Identity, uint64(n.ID), uint64(n.Life))), at: w.addrOf})
	if err == nil && m == nil {
		err = fmt.Errorf("system %s: New of %s gave no machine and no error: give one", user(n).system.Name, user(n).Name)
	}
	if err != nil {
		return world.Pools{}, err
	}
	n.Machine, n.Listens = m, user(n).Serves
	return world.Pools{}, nil
}

// newMachine calls the New of a user's process. A panic there is the user's mistake, and no end of the process that the
// simulator runs in: it is returned as an error.
func newMachine(of *ownNode, b Boot) (m effects.Machine, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case noNode:
			err = fmt.Errorf("system %s: New of %s: %w", of.system.Name, of.Name, p)
		default:
			err = fmt.Errorf("system %s: New of %s panics: %v\n%s", of.system.Name, of.Name, p, debug.Stack())
		}
	}()
	return of.New(b)
}

// addrOf returns where a node is found on a channel, by its name, or the names that there are.
func (w *trial) addrOf(name string, ch effects.Channel) (effects.Addr, []string) {
	if name == world.Engines && w.cast.ranks > 0 {
		return effects.Addr{Host: world.EnginesHost, Port: 1}, nil
	}
	if n, ok := w.cast.numbered(name); ok {
		return world.AddressOf(n, ch), nil
	}
	return effects.Addr{}, w.cast.names()
}

// user is what is known of a node whose machine is a user's.
func user(n *world.Node) *ownNode { return n.Side.(*ownNode) }
