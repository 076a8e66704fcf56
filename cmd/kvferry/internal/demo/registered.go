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
	// regTokens is the number of tokens of a block, and regHeadSize the number of elements of a head. A cell has 32
	// KiB.
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
type registeredEngine struct {
	name      string
	slots     []*slot
	peers     []agent.Peer
	admission *admission

	mu         sync.Mutex
	freeBlocks []uint32
}

// takeBlocks waits for n free blocks and removes them from the pool. The caller must call the returned function to
// return the blocks.
func (e *registeredEngine) takeBlocks(n int) (blocks []uint32, returnBlocks func()) {
	e.admission.acquireChunks(n)
	e.mu.Lock()
	defer e.mu.Unlock()
	at := len(e.freeBlocks) - n
	blocks = append(blocks, e.freeBlocks[at:]...)
	e.freeBlocks = e.freeBlocks[:at]
	return blocks, func() {
		e.mu.Lock()
		e.freeBlocks = append(append([]uint32(nil), blocks...), e.freeBlocks...)
		e.mu.Unlock()
		e.admission.releaseChunks(n)
	}
}

// currentProcesses returns the processes of all ranks. If a rank is being restarted, it waits until the rank serves.
func (e *registeredEngine) currentProcesses(ctx context.Context) (all []*process, err error) {
	for _, at := range e.slots {
		p, err := at.awaitProcess(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// A registeredPlayer replays one trace with registered blocks.
type registeredPlayer struct {
	workspace
	options          *RegisteredOptions
	prefill, decodes *registeredEngine
	tally            *registeredTally
}

// RunRegistered replays the trace with registered blocks and returns the report. It fails as Run does.
func RunRegistered(ctx context.Context, o RegisteredOptions) (*RegisteredReport, error) {
	o.Concurrency = max(o.Concurrency, 1)
	ws, err := newWorkspace(&o.Options)
	if err != nil {
		return nil, err
	}
	g := &registeredPlayer{workspace: ws, options: &o, tally: newRegisteredTally()}
	defer g.cleanUp()
	if g.prefill, err = g.startEngine(ctx, "prefill", o.Prefills); err == nil {
		g.decodes, err = g.startEngine(ctx, "decode", o.Decodes)
	}
	if err != nil {
		g.killAll()
		return nil, err
	}
	jobs := newJobs(o.Requests, regTokens)
	for i := range jobs {
		if j := &jobs[i]; len(j.keys) > regBlocks/4 {
			j.keys = j.keys[:regBlocks/4]
			g.tally.r.Cut++
		}
	}
	var strikes []func(context.Context)
	if o.Crash {
		strikes = append(strikes, func(ctx context.Context) { g.crashLastRank(ctx, g.decodes) },
			func(ctx context.Context) { g.crashLastRank(ctx, g.prefill) })
	}
	begin := time.Now()
	o.replayJobs(ctx, jobs, g.playJob, strikes)
	took := time.Since(begin)
	if err := ctx.Err(); err != nil {
		g.killAll()
		return nil, err
	}
	var nodes []*process
	for _, e := range []*registeredEngine{g.decodes, g.prefill} {
		for _, at := range e.slots {
			nodes = append(nodes, at.currentProcess())
		}
	}
	pinned := awaitIdle(ctx, nodes, func(p *process) *agent.Stats { return p.callAgent(agent.Request{Op: "stats"}).Stats })
	unclean := []string{}
	for _, p := range nodes {
		if err := p.stopAndWait(); err != nil {
			unclean = append(unclean, err.Error())
		}
	}
	report := g.finishReport(took, pinned, unclean)
	g.report(&report.Outcome)
	return report, nil
}

// startEngine starts the ranks of an engine. If it fails, the returned engine has the ranks that were started.
func (g *registeredPlayer) startEngine(ctx context.Context, name string, ranks int) (*registeredEngine, error) {
	e := &registeredEngine{name: name, admission: newAdmission(regBlocks)}
	for i := range regBlocks {
		e.freeBlocks = append(e.freeBlocks, uint32(i))
	}
	for rank := range ranks {
		ports, err := g.reservePorts(2)
		if err != nil {
			return e, err
		}
		at, p := &slot{}, program{name: fmt.Sprintf("%s-%d", name, rank), args: []string{"node", "--commands"}}
		e.slots = append(e.slots, at)
		e.peers = append(e.peers, agent.Peer{Host: host, InitPort: ports[0], AllocPort: ports[1]})
		if err := g.startSlot(ctx, at, p, "both", fmt.Sprintf(registeredText, host, ports[0], ports[1], g.options.Plane, regTokens,
			regLayers, regHeads/ranks, regHeadSize, name, ranks, rank, regHeads, g.options.cellHeads(), regBlocks,
			regLease)); err != nil {
			return e, err
		}
	}
	return e, nil
}

// killAll kills all ranks that were started.
func (g *registeredPlayer) killAll() {
	for _, e := range []*registeredEngine{g.prefill, g.decodes} {
		if e == nil {
			continue
		}
		for _, at := range e.slots {
			if p := at.currentProcess(); p != nil {
				p.killAndWait()
			}
		}
	}
}

// crashLastRank kills the last rank of an engine while requests are in progress, and starts the rank again.
func (g *registeredPlayer) crashLastRank(ctx context.Context, e *registeredEngine) {
	at := e.slots[len(e.slots)-1]
	begin := time.Now()
	err := at.restart(ctx, func() {})
	g.tally.addCrash(at.program.name, time.Since(begin), err)
}

// playJob plays a request until an attempt succeeds. For one request in four, one of the engines aborts the first
// attempt.
func (g *registeredPlayer) playJob(ctx context.Context, j *job) {
	begin, ok := time.Now(), len(j.keys) == 0
	for attempt := 1; attempt <= attemptsMax && !ok && ctx.Err() == nil; attempt++ {
		cause := g.tryJob(ctx, j, attempt)
		switch cause {
		case "":
			ok = true
		case causeAborted:
		default:
			g.tally.addFailure(cause)
			sleepContext(ctx, time.Duration(attempt)*retryPause)
		}
	}
	g.tally.request.record(time.Since(begin))
	done, lost := g.tally.endRequest(ok)
	if g.options.Progress != nil {
		g.options.Progress(done, lost)
	}
}

// causeAborted is the cause of an attempt that the demo aborted on purpose.
const causeAborted = "aborted"

// tryJob has a request's blocks written once, and returns the cause of a failure. The calls of the two engines are made
// concurrently, so that either engine may be first.
func (g *registeredPlayer) tryJob(ctx context.Context, j *job, attempt int) (cause string) {
	prefillBlocks, returnBlocks := g.prefill.takeBlocks(len(j.keys))
	defer returnBlocks()
	first := 0
	if j.index%4 == 1 && len(j.keys) > 1 {
		first = 1 // The decode engine already has the first block.
	}
	decodeBlocks, returnBlocks := g.decodes.takeBlocks(len(j.keys) - first)
	defer returnBlocks()
	prefills, err := g.prefill.currentProcesses(ctx)
	if err != nil {
		return "interrupted"
	}
	decodes, err := g.decodes.currentProcesses(ctx)
	if err != nil {
		return "interrupted"
	}
	id, transfer := fmt.Sprintf("%s-%d", j.id, attempt), ""
	if j.index%2 == 1 {
		transfer = "transfer-" + id
	}
	finish := agent.Request{Op: "finish", Request: id + "-0000000f", Keys: j.keys,
		Registered: &agent.Registered{Blocks: prefillBlocks, Transfer: transfer}}
	var calls sync.WaitGroup
	finishResps, registerResps := make([]agent.Response, len(prefills)), make([]agent.Response, len(decodes))
	abortByDecode, abortByPrefill := attempt == 1 && j.index%8 == 3, attempt == 1 && j.index%8 == 6
	registrationsEnded := make([]chan struct{}, len(decodes))
	for i, p := range decodes {
		registrationsEnded[i] = make(chan struct{})
		calls.Go(func() {
			registerResps[i] = p.callAgent(agent.Request{Op: "register", Request: id + "-0000000d", Keys: j.keys[first:],
				WaitMS: int(regWait.Milliseconds()), Registered: &agent.Registered{Blocks: decodeBlocks, First: first,
					Transfer: transfer, Producers: g.producersOf(i), Ranks: len(prefills)}})
			close(registrationsEnded[i])
			if registerResps[i].Code != effects.OK.String() { // As an engine does that will compute the request itself.
				for _, p := range prefills {
					p.callAgent(agent.Request{Op: "abort", Request: finish.Request, Registered: finish.Registered})
				}
			}
		})
	}
	switch {
	case abortByPrefill:
		for _, p := range prefills {
			p.callAgent(agent.Request{Op: "abort", Request: finish.Request, Registered: finish.Registered})
		}
	case abortByDecode:
		for i, p := range decodes {
			calls.Go(func() { cancelRegistration(p, id+"-0000000d", registrationsEnded[i]) })
		}
	default:
		for i, p := range prefills {
			calls.Go(func() {
				if finishResps[i] = p.callAgent(finish); finishResps[i].Code == effects.PeerLost.String() {
					for i, p := range decodes { // The rank's next incarnation does not know the request, so decode ranks would wait.
						calls.Go(func() { cancelRegistration(p, id+"-0000000d", registrationsEnded[i]) })
					}
				}
			})
		}
	}
	calls.Wait()
	return g.attemptCause(finishResps, registerResps, abortByPrefill, abortByDecode)
}

// cancelRegistration makes a decode rank cancel its registration of a request. It repeats the call until the rank knows
// the registration, or the registration has ended.
func cancelRegistration(p *process, request string, registrationEnded <-chan struct{}) {
	for {
		if p.callAgent(agent.Request{Op: "cancel", Request: request}).Code != effects.NotFound.String() {
			return
		}
		select {
		case <-registrationEnded:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// producersOf returns the prefill ranks that have a part of the heads of a decode rank.
func (g *registeredPlayer) producersOf(rank int) []agent.Peer {
	p, d := len(g.prefill.slots), len(g.decodes.slots)
	if p >= d {
		return g.prefill.peers[rank*p/d : (rank+1)*p/d]
	}
	at := rank * p / d
	return g.prefill.peers[at : at+1]
}

// attemptCause returns the cause with which an attempt failed, or "" if the attempt succeeded, and counts the received
// bytes. The cause is causeAborted if an engine aborted the attempt as the demo requested.
func (g *registeredPlayer) attemptCause(finishResps, registerResps []agent.Response, abortByPrefill, abortByDecode bool) (cause string) {
	for _, r := range registerResps {
		g.tally.addReceived(&r)
		switch {
		case r.Wrong > 0:
			return "register: wrong bytes"
		case r.Code != effects.OK.String() && cause == "":
			cause = "register: " + r.Code
		}
	}
	if cause == "register: "+effects.Cancelled.String() && (abortByPrefill || abortByDecode) {
		g.tally.addAborted(abortByPrefill)
		return causeAborted
	}
	if abortByPrefill || abortByDecode {
		return cause // A rank was killed.
	}
	for _, r := range finishResps {
		if r.Code != effects.OK.String() && cause == "" {
			cause = "finish: " + r.Code
		}
	}
	return cause
}
