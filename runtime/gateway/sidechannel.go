//go:build cgo && linux

package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
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
	queries   map[effects.Corr]*sideQuery
	lastCorr  effects.Corr
}

type sideQuery struct {
	id    uint64
	body  []byte
	conn  effects.Conn // 0: not open yet
	timer *time.Timer
}

func (g *Gateway) newSideClient() (*sideClient, error) {
	a := &sideClient{g: g, queries: map[effects.Corr]*sideQuery{}}
	var err error
	if a.transport, err = g.cfg.SideChannels(control.Env{Sink: a, Log: g.log}); err != nil {
		return nil, fmt.Errorf("open a control transport for the side channels: %w", err)
	}
	return a, nil
}

func (a *sideClient) sendQuery(number uint64, to effects.Addr, body []byte) {
	a.lastCorr++
	corr := a.lastCorr
	a.queries[corr] = &sideQuery{id: number, body: effects.AppendPart(nil, body),
		timer: time.AfterFunc(a.g.cfg.Limits.SideTimeout, func() {
			a.g.inbox.Push(func(now effects.Time) { a.finishQuery(now, corr, nil, effects.Unreachable) })
		})}
	if err := libnixl.CheckTrusted(to.Host, a.g.cfg.TrustedNetwork); err != nil {
		// The engine's agent could not be reached either.
		a.g.limitedLog.Warn("an engine is not asked, because its host is not trusted", to.Host, "port", to.Port, "err", err)
		a.g.inbox.Push(func(now effects.Time) { a.finishQuery(now, corr, nil, effects.Unreachable) })
		return
	}
	a.transport.Open(&effects.Open{Corr: corr, Channel: effects.ChannelMeta, Addr: to})
}

// Post implements control.Sink.
func (a *sideClient) Post(ev effects.Event) {
	a.g.inbox.Push(func(now effects.Time) {
		switch ev := ev.(type) {
		case *effects.Opened:
			q := a.queries[ev.Corr]
			switch {
			case q == nil:
				if ev.Code == effects.OK {
					a.transport.Close(ev.Conn)
				}
			case ev.Code != effects.OK:
				a.finishQuery(now, ev.Corr, nil, ev.Code)
			default:
				q.conn = ev.Conn
				a.transport.Send(&effects.Send{Corr: ev.Corr, Conn: ev.Conn, Body: q.body})
			}
		case *effects.Replied:
			hello, rest, ok := effects.CutPart(ev.Body)
			clock, rest, hasClock := effects.CutPart(rest)
			// The reference implementation accepts only replies of two parts.
			if c := (protocol.NixlClock{}); !ok || !hasClock || len(rest) > 0 || c.Decode(clock, &a.g.cfg.MessageLimits) != nil {
				a.finishQuery(now, ev.Corr, nil, effects.Malformed)
				return
			}
			a.finishQuery(now, ev.Corr, hello, effects.OK)
		case *effects.Unanswered:
			a.finishQuery(now, ev.Corr, nil, ev.Code)
		default:
		}
	})
}

// finishQuery reports the result of a request to the machine, once.
func (a *sideClient) finishQuery(now effects.Time, corr effects.Corr, body []byte, code effects.Code) {
	q := a.queries[corr]
	if q == nil {
		return
	}
	delete(a.queries, corr)
	a.g.updateStats(func(s *Stats) { s.RequestsSent.countOutcome(code == effects.OK) })
	q.timer.Stop()
	if q.conn != 0 {
		a.transport.Close(q.conn)
	}
	a.g.m.OnQueryReply(now, q.id, body, code, &a.g.out)
}

const (
	// Each rank of an engine opens a connection, and closes that connection after the reply.
	sideConnsMin, sideConnsLimit = 4, 2 * ranksMax
	// The limit of open files that is assumed if the system does not report a limit.
	assumedFiles  = 1024
	filesPerAgent = 15
)

// sideConnLimit returns how many connections each side channel may have, so that all side channels together take a
// quarter of the files that the process may open. Each agent that engines write to has a side channel, and the front
// has a side channel.
func (c *Config) sideConnLimit(log *slog.Logger) int {
	limit, _, err := door.FileLimit()
	if err != nil {
		log.Warn("the limit of open files is not known", "err", err, "assumed", assumedFiles)
		limit = assumedFiles
	}
	return c.sideConnLimitFor(limit, log)
}

// sideConnLimitFor is sideConnLimit for a process that may open limit files.
func (c *Config) sideConnLimitFor(limit int, log *slog.Logger) int {
	sides := 1 + int(c.Limits.EnginesMax)*int(c.Limits.AgentsMax)
	share := limit / 4 / sides
	if agents := 2 * int(c.Limits.EnginesMax) * filesPerAgent; share < sideConnsMin || agents > limit/4 {
		log.Warn("this process may open too few files for the engines that the gateway may have", "files_max", limit,
			"side_channels_max", sides, "files_of_agents_max", agents, "remedy",
			"raise the limit of open files (ulimit -n, LimitNOFILE), or lower gateway.engines and gateway.agents")
	}
	return min(max(share, sideConnsMin), sideConnsLimit)
}

// A sideServer serves the side channel of an agent of this gateway.
type sideServer struct {
	g         *Gateway
	agent     machine.Agent
	metadata  atomic.Pointer[[]byte] // nil: there is no agent now, and nobody is answered
	transport control.Transport
	ready     chan struct{} // closed when transport is set
}

// newSideServer opens a side channel and returns its port; port 0 lets the system choose one.
func (g *Gateway) newSideServer(a machine.Agent, metadata []byte, port uint16) (*sideServer, uint16, error) {
	s := &sideServer{g: g, agent: a, ready: make(chan struct{})}
	s.metadata.Store(&metadata)
	t, err := g.cfg.SideChannels(control.Env{Sink: s, Log: g.log, MaxInbound: g.sideConnsMax, Servers: []control.Server{
		{Channel: effects.ChannelMeta, Addr: effects.Addr{Host: g.cfg.Host, Port: port}},
	}})
	if err != nil {
		return nil, 0, fmt.Errorf("open a side channel: %w", err)
	}
	s.transport = t
	close(s.ready)
	return s, t.Servers()[0].Addr.Port, nil
}

// Post implements control.Sink. The call never blocks for long.
func (s *sideServer) Post(ev effects.Event) {
	r, ok := ev.(*effects.Received)
	if !ok || r.Request == 0 {
		return
	}
	<-s.ready
	metadata := s.metadata.Load()
	if metadata == nil {
		return
	}
	query, rest, _ := effects.CutPart(r.Body)
	reply, ok := s.g.m.AnswerQuery(s.agent, *metadata, query)
	ok = ok && len(rest) == 0
	s.g.updateStats(func(n *Stats) { n.RequestsServed.countOutcome(ok) })
	if !ok {
		s.g.limitedLog.Warn("a side channel received a malformed request", "", "bytes", len(r.Body))
		return
	}
	clock := protocol.NixlClock{Seconds: time.Duration(plane.Now()).Seconds()}
	body := effects.AppendPart(effects.AppendPart(nil, reply), clock.Append(nil))
	s.transport.Reply(&effects.Reply{Request: r.Request, Body: body})
}

func (s *sideServer) shutDown() { _ = s.transport.Shutdown(context.Background()) }
