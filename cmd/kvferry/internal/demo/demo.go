// Package demo replays a request trace through real processes: one proxy, one prefill and two decodes, or a ring of
// nodes that are both, each this program itself, with real sockets and a real data plane. It makes KV bytes that follow
// from their keys, has every one verified where it arrived, and kills a decode and then the prefill on the way.
package demo

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/trace"
)

// PlaneNIXL is the plane over libnixl, which the nodes load as any other would.
const PlaneNIXL = "nixl"

// Options say what is replayed, and how.
type Options struct {
	Trace       string // its name, for the report
	Requests    []trace.Request
	Mode        Mode
	Ring        bool    // each node is prefill and decode: it puts to the next
	Recall      bool    // who puts reads back first what a decode still has of a request
	Plane       string  // transfer_channel: auto, shm, tcp or nixl, and hccl with an NPU
	NPU         *NPU    // where pages lie; nil: memory of the processes
	Speed       float64 // of the trace's clock; 0 replays without pauses
	Concurrency int     // requests in progress; at least 1
	Crash       bool    // kill one process of each side
	Log         io.Writer
	Progress    func(done, failed int) // called for each request that ended; may be nil

	shape shape
}

// A player replays one trace.
type player struct {
	options *Options
	cluster *cluster
	tally   *tally
}

// Run replays the trace and reports. The error says why it could not be played; what went wrong while it
// played is in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.shape = shapeFor(availableBytes(), o.Ring)
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
	pinned := settle(ctx, c.nodes(), p.look)
	unclean := c.stop()
	defer c.leaveNothing()
	return p.report(took, pinned, unclean, c.npuReport(&o, p.tally)), nil
}

func (p *player) play(ctx context.Context, jobs []job) {
	most := p.options.most()
	for i := range jobs {
		if j := &jobs[i]; len(j.keys) > most {
			j.keys, j.lastTokens = j.keys[:most], 0
			p.tally.r.Cut++
		}
	}
	var strikes []func(context.Context)
	if p.options.Crash {
		for _, at := range p.cluster.victims() {
			strikes = append(strikes, func(ctx context.Context) { p.crash(ctx, at) })
		}
	}
	p.options.replay(ctx, jobs, p.playJob, strikes)
}

// replay plays each job in the trace's order, some at a time. On the way, as far apart as they can be, strikes happen,
// one at a time.
func (o *Options) replay(
	ctx context.Context, jobs []job, play func(context.Context, *job), strikes []func(context.Context),
) {
	queue := make(chan *job)
	var workers, struck sync.WaitGroup
	for range o.Concurrency {
		workers.Go(func() {
			for j := range queue {
				play(ctx, j)
			}
		})
	}
	begin := time.Now()
	before := make(chan struct{}) // closed when the strike before is over
	close(before)
	next := 0
	for i := range jobs {
		j := &jobs[i]
		if o.Speed > 0 && !pause(ctx, time.Until(begin.Add(time.Duration(float64(j.arrival)/o.Speed)))) {
			break
		}
		select {
		case queue <- j:
		case <-ctx.Done():
		}
		for ; next < len(strikes) && i == (next+1)*len(jobs)/(len(strikes)+1); next++ {
			strike, after, over := strikes[next], before, make(chan struct{})
			struck.Go(func() {
				defer close(over)
				<-after
				strike(ctx)
			})
			before = over
		}
	}
	close(queue)
	workers.Wait()
	struck.Wait()
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

func (p *player) crash(ctx context.Context, at *seat) {
	p.look(at.now())
	name, begin := at.now().name, time.Now()
	err := at.crash(ctx, func() {})
	p.tally.crashed(name, time.Since(begin), err)
}
