// Package demo replays a request trace through real processes: one proxy, one prefill and two decodes, or a ring of
// nodes that are both, each this program itself, with real sockets and a real data plane. It makes KV bytes that follow
// from their keys, has every one verified where it arrived, and kills a decode and then the prefill on the way.
package demo

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/trace"
)

// Options say what is replayed, and how.
type Options struct {
	Trace       string // its name, for the report
	Requests    []trace.Request
	Mode        Mode
	Ring        bool    // each node is prefill and decode: it puts to the next
	Recall      bool    // who puts reads back first what a decode still has of a request
	Plane       string  // transfer_channel: auto, shm or tcp, and hccl with an NPU
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

	done atomic.Int64
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
	most := p.options.most()
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
				p.crash(ctx, p.cluster.victims()[0])
			})
		}
		if p.options.Crash && i == 2*len(jobs)/3 {
			crashes.Go(func() {
				<-first
				p.crash(ctx, p.cluster.victims()[1])
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

func (p *player) crash(ctx context.Context, at *seat) {
	p.look(at.now())
	name, begin := at.now().name, time.Now()
	err := at.crash(ctx)
	p.tally.crashed(name, time.Since(begin), err)
}
