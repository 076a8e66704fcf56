package sim_test

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
)

// A router is a proxy between prefill and decode. Prefill nodes notify the router that the last batch of a request has
// ended. The router then dispatches the requests to the decode engines, one after the other, and retries until a reply
// arrives.
type router struct {
	engines     effects.Addr
	undelivered []string // requests that were not dispatched to the engines yet
	corr        effects.Corr
	conn        effects.Conn
	until       effects.Time // when the router retries
}

var limits = protocol.DefaultLimits()

func (r *router) Deadline() (effects.Time, bool) { return r.until, len(r.undelivered) > 0 }

func (r *router) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	switch e := ev.(type) {
	case *effects.Received:
		var m protocol.ProxyNotif
		if m.Decode(e.Body, &limits) == nil {
			if r.undelivered = append(r.undelivered, string(m.RequestID)); len(r.undelivered) == 1 {
				r.dispatchNext(now, out)
			}
		}
	case *effects.Opened:
		if e.Code == effects.OK && e.Corr == r.corr {
			r.conn = e.Conn
			out.Send(effects.Send{Corr: r.corr, Conn: e.Conn, Body: out.Cut(append(out.Arena(), r.undelivered[0]...))})
		} else if e.Code == effects.OK {
			out.Close(e.Conn)
		}
	case *effects.Replied:
		if e.Corr == r.corr {
			r.undelivered = slices.Delete(r.undelivered, 0, 1)
			r.dispatchNext(now, out)
		}
	case *effects.Tick:
		if len(r.undelivered) > 0 && now >= r.until {
			r.dispatchNext(now, out)
		}
	}
}

// dispatchNext dispatches the first request, if there is one, on a new connection.
func (r *router) dispatchNext(now effects.Time, out *effects.Effects) {
	if r.conn != 0 {
		out.Close(r.conn)
	}
	r.corr, r.conn, r.until = r.corr+1, 0, now.Add(200*effects.Millisecond)
	if len(r.undelivered) > 0 {
		out.Open(effects.Open{Corr: r.corr, Channel: sim.ChannelDispatch, Addr: r.engines})
	}
}

// VisitTables shows that a router that has dispatched all requests keeps no state.
func (r *router) VisitTables(visit func(name string, n, most int)) {
	visit("requests", len(r.undelivered), 1<<16)
}

// batches is the memory of the oracle: the last puts of requests, and the requests whose last put has ended.
type batches struct {
	last  map[effects.Ticket]string
	ended map[string]bool
}

const inTimePromise = "no request is dispatched before its last batch ended"

var inTime = oracle.New("in-time", inTimePromise, func(l *oracle.Subscriptions[batches]) {
	oracle.On(l, func(b *batches, _ *oracle.Call, e *effects.Command) {
		if p, ok := e.Body.(*engine.Put); ok && p.Last {
			if b.last == nil {
				*b = batches{map[effects.Ticket]string{}, map[string]bool{}}
			}
			b.last[e.Ticket] = string(p.Request)
		}
	})
	oracle.On(l, func(b *batches, _ *oracle.Call, e *effects.Deliver) {
		if request, ok := b.last[e.Ticket]; ok {
			b.ended[request] = true
		}
	})
	oracle.On(l, func(b *batches, c *oracle.Call, e *effects.Send) {
		if c.NodeName() == "router" && !b.ended[string(e.Body)] {
			c.Fail("node %d dispatches %q, whose last batch has not ended", c.Node(), oracle.Request(e.Body))
		}
	})
})

var routed = sim.System{Name: "routed", Oracles: []oracle.Oracle{inTime}, Processes: func(*sim.Plan) []sim.Process {
	return []sim.Process{{Name: "router", Channels: []effects.Channel{effects.ChannelProxy},
		New: func(b sim.Boot) (effects.Machine, error) {
			return &router{engines: b.Addr(sim.EnginesNode, sim.ChannelDispatch)}, nil
		}}}
}}

// ExampleJoin runs a user's proxy between prefill and decode, under all faults, with a promise of the user in addition
// to the promises of kvferry.
func ExampleJoin() {
	system := sim.Join(sim.PD(), routed)
	for seed := range uint64(30) {
		r, err := sim.Run(sim.Options{Seed: seed, System: &system})
		if err != nil || r.Failure != nil {
			fmt.Println(err, r.Failure)
			return
		}
	}
	fmt.Println("every promise was kept")
	// Output: every promise was kept
}
