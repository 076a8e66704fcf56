//go:build cgo && linux

package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
)

// A Gateway belongs to a node, which closes the Gateway.
type Gateway struct {
	cfg   Config
	inbox epochs.Inbox

	env        plane.Env
	log        *slog.Logger
	limitedLog *loglimit.Log // for lines that peers can cause
	done       chan struct{} // closed when the machine's goroutine has ended
	quit       chan struct{}
	closeOnce  sync.Once
	wg         sync.WaitGroup // agents and side channels
	decoy      *decoy
	host       nixlproc.Host // of all agents
	// sideConnsMax bounds the connections of each side channel.
	sideConnsMax int

	closeErr error // reason why the memory must stay mapped; read once done is closed

	mu    sync.Mutex
	stats Stats

	// All fields below belong to the machine's goroutine.
	m              *machine.Gateway
	out            machine.Effects
	agents         map[machine.Agent]*ownAgent
	sideClient     *sideClient
	links          map[effects.Link]*link
	jobs           map[effects.Corr]*writeJob
	expulsions     map[uint64]func()
	expulsionCount uint64
	closing        bool // the node is closing
}

// ProducerAddr returns the address of a rank of a plain vLLM producer, as a registration names this rank. host and port
// belong to the engine's side channel (remote_host, remote_port).
func ProducerAddr(host string, port uint16, stage, stages, rank, ranks uint32) register.Peer {
	at := machine.PlainRank{Host: host, Port: port, Stage: stage, Stages: stages, Rank: rank, Ranks: ranks}.Addr()
	return register.Peer{Host: at.Host, InitPort: at.Port, Port: at.Port}
}

// New checks a configuration. Nothing is opened before Gateway.Open.
func New(c Config) (*Gateway, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Gateway{
		cfg: c, inbox: epochs.NewInbox(), done: make(chan struct{}), quit: make(chan struct{}),
		agents: map[machine.Agent]*ownAgent{}, links: map[effects.Link]*link{}, jobs: map[effects.Corr]*writeJob{},
		expulsions: map[uint64]func(){},
	}, nil
}

// Name returns the name of the data plane.
func (g *Gateway) Name() string { return Name }

// Open is a plane.Opener: a method that makes the agent that receives registrations (the front) and starts to serve
// engines.
func (g *Gateway) Open(ctx context.Context, env plane.Env) (plane.Plane, error) {
	var err error
	if g.env, err = env.CompleteLeased(); err != nil {
		return nil, err
	}
	g.log = g.env.Log.With("plane", Name)
	g.limitedLog = loglimit.New(g.log)
	g.sideConnsMax = g.cfg.sideConnLimit(g.log)
	if g.decoy, err = newDecoy(g.env.Leased.FirstRegion().Bytes); err != nil {
		return nil, err
	}
	memory := []nixlproc.Region{g.decoy.region()}
	for _, r := range g.env.Leased.Regions() {
		memory = append(memory, nixlproc.Region{Address: uint64(r.Base), Bytes: r.Bytes, File: r.File})
	}
	if g.host, err = g.cfg.Agents(ctx, nixlproc.HostConfig{Memory: memory, Log: g.log}); err != nil {
		return nil, errors.Join(err, g.decoy.unmapSpace())
	}
	if err := g.openMachine(); err != nil {
		// The decoy's address space stays reserved, because an agent that could not be destroyed may still reach that
		// range.
		return nil, errors.Join(err, g.host.Close())
	}
	g.env.Leased.AddExpeller(g)
	go g.runLoop()
	return g, nil
}

func (g *Gateway) openMachine() error {
	cfg, err := g.cfg.machineConfig(&g.env, g.host, g.decoy.baseAddress())
	if err != nil {
		return err
	}
	g.m = machine.New(cfg)
	if g.sideClient, err = g.newSideClient(); err != nil {
		return err
	}
	if _, err := g.makeAgent(machine.Front, g.frontRegions(), g.cfg.Port); err != nil {
		return errors.Join(fmt.Errorf("the agent that engines send registrations to: %w", err),
			g.sideClient.transport.Shutdown(context.Background()))
	}
	return nil
}

// frontRegions returns the memory of the front's agent.
func (g *Gateway) frontRegions() []plane.Region {
	return []plane.Region{{Host: true, Base: uintptr(g.decoy.baseAddress()), Bytes: g.decoy.sizeBytes()}}
}

