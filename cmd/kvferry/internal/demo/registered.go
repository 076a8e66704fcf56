package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/effects"
)

// PushReg is the mode in which the pools consist of the engines' own blocks. A decode engine registers the blocks into
// which a request is to be written. The prefill engine writes them when it has finished the request, or at once if the
// request was finished before. Engines have tensor-parallel ranks, and each rank is a separate process.
const PushReg Mode = "push-reg"

const (
	regHeads  = 4   // KV heads of the model
	regLayers = 2   // layers of the model
	regBlocks = 256 // blocks of each layer
	// regTokens is the number of tokens of a block, and regHeadSize the number of elements of a head. A cell has 32 KiB.
	regTokens, regHeadSize = 256, 32
	regLease               = 3 // seconds
	// regWait limits a decode rank's wait for its blocks, because the prefill rank may have been killed.
	regWait = 5 * time.Second
)

// RegisteredOptions describes a replay by engines with registered blocks. Prefills and Decodes are the numbers of
// tensor-parallel ranks of the two engines.
type RegisteredOptions struct {
	Options
	Prefills, Decodes int
}

// Check returns an error if a number of ranks does not divide the KV heads of the demo's model.
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

// cellHeads returns the number of heads of a cell: the number of heads of a rank of the engine that has more ranks.
func (o *RegisteredOptions) cellHeads() int { return regHeads / max(o.Prefills, o.Decodes) }

// registeredText is the format of a rank's configuration.
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

// A registeredEngine holds the ranks of an engine and the free blocks. A request has the same block numbers at each
// rank.
type regEngine struct {
	name  string
	seats []*seat
	peers []agent.Peer
	room  *admission

	mu   sync.Mutex
	free []uint32
}

// takeBlocks waits for n free blocks and removes them from the pool. The caller must call the returned function to
// return the blocks.
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

// currentProcesses returns the processes of all ranks. If a rank is being restarted, it waits until the rank serves.
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

// A registeredPlayer replays one trace with registered blocks.
type registrar struct {
	ground
	options          *RegisteredOptions
	prefill, decodes *regEngine
	tally            *registeredTally
}

// RunRegistered replays the trace with registered blocks and returns the report. It fails as Run does.
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

// startEngine starts the ranks of an engine. If it fails, the returned engine has the ranks that were started.
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

// killAll kills all ranks that were started.
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

// crashLastRank kills the last rank of an engine while requests are in progress, and starts the rank again.
func (g *registrar) kill(ctx context.Context, e *regEngine) {
	at := e.seats[len(e.seats)-1]
	begin := time.Now()
	err := at.crash(ctx, func() {})
	g.tally.crashed(at.program.name, time.Since(begin), err)
}

// playJob plays a request until an attempt succeeds. For one request in four, one of the engines aborts the first
// attempt.
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

// causeAborted is the cause of an attempt that the demo aborted on purpose.
const aborted = "aborted"

// tryJob has a request's blocks written once, and returns the cause of a failure. The calls of the two engines are made
// concurrently, so that either engine may be first.
func (g *registrar) attempt(ctx context.Context, j *job, attempt int) (cause string) {
	from, give := g.prefill.take(len(j.keys))
	defer give()
	first := 0
	if j.index%4 == 1 && len(j.keys) > 1 {
		first = 1 // The decode engine already has the first block.
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
			if took[i].Code != effects.OK.String() { // As an engine does that will compute the request itself.
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
					for i, p := range decodes { // The rank's next incarnation does not know the request, so decode ranks would wait.
						working.Go(func() { takeBack(p, id+"-0000000d", over[i]) })
					}
				}
			})
		}
	}
	working.Wait()
	return g.judge(wrote, took, byPrefill, byDecode)
}

// cancelRegistration makes a decode rank cancel its registration of a request. It repeats the call until the rank knows
// the registration, or the registration has ended.
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

// producersOf returns the prefill ranks that have a part of the heads of a decode rank.
func (g *registrar) near(rank int) []agent.Peer {
	p, d := len(g.prefill.seats), len(g.decodes.seats)
	if p >= d {
		return g.prefill.peers[rank*p/d : (rank+1)*p/d]
	}
	at := rank * p / d
	return g.prefill.peers[at : at+1]
}

// attemptCause returns the cause with which an attempt failed, or "" if the attempt succeeded, and counts the received
// bytes. The cause is causeAborted if an engine aborted the attempt as the demo requested.
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
		return cause // A rank was killed.
	}
	for _, r := range wrote {
		if r.Code != effects.OK.String() && cause == "" {
			cause = "finish: " + r.Code
		}
	}
	return cause
}
