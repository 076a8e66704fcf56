package sim

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// ownNode is what is known of a node because its machine is a user's.
type ownNode struct {
	Process
	system *System
	given  uint32 // commands so far, to name the next
}

// ChannelDispatch is where PD's decode engines are told, by a proxy of somebody's own, that a request of prefill is
// there: a question with the request's name as its body, to [Engines]. The answer, empty, says that the engine was told
// or is down. Whoever tells an engine too early has it find less than it wants.
const ChannelDispatch effects.Channel = 255

// Engines is the node that [Boot.Addr] takes for the engines of all decodes, which know whose a request is.
const Engines = "engines"

// cast is who takes part in a world: the ranks of a plan, then the processes of each system.
type cast struct {
	ranks int // how many nodes are ranks
	own   []ownNode
	proxy int32 // who hears what ranks tell the proxy; plan.Proxy: the world itself
}

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
	names := map[string]bool{Engines: true}
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
					"that is none of n0, world, proxy and %s", part.Name, x.Name, Engines)
			case x.New == nil:
				return c, fmt.Errorf("sim: system %s: node %s has no New: give the function that makes its machine",
					part.Name, x.Name)
			case number >= plan.NodesMax:
				return c, fmt.Errorf("sim: system %s: node %s is number %d: give at most %d nodes in all",
					part.Name, x.Name, number, plan.NodesMax)
			}
			for _, ch := range x.Serves {
				if ch == ChannelDispatch || ch < effects.ChannelOther && ch != effects.ChannelProxy {
					return c, fmt.Errorf("sim: system %s: node %s serves %v: give ChannelOther + i, or ChannelProxy",
						part.Name, x.Name, ch)
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
func (w *world) bootOwn(n *node) (pools, error) {
	m, err := n.own.New(Boot{Name: n.own.Name, Life: n.life, Now: w.clock(n), Plan: w.source,
		Seed: uint64(draw.Hash(w.seed, draw.Identity, uint64(n.id), uint64(n.life))), at: w.addrOf})
	if err == nil && m == nil {
		err = fmt.Errorf("system %s: New of %s gave no machine and no error: give one", n.own.system.Name, n.own.Name)
	}
	if err != nil {
		return pools{}, err
	}
	n.machine, n.listens = m, n.own.Serves
	return pools{}, nil
}

// addrOf is where a node is found on a channel, by its name.
func (w *world) addrOf(name string, ch effects.Channel) (effects.Addr, bool) {
	if name == Engines {
		return effects.Addr{Host: enginesHost, Port: 1}, w.cast.ranks > 0
	}
	n, ok := w.cast.numbered(name)
	if !ok {
		return effects.Addr{}, false
	}
	return addressOf(n, ch), true
}
