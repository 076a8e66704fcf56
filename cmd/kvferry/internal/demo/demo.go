// Package demo replays a request trace through real processes, with real sockets and a real data plane. The processes
// are a proxy, a prefill node and two decode nodes, or a ring of nodes that have both roles; each process runs this
// program. The KV bytes of a chunk are a function of the chunk's key, and every byte is verified at the receiver.
// During the replay, the demo kills a decode node and then the prefill node, and starts both again.
//
// For example, Run plays a request in mode push as follows: the prefill node puts the request's chunks to decode-0, the
// proxy is notified that the request is complete, and decode-0 gets and verifies the chunks. If any step fails, the
// demo computes and puts the request again, as a serving system would. The Report counts the attempts, the wrong bytes,
// and the pages that a node still pins at the end.
package demo

import (
	"cmp"
	"context"
	"io"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/trace"
)

// PlaneNIXL names the plane over libnixl.
const PlaneNIXL = "nixl"

// Options describes the trace to replay and the way to replay it.
type Options struct {
	Trace       string // the trace's name, for the report
	Requests    []trace.Request
	Mode        Mode
	Ring        bool          // each node has both roles, and puts to the next node
	Recall      bool          // the sender first recalls the chunks of a request that the decode node still has
	Plane       string        // transfer_channel: auto, shm, tcp or nixl, and hccl with an NPU
	NPU         *NPU          // the NPU whose memory has the pages; nil: host memory
	Speed       float64       // speed of the trace's clock; 0 replays without pauses
	Concurrency int           // requests in progress; at least 1
	Layers      int           // the largest number of layers of the model; 0: LayersMax; with less memory there are fewer
	Crash       bool          // kill a prefill process and a decode process, or two processes of a ring
	Soak        bool          // compare what the nodes use early and late
	Chaos       *Chaos        // nil: no strikes but those of Crash
	Secure      bool          // security.mode: strict, with certificates that are renewed during the replay
	Other       *OtherRelease // nil: all processes run this release
	Log         io.Writer
	Progress    func(done, failed int) // called when a request ends; may be nil

	shape shape
}

// A player replays a trace.
type player struct {
	options *Options
	cluster *cluster
	tally   *tally
}

// Run replays the trace and returns the report. It fails if the trace could not be played. Failures during the replay
// are in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.shape = shapeFor(availableBytes(), cmp.Or(o.Layers, LayersMax), o.Ring)
	o.Concurrency = max(o.Concurrency, 1)
	c, err := startCluster(ctx, &o)
	if err != nil {
		return nil, err
	}
	p := &player{options: &o, cluster: c, tally: newTally()}
	begin := time.Now()
	p.playJobs(ctx, newJobs(o.Requests, o.shape.chunkTokens))
	took := time.Since(begin)
	if ctx.Err() != nil {
		c.killAll()
		return nil, ctx.Err()
	}
	pinned := awaitIdle(ctx, c.nodeProcesses(), p.fetchStats)
	unclean := c.stopAll()
	defer c.cleanUp()
	report := p.finishReport(took, pinned, unclean, c.npuReport(&o, p.tally))
	c.report(&report.Outcome)
	return report, nil
}

func (p *player) playJobs(ctx context.Context, jobs []job) {
	maxChunks := p.options.maxChunks()
	for i := range jobs {
		if j := &jobs[i]; len(j.keys) > maxChunks {
			j.keys, j.lastTokens = j.keys[:maxChunks], 0
			p.tally.r.Cut++
		}
	}
	var strikes []func(context.Context)
	if p.options.Crash {
		for _, at := range p.cluster.nodesToKill() {
			strikes = append(strikes, func(ctx context.Context) { p.crashNode(ctx, at) })
		}
	}
	var others sync.WaitGroup
	ended := make(chan struct{})
	if p.options.Chaos != nil {
		others.Go(func() { p.playChaos(ctx, ended) })
	}
	if p.options.Soak {
		others.Go(func() { p.sampleUsage(len(jobs), ended) })
	}
	p.options.replayJobs(ctx, jobs, p.playJob, strikes)
	close(ended)
	others.Wait()
}

// replayJobs plays the jobs in the trace's order, o.Concurrency jobs at a time. It runs the strikes one after the
// other, at even distances over the trace.
func (o *Options) replayJobs(
	ctx context.Context, jobs []job, play func(context.Context, *job), strikes []func(context.Context),
) {
	queue := make(chan *job)
	var workers, strikesDone sync.WaitGroup
	for range o.Concurrency {
		workers.Go(func() {
			for j := range queue {
				play(ctx, j)
			}
		})
	}
	begin := time.Now()
	before := make(chan struct{}) // closed when the previous strike is over
	close(before)
	next := 0
	for i := range jobs {
		j := &jobs[i]
		if o.Speed > 0 && !sleepContext(ctx, time.Until(begin.Add(time.Duration(float64(j.arrival)/o.Speed)))) {
			break
		}
		select {
		case queue <- j:
		case <-ctx.Done():
		}
		for ; next < len(strikes) && i == (next+1)*len(jobs)/(len(strikes)+1); next++ {
			strike, after, over := strikes[next], before, make(chan struct{})
			strikesDone.Go(func() {
				defer close(over)
				<-after
				strike(ctx)
			})
			before = over
		}
	}
	close(queue)
	workers.Wait()
	strikesDone.Wait()
}

// sleepContext waits for d. It reports false if the context ended the wait early.
func sleepContext(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *player) crashNode(ctx context.Context, at *slot) {
	p.fetchStats(at.currentProcess())
	name, begin := at.currentProcess().name, time.Now()
	err := at.restart(ctx, func() {})
	p.tally.addCrash(name, time.Since(begin), err)
}
