package sim_test

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim"
)

// eagerRouter is a router that dispatches all requests of the plan together with the first request.
type eager struct {
	router
	all []string
}

func (x *eager) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	x.router.Step(now, ev, out)
	if len(x.told) > 0 {
		x.told, x.all = append(x.told, x.all...), nil
	}
}

// silentMachine is a router that dispatches nothing.
type mute struct{}

func (mute) Step(effects.Time, effects.Event, *effects.Effects) {}
func (mute) Deadline() (effects.Time, bool)                     { return 0, false }

// TestRouter: the user's oracle finds a router that dispatches too early. Requests are dispatched only by the router:
// with a router that never dispatches, no transfer succeeds.
func TestRouter(t *testing.T) {
	early := routed
	early.Nodes = func(p *sim.Plan) []sim.Process {
		all := routed.Nodes(p)
		all[0].New = func(b sim.Boot) (effects.Machine, error) {
			x := &eager{router: router{engines: b.Addr(sim.Engines, sim.ChannelDispatch)}}
			for i := range b.Plan.Jobs {
				x.all = append(x.all, fmt.Sprintf("r%d", b.Plan.Jobs[i].Request))
			}
			return x, nil
		}
		return all
	}
	system := sim.Join(sim.PD(), early)
	if f := seedsOf(t, &system, 10); f == nil || f.Property != "in-time" {
		t.Errorf("nobody minds an eager router: %v", f)
	}
	silent := routed
	silent.Nodes = func(p *sim.Plan) []sim.Process {
		all := routed.Nodes(p)
		all[0].New = func(sim.Boot) (effects.Machine, error) { return mute{}, nil }
		return all
	}
	system = sim.Join(sim.PD(), silent)
	if f := seedsOf(t, &system, 10); f == nil || f.Property != "L5" {
		t.Errorf("nobody minds a silent router: %v", f)
	}
}
