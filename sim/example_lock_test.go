package sim_test

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
)

const port, factHeld, leaseTime = effects.ChannelOther, effects.FactOther, 200 * effects.Millisecond

// A lease is what the server grants: the end of the lease and its token. The oracle also records the holder.
type lease struct {
	until  effects.Time
	token  uint32
	holder oracle.Node
}

// A server grants one lease at a time, and remembers the lease only until the server crashes. This is the defect.
type server struct{ lease }

func (s *server) Deadline() (effects.Time, bool) { return 0, false }

func (s *server) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	if r, ok := ev.(*effects.Received); ok {
		answer := uint32(0) // Another client has the lock.
		if now >= s.until {
			s.until, s.token, answer = now.Add(leaseTime), s.token+1, s.token+1
		}
		out.Reply(effects.Reply{Request: r.Request, Body: out.Cut(binary.LittleEndian.AppendUint32(out.Arena(), answer))})
	}
}

type acquire struct{} // The command of a client.

func (*acquire) IsCommand() {}

// A client sends one request for each command. Its lease counts from before the request, and is a tenth shorter than
// the server's, because clocks drift.
type client struct {
	server effects.Addr
	ticket effects.Ticket // of the command; 0 is none
	corr   effects.Corr
	conn   effects.Conn
	until  effects.Time
}

func (c *client) Deadline() (effects.Time, bool) { return c.until, c.ticket != 0 }

func (c *client) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	switch e := ev.(type) {
	case *effects.Command:
		c.endCommand(effects.Cancelled, out)
		c.ticket, c.until = e.Ticket, now.Add(leaseTime-leaseTime/10)
		out.Open(effects.Open{Corr: c.corr, Channel: port, Addr: c.server})
	case *effects.Opened:
		if e.Code == effects.OK && e.Corr == c.corr {
			c.conn = e.Conn
			out.Send(effects.Send{Corr: c.corr, Conn: e.Conn, Body: out.Cut(append(out.Arena(), "acquire"...))})
		} else if e.Code == effects.OK {
			out.Close(e.Conn) // The connection was opened too late.
		}
	case *effects.Replied:
		if e.Corr == c.corr && len(e.Body) == 4 {
			if token := binary.LittleEndian.Uint32(e.Body); token > 0 && now < c.until {
				out.Observe(effects.Observe{Fact: factHeld, ID: uint64(c.until), Count: token})
			}
			c.endCommand(effects.OK, out)
		}
	case *effects.Tick:
		if now >= c.until {
			c.endCommand(effects.Expired, out)
		}
	}
}

func (c *client) endCommand(code effects.Code, out *effects.Effects) {
	if c.ticket != 0 {
		out.Deliver(effects.Deliver{Ticket: c.ticket, Code: code})
	}
	if c.conn != 0 {
		out.Close(c.conn)
	}
	*c = client{server: c.server, corr: c.corr + 1}
}

var exclusive = oracle.New("exclusive", "one holds the lock at a time, and tokens grow", func(l *oracle.Subscriptions[lease]) {
	oracle.On(l, func(has *lease, c *oracle.Call, e *effects.Observe) {
		if e.Fact == factHeld && (c.Now() < has.until || e.Count <= has.token) {
			c.Fail("node %d holds the lock by token %d although node %d has %d", c.Node(), e.Count, has.holder, has.token)
		} else if e.Fact == factHeld {
			*has = lease{c.TrueTime(c.Node(), effects.Time(e.ID)), e.Count, c.Node()}
		}
	})
})

var lock = sim.System{Name: "lock", Oracles: []oracle.Oracle{exclusive}, FactNames: []string{"held"}, DriftMaxPPM: 20_000,
	Commands: map[string]func(sim.Item) effects.CommandBody{
		"acquire": func(sim.Item) effects.CommandBody { return &acquire{} },
	},
	Draw: func(d sim.Draws, p *sim.Plan) { p.Items = d.Items("acquire", 4, 20, "a", "b") },
	Processes: func(*sim.Plan) []sim.Process {
		all := func(sim.Boot) (effects.Machine, error) { return &server{}, nil }
		one := func(b sim.Boot) (effects.Machine, error) { return &client{server: b.Addr("server", port)}, nil }
		return []sim.Process{
			{Name: "server", Channels: []effects.Channel{port}, New: all}, {Name: "a", New: one}, {Name: "b", New: one},
		}
	},
}
