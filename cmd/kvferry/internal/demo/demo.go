// Package demo replays a request trace through real processes: one proxy, one prefill and two decodes,
// each this program itself, with real sockets and a real data plane. It makes KV bytes that follow from
// their keys, has every one verified where it arrived, and kills a decode and then the prefill on the way.
package demo

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/cmd/kvferry/internal/trace"
	"github.com/kvferry/kvferry/effects"
)

// Options say what is replayed, and how.
type Options struct {
	Trace       string // its name, for the report
	Requests    []trace.Request
	Mode        Mode
	Plane       string  // transfer_channel: auto, shm or tcp, and hccl with an NPU
	NPU         *NPU    // where pages lie; nil: memory of the processes
	Speed       float64 // of the trace's clock; 0 replays without pauses
	Concurrency int     // requests in progress; at least 1
	Crash       bool    // kill one process of each side
	Log         io.Writer
	Progress    func(done, failed int) // called for each request that ended; may be nil

	shape shape
}

const (
	batchChunks = 64
	attemptsMax = 6
	// retryPause grows with each attempt: the peer may be backed off, or starting.
	retryPause = 100 * time.Millisecond
	// getWait bounds the wait for chunks that the proxy was told are there.
	getWait = 5 * time.Second
	// proxyMax bounds the wait for the proxy to be told: a put's timeout and a little more.
	proxyMax = 20 * time.Second
	// settleMax bounds how long nodes may need to have nothing in progress after the last request.
	settleMax = 20 * time.Second
)

// A player replays one trace.
type player struct {
	options *Options
	cluster *cluster
	tally   *tally

	done atomic.Int64
}

// Run replays the trace and reports. The error says why it could not be played; what went wrong while it
// played is in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.shape = shapeFor(availableBytes())
	o.Concurrency = max(o.Concurrency, 1)
	c, err := startCluster(ctx, &o)
	if err != nil {
		return nil, err
	}
	p := &player{options: &o, cluster: c, tally: newTally()}
	begin := time.Now()
	p.play(ctx, jobsOf(o.Requests, o.shape.chunkTokens))
	took := time.Since(begin)
	if ctx.Err() != nil {
		c.abort()
		return nil, ctx.Err()
	}
	pinned := p.settle(ctx)
	unclean := c.stop()
	defer c.leaveNothing()
	return p.report(took, pinned, unclean, c.npuReport(&o, p.tally)), nil
}

func (p *player) play(ctx context.Context, jobs []job) {
	queue := make(chan *job)
	var workers, crashes sync.WaitGroup
	first := make(chan struct{}) // closed when the first crash is over: one at a time
	for range p.options.Concurrency {
		workers.Go(func() {
			for j := range queue {
				p.playJob(ctx, j)
			}
		})
	}
	begin := time.Now()
	_, most := p.options.Mode.rooms(p.options.shape)
	for i := range jobs {
		j := &jobs[i]
		if len(j.keys) > most {
			j.keys, j.lastTokens = j.keys[:most], 0
			p.tally.cut.Add(1)
		}
		if p.options.Speed > 0 && !pause(ctx, time.Until(begin.Add(time.Duration(float64(j.arrival)/p.options.Speed)))) {
			break
		}
		select {
		case queue <- j:
		case <-ctx.Done():
		}
		if p.options.Crash && i == len(jobs)/3 {
			crashes.Go(func() {
				defer close(first)
				p.crash(ctx, &p.cluster.decodes[victim].seat)
			})
		}
		if p.options.Crash && i == 2*len(jobs)/3 {
			crashes.Go(func() {
				<-first
				p.crash(ctx, &p.cluster.prefill)
			})
		}
	}
	close(queue)
	workers.Wait()
	crashes.Wait()
}

// pause waits, and reports whether it was not cut short.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// victim is the decode process that is killed.
const victim = decoders - 1

func (p *player) crash(ctx context.Context, at *seat) {
	p.look(at.now())
	name, begin := at.now().name, time.Now()
	err := at.crash(ctx)
	p.tally.crashed(name, time.Since(begin), err)
}

// playJob tries a request until it succeeds, as a serving system would: what failed is computed and
// pushed again.
func (p *player) playJob(ctx context.Context, j *job) {
	ok := false
	for attempt := 1; attempt <= attemptsMax && !ok && ctx.Err() == nil; attempt++ {
		begin := time.Now()
		cause := p.attempt(ctx, j, attempt)
		if ok = cause == ""; ok {
			p.tally.request.record(time.Since(begin))
		} else {
			p.tally.fail(cause)
			pause(ctx, time.Duration(attempt)*retryPause)
		}
	}
	if ok {
		p.tally.completed.Add(1)
	} else {
		p.tally.lost.Add(1)
	}
	if done := p.done.Add(1); p.options.Progress != nil {
		p.options.Progress(int(done), int(p.tally.lost.Load()))
	}
}

