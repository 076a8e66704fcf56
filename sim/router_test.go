package sim_test

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim"
)

// eagerRouter is a router that dispatches all requests of the plan together with the first request.
type eagerRouter struct {
	router
	all []string
}

func (x *eagerRouter) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	x.router.Step(now, ev, out)
	if len(x.undelivered) > 0 {
		x.undelivered, x.all = append(x.undelivered, x.all...), nil
	}
}

// silentMachine is a router that dispatches nothing.
type silentMachine struct{}

func (silentMachine) Step(effects.Time, effects.Event, *effects.Effects) {}
func (silentMachine) Deadline() (effects.Time, bool)                     { return 0, false }

// TestRouter: the user's oracle finds a router that dispatches too early. Requests are dispatched only by the router:
// with a router that never dispatches, no transfer succeeds.
func TestRouter(t *testing.T) {
	early := routed
	early.Processes = func(p *sim.Plan) []sim.Process {
		all := routed.Processes(p)
		all[0].New = func(b sim.Boot) (effects.Machine, error) {
			x := &eagerRouter{router: router{engines: b.Addr(sim.EnginesNode, sim.ChannelDispatch)}}
			for i := range b.Plan.Jobs {
				x.all = append(x.all, fmt.Sprintf("r%d", b.Plan.Jobs[i].Request))
			}
			return x, nil
		}
		return all
	}
	system := sim.Join(sim.PD(), early)
	if f := findFailure(t, &system, 10); f == nil || f.Property != "in-time" {
		t.Errorf("nobody minds an eager router: %v", f)
	}
	silent := routed
	silent.Processes = func(p *sim.Plan) []sim.Process {
		all := routed.Processes(p)
		all[0].New = func(sim.Boot) (effects.Machine, error) { return silentMachine{}, nil }
		return all
	}
	system = sim.Join(sim.PD(), silent)
	if f := findFailure(t, &system, 10); f == nil || f.Property != "L5" {
		t.Errorf("nobody minds a silent router: %v", f)
	}
}
