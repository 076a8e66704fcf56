//go:build cgo && linux

package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A sideClient sends requests to side channels of engines. All methods except Post belong to the machine's goroutine.
type sideClient struct {
	g         *Gateway
	transport control.Transport
	requests  map[effects.Corr]*sideRequest
	last      effects.Corr
}

type sideRequest struct {
	number uint64
	body   []byte
	conn   effects.Conn // 0: not open yet
	timer  *time.Timer
}

func (g *Gateway) openSides() (*sideClient, error) {
	a := &sideClient{g: g, requests: map[effects.Corr]*sideRequest{}}
	var err error
	if a.transport, err = g.cfg.Sides(control.Env{Sink: a, Log: g.log}); err != nil {
		return nil, fmt.Errorf("the side channels' transport: %w", err)
	}
	return a, nil
}

func (a *sideClient) ask(number uint64, to effects.Addr, body []byte) {
	a.last++
	corr := a.last
	a.requests[corr] = &sideRequest{number: number, body: effects.AppendPart(nil, body),
		timer: time.AfterFunc(a.g.cfg.Limits.SideTimeout, func() {
			a.g.inbox.Push(func(now effects.Time) { a.finish(now, corr, nil, effects.Unreachable) })
		})}
	if err := libnixl.CheckReach(to.Host, a.g.cfg.TrustedNetwork); err != nil {
		// The engine's agent could not be reached either.
		a.g.seldom.Warn("an engine is not asked", to.Host, "port", to.Port, "err", err)
		a.g.inbox.Push(func(now effects.Time) { a.finish(now, corr, nil, effects.Unreachable) })
		return
	}
	a.transport.Open(&effects.Open{Corr: corr, Channel: effects.ChannelMeta, Addr: to})
}

// Post implements control.Sink.
func (a *sideClient) Post(ev effects.Event) {
	a.g.inbox.Push(func(now effects.Time) {
		switch ev := ev.(type) {
		case *effects.Opened:
			q := a.requests[ev.Corr]
			switch {
			case q == nil:
				if ev.Code == effects.OK {
					a.transport.Close(ev.Conn)
				}
			case ev.Code != effects.OK:
				a.finish(now, ev.Corr, nil, ev.Code)
			default:
				q.conn = ev.Conn
				a.transport.Send(&effects.Send{Corr: ev.Corr, Conn: ev.Conn, Body: q.body})
			}
		case *effects.Replied:
			hello, rest, ok := effects.CutPart(ev.Body)
			clock, rest, has := effects.CutPart(rest)
			// The reference implementation accepts only replies of two parts.
			if c := (protocol.NixlClock{}); !ok || !has || len(rest) > 0 || c.Decode(clock, &a.g.cfg.Wire) != nil {
				a.finish(now, ev.Corr, nil, effects.Malformed)
				return
			}
			a.finish(now, ev.Corr, hello, effects.OK)
		case *effects.Unanswered:
			a.finish(now, ev.Corr, nil, ev.Code)
		default:
		}
	})
}

// finish reports the result of a request to the machine, once.
func (a *sideClient) finish(now effects.Time, corr effects.Corr, body []byte, code effects.Code) {
	q := a.requests[corr]
	if q == nil {
		return
	}
	delete(a.requests, corr)
	a.g.count(func(s *Stats) { s.RequestsSent.add(code == effects.OK) })
	q.timer.Stop()
	if q.conn != 0 {
		a.transport.Close(q.conn)
	}
	a.g.m.OnQueryReply(now, q.number, body, code, &a.g.out)
}

const (
	// Each rank of an engine opens a connection, and closes that connection after the reply.
	sideConnsFloor, sideConnsCeiling = 4, 2 * ranksMax
	// The limit of open files that is assumed if the system does not report a limit.
	filesUnknown = 1024
	filesOfAgent = 15
)

// shareFiles returns how many connections each side channel may have, so that all side channels together take a quarter
// of the files that the process may open. Each agent that engines write to has a side channel, and the front has a side
// channel.
func (c *Config) shareFiles(log *slog.Logger) int {
	limit, _, err := door.FileLimit()
	if err != nil {
		log.Warn("the limit of open files is not known", "err", err, "assumed", filesUnknown)
		limit = filesUnknown
	}
	return c.shareOf(limit, log)
}

// shareOf is shareFiles for a process that may open limit files.
func (c *Config) shareOf(limit int, log *slog.Logger) int {
	sides := 1 + int(c.Limits.EnginesMax)*int(c.Limits.AgentsMax)
	share := limit / 4 / sides
	if agents := 2 * int(c.Limits.EnginesMax) * filesOfAgent; share < sideConnsFloor || agents > limit/4 {
		log.Warn("this process may open few files for the engines that the gateway may have", "files_max", limit,
			"side_channels_max", sides, "files_of_agents_max", agents, "remedy",
			"raise the limit of open files (ulimit -n, LimitNOFILE), or lower gateway.engines and gateway.agents")
	}
	return min(max(share, sideConnsFloor), sideConnsCeiling)
}

// A side serves the side channel of an agent of this gateway.
type side struct {
	g         *Gateway
	agent     machine.Agent
	metadata  []byte
	transport control.Transport
	ready     chan struct{} // closed when transport is set
}

// openSide opens a side channel and returns its port; port 0 lets the system choose one.
func (g *Gateway) openSide(a machine.Agent, metadata []byte, port uint16) (*side, uint16, error) {
	s := &side{g: g, agent: a, metadata: metadata, ready: make(chan struct{})}
	t, err := g.cfg.Sides(control.Env{Sink: s, Log: g.log, MaxInbound: g.sideConnsMax, Servers: []control.Server{
		{Channel: effects.ChannelMeta, Addr: effects.Addr{Host: g.cfg.Host, Port: port}},
	}})
	if err != nil {
		return nil, 0, fmt.Errorf("the side channel: %w", err)
	}
	s.transport = t
	close(s.ready)
	return s, t.Servers()[0].Addr.Port, nil
}

// Post implements control.Sink. The call never blocks for long.
func (s *side) Post(ev effects.Event) {
	r, ok := ev.(*effects.Received)
	if !ok || r.Request == 0 {
		return
	}
	<-s.ready
	question, rest, _ := effects.CutPart(r.Body)
	answer, ok := s.g.m.AnswerQuery(s.agent, s.metadata, question)
	ok = ok && len(rest) == 0
	s.g.count(func(n *Stats) { n.RequestsServed.add(ok) })
	if !ok {
		s.g.seldom.Warn("a side channel received a malformed request", "", "bytes", len(r.Body))
		return
	}
	clock := protocol.NixlClock{Seconds: time.Duration(plane.Now()).Seconds()}
	body := effects.AppendPart(effects.AppendPart(nil, answer), clock.Append(nil))
	s.transport.Reply(&effects.Reply{Request: r.Request, Body: body})
}

func (s *side) close() { _ = s.transport.Shutdown(context.Background()) }