// attempt hands a request's chunks to one decode process, waits for the proxy, and fetches them. It
// returns the cause of a failure: the step and the code.
func (p *player) attempt(ctx context.Context, j *job, attempt int) (cause string) {
	d := &p.cluster.decodes[j.index%decoders]
	if _, err := d.current(ctx); err != nil {
		return "interrupted"
	}
	d.room.enter(len(j.keys))
	defer d.room.leave(len(j.keys))
	decode, err := d.current(ctx)
	if err != nil {
		return "interrupted"
	}
	request := fmt.Sprintf("%s/%d", j.id, attempt)
	told := p.cluster.expect(request)
	defer p.cluster.forget(request)
	defer func() {
		if cause == "" {
			return
		}
		// Part of the request may have reached the process that came after a crash.
		if now, err := d.current(ctx); err == nil {
			now.call(agent.Request{Op: "abandon", Request: request})
		}
	}()
	if cause := p.put(ctx, j, d.peer, request); cause != "" {
		return cause
	}
	limit := time.NewTimer(proxyMax)
	defer limit.Stop()
	select {
	case <-told:
	case <-limit.C:
		return "proxy: not told"
	case <-ctx.Done():
		return "interrupted"
	}
	return p.get(j, decode, request)
}

// put hands over the batches in order. After a failure it goes on with the last, which ends the request:
// every request is ended once, so that the proxy hears of each.
func (p *player) put(ctx context.Context, j *job, peer agent.Peer, request string) (cause string) {
	batches := j.batches(batchChunks)
	for i, keys := range batches {
		last := i == len(batches)-1
		if cause != "" && !last {
			continue
		}
		prefill, err := p.cluster.prefill.current(ctx)
		if err != nil {
			return "interrupted"
		}
		r := prefill.call(agent.Request{Op: "put", Peer: &peer, Request: request, Keys: keys,
			LastTokens: j.lastTokensOf(i, len(batches)), Last: last})
		p.tally.sent.Add(int64(r.Sent))
		p.tally.skipped.Add(int64(r.Skipped))
		p.tally.bytesSent.Add(r.Bytes)
		if r.Code == effects.OK.String() {
			p.tally.put.record(time.Duration(r.MicrosTransfer) * time.Microsecond)
		} else if cause == "" {
			cause = "put: " + r.Code
		}
	}
	return cause
}

// get has the decode's engine take the chunks: from its pool, or with a fetch.
func (p *player) get(j *job, decode *process, request string) (cause string) {
	op := "get"
	if p.options.Mode.delays() {
		op = "fetch"
	}
	batches := j.batches(batchChunks)
	for i, keys := range batches {
		r := decode.call(agent.Request{Op: op, Request: request, Keys: keys, LastTokens: j.lastTokensOf(i, len(batches)), WaitMS: int(getWait.Milliseconds())})
		p.tally.hits.Add(int64(r.Hits))
		p.tally.bytesVerified.Add(r.Bytes)
		p.tally.bytesWrong.Add(r.Wrong)
		switch {
		case r.Wrong > 0:
			return op + ": wrong bytes"
		case r.Code != effects.OK.String():
			return op + ": " + r.Code
		}
		p.tally.get.record(time.Duration(r.MicrosTransfer) * time.Microsecond)
	}
	return ""
}

// settle waits until no node has anything in progress, and says what is still pinned after that.
func (p *player) settle(ctx context.Context) (pinned []string) {
	deadline := time.Now().Add(settleMax)
	for {
		pinned = nil
		for _, node := range p.cluster.nodes() {
			if s := p.look(node); s != nil {
				pinned = append(pinned, pinnedAt(node.name, s)...)
			} else {
				pinned = append(pinned, node.name+": does not answer")
			}
		}
		if len(pinned) == 0 || time.Now().After(deadline) || !pause(ctx, 50*time.Millisecond) {
			return pinned
		}
	}
}

// look asks a node what it holds; nil if it is gone.
func (p *player) look(node *process) *agent.Stats {
	s := node.call(agent.Request{Op: "stats"}).Stats
	if s != nil {
		p.tally.marks(s)
	}
	return s
}

// pinnedAt names everything that a node without work must not have. Pages of ready chunks are a cache,
// and no pin.
func pinnedAt(name string, s *agent.Stats) (pinned []string) {
	for _, c := range []struct {
		what  string
		count int
	}{
		{"pages granted", s.PagesGranted}, {"pages lent", s.PagesLent}, {"pages quarantined", s.PagesQuarantined}, {"puts", s.Puts}, {"gets", s.Gets},
		{"grants", s.Grants}, {"waiters", s.Waiters}, {"reserves", s.Reserves}, {"claims", s.Claims}, {"fills", s.Fills},
		{"offers kept", s.Offers}, {"fetches", s.Fetches}, {"pages staged", s.Staged}, {"pages of host memory", s.HostTotal - s.HostFree},
		{"pages neither free nor of a ready chunk", s.PagesTotal - s.PagesFree - s.Entries},
	} {
		if c.count != 0 {
			pinned = append(pinned, fmt.Sprintf("%s: %d %s", name, c.count, c.what))
		}
	}
	return pinned
}