// runLoop is the machine's goroutine.
func (g *Gateway) runLoop() {
	defer close(g.done)
	for {
		select {
		case <-g.inbox.Wake():
		case <-g.quit:
			g.closeAll()
			return
		}
		g.runInbox()
	}
}

// runInbox calls the functions that further goroutines have put into the inbox.
func (g *Gateway) runInbox() {
	for _, f := range g.inbox.TakeAll() {
		f(plane.Now())
		g.carryOut()
	}
}

// carryOut carries out the machine's effects. No effect blocks.
func (g *Gateway) carryOut() {
	out := g.out
	g.out = machine.Effects{}
	for _, n := range out.Reports {
		g.limitedLog.Warn(n.Text, n.Why.Name, "peer", n.Why.Name, "addr", n.Why.Addr, "field", n.Why.Field, "ours", n.Why.Ours,
			"theirs", n.Why.Theirs, "said", n.Why.Said, "remedy", n.Why.Remedy)
	}
	for _, a := range out.MakeAgents {
		g.startAgent(a, []plane.Region{g.env.Leased.FirstRegion()}, true)
	}
	for _, a := range out.MakeWriters {
		g.startAgent(a, g.env.Leased.Regions(), false)
	}
	for _, l := range out.Loads {
		g.loadMetadata(l)
	}
	for _, s := range out.Notifications {
		g.sendNote(s)
	}
	for _, q := range out.Queries {
		g.sideClient.sendQuery(q.QueryID, q.Addr, q.Body)
	}
	for _, a := range out.DestroyAgents {
		g.destroyAgent(a)
	}
	for _, n := range out.DoneExpulsions {
		gone := g.expulsions[n]
		delete(g.expulsions, n)
		gone()
	}
	g.updateStats(func(s *Stats) {
		s.Producers, s.Consumers = g.m.CountEngines()
		s.Agents = len(g.agents)
	})
	for _, ev := range out.Events {
		g.env.Sink.Post(ev)
	}
}

// Expel implements plane.Expeller. The machine destroys every agent by which peer may write; then gone is called (M4).
func (g *Gateway) Expel(peer effects.Incarnation, gone func()) {
	g.inbox.Push(func(now effects.Time) {
		g.expulsionCount++
		g.updateStats(func(s *Stats) { s.Expelled = g.expulsionCount })
		g.expulsions[g.expulsionCount] = gone
		g.m.Expel(now, peer, g.expulsionCount, &g.out)
	})
}

// Blob implements plane.Plane. No peer of kvferry's own connects to this plane.
func (g *Gateway) Blob() []byte { return nil }

// Confirm implements plane.Plane. On leased planes no landing needs to be confirmed.
func (g *Gateway) Confirm(effects.Landing, effects.Code) {}

// Close implements plane.Plane. After an error the memory must stay mapped, because an engine may still write (M4).
func (g *Gateway) Close(ctx context.Context) error {
	g.closeOnce.Do(func() { close(g.quit) })
	if g.m == nil { // never opened
		return nil
	}
	select {
	case <-g.done:
		return g.closeErr
	case <-ctx.Done():
		return fmt.Errorf("plane %s is still closing: %w", Name, ctx.Err())
	}
}

// closeAll ends all agents and side channels. Until the agents are gone, their goroutines may still post to the inbox.
func (g *Gateway) closeAll() {
	g.runInbox()
	g.closing = true
	g.m.CancelHellos(&g.out)
	g.carryOut()
	for _, e := range g.agents {
		g.requestClose(e)
	}
	agentsDone := make(chan struct{})
	go func() {
		g.wg.Wait()
		close(agentsDone)
	}()
	for {
		select {
		case <-g.inbox.Wake():
			g.runInbox()
			continue
		case <-agentsDone:
		}
		break
	}
	g.runInbox()
	_ = g.sideClient.transport.Shutdown(context.Background())
	for n, agentsDone := range g.expulsions {
		if g.closeErr == nil {
			agentsDone()
		}
		delete(g.expulsions, n)
	}
	if g.closeErr == nil {
		g.closeErr = errors.Join(g.host.Close(), g.decoy.unmapSpace())
	}
	g.limitedLog.FlushSkipped()
	g.log.Info("the gateway is closed", "counts", g.Stats())
}

var (
	_ plane.Plane    = (*Gateway)(nil)
	_ plane.Expeller = (*Gateway)(nil)
)
