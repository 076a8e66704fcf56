package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/effects"
)

// PushReg is the mode in which the pools are the engines' own blocks: a decode registers those that it wants written,
// and a prefill writes them when it has finished a request, or at once if it has. Engines have tensor-parallel ranks,
// each a process of its own.
const PushReg Mode = "push-reg"

const (
	regHeads  = 4   // of the model
	regLayers = 2   // of the model
	regBlocks = 256 // of each layer
	// regTokens are those of a block, and regHeadSize the elements of a head: a cell has 32 KiB.
	regTokens, regHeadSize = 256, 32
	regLease               = 3 // seconds
	// regWait bounds a decode's wait for its blocks, of a prefill that may be dead.
	regWait = 5 * time.Second
)

// RegisteredOptions say what is replayed by engines whose blocks are registered, and by how many ranks each has.
type RegisteredOptions struct {
	Options
	Prefills, Decodes int
}

// Check says which ranks no engine of the demo has.
func (o *RegisteredOptions) Check() error {
	for _, x := range []struct {
		flag  string
		ranks int
	}{{"--prefill-tp", o.Prefills}, {"--decode-tp", o.Decodes}} {
		if x.ranks < 1 || x.ranks > regHeads || regHeads%x.ranks != 0 {
			return fmt.Errorf("%s is %d; use 1, 2 or 4: the demo's model has %d KV heads", x.flag, x.ranks, regHeads)
		}
	}
	return nil
}

// cellHeads are those of a page: of a rank of the engine with more ranks.
func (o *RegisteredOptions) cellHeads() int { return regHeads / max(o.Prefills, o.Decodes) }

// registeredText is the configuration of one rank.
const registeredText = `enable_pd: true
pd_role: both
pd_peer_host: %[1]s
pd_peer_init_port: %[2]d
pd_peer_alloc_port: %[3]d
pd_buffer_device: cpu
transfer_channel: %[4]s
chunk_size: %[5]d
extra_config:
  kvferry:
    layout: {num_layers: %[6]d, num_kv_heads: %[7]d, head_size: %[8]d, dtype: bfloat16}
    register: {engine_id: %[9]s, tp_size: %[10]d, tp_rank: %[11]d, kv_heads: %[12]d, cell_heads: %[13]d,
      blocks: %[14]d, kv_lease_duration: %[15]d}
    link: {backoff_max: 0.5}
    log: {level: error}
`

// A regEngine is the ranks of an engine, and its free blocks: a request has the same ones at each rank.
type regEngine struct {
	name  string
	seats []*seat
	peers []agent.Peer
	room  *admission

	mu   sync.Mutex
	free []uint32
}

// take takes blocks out of the pool until give.
func (e *regEngine) take(n int) (blocks []uint32, give func()) {
	e.room.enter(n)
	e.mu.Lock()
	defer e.mu.Unlock()
	at := len(e.free) - n
	blocks = append(blocks, e.free[at:]...)
	e.free = e.free[:at]
	return blocks, func() {
		e.mu.Lock()
		e.free = append(append([]uint32(nil), blocks...), e.free...)
		e.mu.Unlock()
		e.room.leave(n)
	}
}

// now are the engine's processes, when each runs.
func (e *regEngine) now(ctx context.Context) (all []*process, err error) {
	for _, at := range e.seats {
		p, err := at.current(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// A registrar replays one trace.
type registrar struct {
	ground
	options          *RegisteredOptions
	prefill, decodes *regEngine
	tally            *registeredTally
}

// RunRegistered replays the trace and reports, as Run does.
func RunRegistered(ctx context.Context, o RegisteredOptions) (*RegisteredReport, error) {
	o.Concurrency = max(o.Concurrency, 1)
	on, err := newGround(o.Log)
	if err != nil {
		return nil, err
	}
	g := &registrar{ground: on, options: &o, tally: newRegisteredTally()}
	defer g.leaveNothing()
	if g.prefill, err = g.start(ctx, "prefill", o.Prefills); err == nil {
		g.decodes, err = g.start(ctx, "decode", o.Decodes)
	}
	if err != nil {
		g.abort()
		return nil, err
	}
	jobs := jobsOf(o.Requests, regTokens)
	for i := range jobs {
		if j := &jobs[i]; len(j.keys) > regBlocks/4 {
			j.keys = j.keys[:regBlocks/4]
			g.tally.r.Cut++
		}
	}
	var strikes []func(context.Context)
	if o.Crash {
		strikes = append(strikes, func(ctx context.Context) { g.kill(ctx, g.decodes) },
			func(ctx context.Context) { g.kill(ctx, g.prefill) })
	}
	begin := time.Now()
	o.replay(ctx, jobs, g.playJob, strikes)
	took := time.Since(begin)
	if err := ctx.Err(); err != nil {
		g.abort()
		return nil, err
	}
	var nodes []*process
	for _, e := range []*regEngine{g.decodes, g.prefill} {
		for _, at := range e.seats {
			nodes = append(nodes, at.now())
		}
	}
	pinned := settle(ctx, nodes, func(p *process) *agent.Stats { return p.call(agent.Request{Op: "stats"}).Stats })
	unclean := []string{}
	for _, p := range nodes {
		if err := p.stop(); err != nil {
			unclean = append(unclean, err.Error())
		}
	}
	return g.report(took, pinned, unclean), nil
}

// start starts the ranks of an engine.
func (g *registrar) start(ctx context.Context, name string, ranks int) (*regEngine, error) {
	e := &regEngine{name: name, room: newAdmission(regBlocks)}
	for i := range regBlocks {
		e.free = append(e.free, uint32(i))
	}
	for rank := range ranks {
		ports, err := g.reserve(2)
		if err != nil {
			return e, err
		}
		at, p := &seat{}, program{name: fmt.Sprintf("%s-%d", name, rank), args: []string{"node", "--commands"}}
		e.seats = append(e.seats, at)
		e.peers = append(e.peers, agent.Peer{Host: host, InitPort: ports[0], AllocPort: ports[1]})
		if err := g.settleIn(ctx, at, p, fmt.Sprintf(registeredText, host, ports[0], ports[1], g.options.Plane, regTokens,
			regLayers, regHeads/ranks, regHeadSize, name, ranks, rank, regHeads, g.options.cellHeads(), regBlocks,
			regLease)); err != nil {
			return e, err
		}
	}
	return e, nil
}

// abort ends whatever runs.
func (g *registrar) abort() {
	for _, e := range []*regEngine{g.prefill, g.decodes} {
		if e == nil {
			continue
		}
		for _, at := range e.seats {
			if p := at.now(); p != nil {
				p.kill()
			}
		}
	}
}

// kill ends the last rank of an engine while requests are under way, and starts it again.
func (g *registrar) kill(ctx context.Context, e *regEngine) {
	at := e.seats[len(e.seats)-1]
	begin := time.Now()
	err := at.crash(ctx, func() {})
	g.tally.crashed(at.program.name, time.Since(begin), err)
}

// playJob tries a request until it succeeds. Of every fourth one the first attempt is aborted by either engine.
func (g *registrar) playJob(ctx context.Context, j *job) {
	begin, ok := time.Now(), len(j.keys) == 0
	for attempt := 1; attempt <= attemptsMax && !ok && ctx.Err() == nil; attempt++ {
		cause := g.attempt(ctx, j, attempt)
		switch cause {
		case "":
			ok = true
		case aborted:
		default:
			g.tally.fail(cause)
			pause(ctx, time.Duration(attempt)*retryPause)
		}
	}
	g.tally.request.record(time.Since(begin))
	done, lost := g.tally.ended(ok)
	if g.options.Progress != nil {
		g.options.Progress(done, lost)
	}
}

// aborted is the cause of what was meant to fail.
const aborted = "aborted"

// attempt has a request's blocks written once, and returns the cause of a failure. The engines' calls are made side by
// side, so that either may come first.
func (g *registrar) attempt(ctx context.Context, j *job, attempt int) (cause string) {
	from, give := g.prefill.take(len(j.keys))
	defer give()
	first := 0
	if j.index%4 == 1 && len(j.keys) > 1 {
		first = 1 // The decode has a prefix.
	}
	into, give := g.decodes.take(len(j.keys) - first)
	defer give()
	prefills, err := g.prefill.now(ctx)
	if err != nil {
		return "interrupted"
	}
	decodes, err := g.decodes.now(ctx)
	if err != nil {
		return "interrupted"
	}
	id, transfer := fmt.Sprintf("%s-%d", j.id, attempt), ""
	if j.index%2 == 1 {
		transfer = "transfer-" + id
	}
	finish := agent.Request{Op: "finish", Request: id + "-0000000f", Keys: j.keys,
		Registered: &agent.Registered{Blocks: from, Transfer: transfer}}
	var working sync.WaitGroup
	wrote, took := make([]agent.Response, len(prefills)), make([]agent.Response, len(decodes))
	byDecode, byPrefill := attempt == 1 && j.index%8 == 3, attempt == 1 && j.index%8 == 6
	over := make([]chan struct{}, len(decodes))
	for i, p := range decodes {
		over[i] = make(chan struct{})
		working.Go(func() {
			took[i] = p.call(agent.Request{Op: "register", Request: id + "-0000000d", Keys: j.keys[first:],
				WaitMS: int(regWait.Milliseconds()), Registered: &agent.Registered{Blocks: into, First: first,
					Transfer: transfer, Producers: g.near(i), Ranks: len(prefills)}})
			close(over[i])
			if took[i].Code != effects.OK.String() { // As an engine that computes it by itself then.
				for _, p := range prefills {
					p.call(agent.Request{Op: "abort", Request: finish.Request, Registered: finish.Registered})
				}
			}
		})
	}
	switch {
	case byPrefill:
		for _, p := range prefills {
			p.call(agent.Request{Op: "abort", Request: finish.Request, Registered: finish.Registered})
		}
	case byDecode:
		for i, p := range decodes {
			working.Go(func() { takeBack(p, id+"-0000000d", over[i]) })
		}
	default:
		for i, p := range prefills {
			working.Go(func() {
				if wrote[i] = p.call(finish); wrote[i].Code == effects.PeerLost.String() {
					for i, p := range decodes { // The rank's next life knows nothing of it, and would keep who asks.
						working.Go(func() { takeBack(p, id+"-0000000d", over[i]) })
					}
				}
			})
		}
	}
	working.Wait()
	return g.judge(wrote, took, byPrefill, byDecode)
}

// takeBack has a decode rank take its registration back, once it has begun.
func takeBack(p *process, request string, over <-chan struct{}) {
	for {
		if p.call(agent.Request{Op: "cancel", Request: request}).Code != effects.NotFound.String() {
			return
		}
		select {
		case <-over:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// near are the prefill's ranks that have a part of what a decode's rank has.
func (g *registrar) near(rank int) []agent.Peer {
	p, d := len(g.prefill.seats), len(g.decodes.seats)
	if p >= d {
		return g.prefill.peers[rank*p/d : (rank+1)*p/d]
	}
	at := rank * p / d
	return g.prefill.peers[at : at+1]
}

// judge says what became of an attempt.
func (g *registrar) judge(wrote, took []agent.Response, byPrefill, byDecode bool) (cause string) {
	for _, r := range took {
		g.tally.received(&r)
		switch {
		case r.Wrong > 0:
			return "register: wrong bytes"
		case r.Code != effects.OK.String() && cause == "":
			cause = "register: " + r.Code
		}
	}
	if cause == "register: "+effects.Cancelled.String() && (byPrefill || byDecode) {
		g.tally.aborted(byPrefill)
		return aborted
	}
	if byPrefill || byDecode {
		return cause // It was killed.
	}
	for _, r := range wrote {
		if r.Code != effects.OK.String() && cause == "" {
			cause = "finish: " + r.Code
		}
	}
	return cause
}
